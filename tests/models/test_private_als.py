"""Private ALS on realistic data, and what a private run refuses."""

import math

import numpy as np
import pytest

from hushrec.data import Ratings, realistic, split_ratings
from hushrec.errors import InputError
from hushrec.models import GlobalMean, ItemBias, PrivateALS
from hushrec.privacy import Accountant, Budget
from tests.models.twins import (
    small,
)


def rmse(model, history: Ratings, test: Ratings) -> float:
    return math.sqrt(np.mean((model.predict_pairs(history, test) - test.matrix.data) ** 2))


def test_the_planned_model_beats_both_baselines_on_realistic_data() -> None:
    train, test = split_ratings(realistic(4000, 800, 300_000, seed=2), (0.9, 0.1), seed=0)
    budget = Budget(5.0, 1e-6)
    models = [PrivateALS.planned(budget, train.domain, 4000), ItemBias(), GlobalMean()]
    errors = [rmse(model.fit(train, Accountant(budget)), train, test) for model in models]
    assert errors == sorted(errors)


@pytest.mark.parametrize("name", ["bias_clip", "factor_clip", "user_norm"])
def test_no_clip_is_refused_in_a_private_run(name: str) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match=name):
        PrivateALS.of(iterations=1, **{name: None}).fit(small(), accountant)
    assert accountant.releases == ()
