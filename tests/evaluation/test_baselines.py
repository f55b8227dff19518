"""Baselines without privacy cost, from their definitions."""

import math

import numpy as np
import pytest

from hushrec import Accountant, Budget, Popular, Store, realistic, split_ratings
from hushrec.evaluation import baselines, evaluate
from hushrec.evaluation.baselines import measured, popular_by_plan
from hushrec.training.named import train

ROWS = realistic(300, 40, 5000, seed=0)
TRAIN, TEST = split_ratings(ROWS, (0.7, 0.3), seed=0)


def trained(name, epsilon=8.0, **settings):
    accountant = Accountant(Budget(epsilon, 1e-6), data_is_public=epsilon == math.inf)
    return train(name, TRAIN, accountant, n_users=300, settings=settings)


@pytest.mark.true("C2")
def test_user_means_and_popularity_from_their_definitions() -> None:
    """Three ratings at the released level pull a user's mean; items use the model's released values."""
    model = trained("both")
    found = baselines(model)
    history = {TRAIN.domain.items[0]: 5.0, TRAIN.domain.items[1]: 2.0}
    level = float(model.arrays["center"])
    wanted = np.clip((5 + 2 + 3 * level) / 5, 1, 5)
    assert found["user means"].predict(history, TRAIN.domain.items) == pytest.approx(np.full(40, wanted))
    popularity = model.lists.item_bias
    first = np.lexsort((-popularity, -model.lists.arrays["supported"].astype(int)))[:10]
    listed = [item for item, *_ in found["popularity"].recommend({}, 10)]
    assert listed == [TRAIN.domain.items[place] for place in first]
    popular = trained("popular")
    assert baselines(popular)["popularity"].recommend(history, 40) == popular.recommend(history, 40)


@pytest.mark.true("C2")
@pytest.mark.parametrize(
    ("name", "released"),
    [
        ("both", ["user means", "popularity"]),
        ("private-eigenrec", ["popularity"]),
        ("popular", ["popularity"]),
        ("private-als", ["user means"]),
        ("item-bias", ["user means"]),
        ("global-mean", ["user means"]),
    ],
)
def test_what_was_not_released_is_no_yardstick(name, released) -> None:
    model = trained(name)
    assert list(baselines(model)) == released
    options = {"k": 5, "metrics": ["rmse", "recall", "commonest-first"], "seed": 3}
    found = measured(model, TRAIN, TEST, **options, relevant_from=4.0)
    assert [each for each, figures in found.items() if figures] == [*released, "popular"]
    for each in released:
        wanted = evaluate(baselines(model)[each], TRAIN, TEST, k=5, relevant_from=4.0, resamples=0)
        for metric, figure in found[each].metrics.items():
            assert figure.value == wanted[metric].value
        assert list(found[each].metrics) == (
            ["rmse"] if each == "user means" else ["recall@5", "commonest-first"]
        )
    assert found["popular"]["commonest-first"].value == 1


@pytest.mark.true("C2")
def test_popular_has_the_noise_of_its_plan(tmp_path) -> None:
    """The rows are in memory or in a store; a model without privacy has no such baseline."""
    model = trained("item-bias", epsilon=2.0)
    exact = np.asarray(
        Popular().fit(TRAIN, Accountant(Budget(math.inf, 1e-6), data_is_public=True)).item_bias
    )
    store = Store.prepare(TRAIN, tmp_path / "rows", TRAIN.domain, partitions=3)
    noise = [popular_by_plan(model, rows, seed=5).item_bias - exact for rows in (TRAIN, store)]
    assert noise[0] == pytest.approx(noise[1], abs=1e-9)
    assert np.std(noise[0]) == pytest.approx(1 / model.privacy.budget.mu, rel=0.35)
    assert popular_by_plan(trained("als", math.inf), TRAIN) is None
