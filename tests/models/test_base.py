"""The model as people use it: one user, many users, unknown users, wrong ids."""

import math

import numpy as np
import pytest

from hushrec.data import Domain, Ratings, realistic
from hushrec.evaluation.metrics import evaluate
from hushrec.models import GlobalMean, Model, PrivateALS
from hushrec.privacy import Accountant, Budget
from hushrec.serving.scoring import UserState, all_scores

RATINGS = realistic(200, 60, 5000, seed=0)
MODEL = PrivateALS(rank=3).fit(RATINGS, Accountant(Budget(math.inf, 1e-6)), seed=1)
ITEMS = RATINGS.domain.items


@pytest.mark.parametrize("n_items", [7, 60, 4001])
def test_the_bits_of_a_list_tell_nothing_of_the_others(n_items: int) -> None:
    """Killed: scores of a product by BLAS, with last bits that reveal the number of other users."""
    rng = np.random.default_rng(0)
    arrays = {"center": np.array(3.0), "item_bias": rng.normal(size=n_items)}
    arrays["item_factors"] = rng.normal(size=(n_items, 33)).astype(np.float32)
    state = UserState(rng.normal(size=150), rng.normal(size=(150, 33)))
    whole = all_scores(arrays, state)
    for n_users in (1, 2, 3, 9, 64, 149):
        for rows in (slice(n_users), slice(150 - n_users, 150)):
            assert all_scores(arrays, state.at(rows)).tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("width", [4.0, 1e7, 1e30])
def test_unsupported_items_come_last_whatever_they_score(width: float) -> None:
    domain = Domain(items=list("abcde"), rating_range=(0.0, width))
    arrays = {
        "center": np.float64(width / 2),
        "item_bias": np.array([0.5, -0.4, 0.3, -0.5, 0.1]) * width,
        "item_factors": np.zeros((5, 0)),
        "supported": np.array([0, 1, 0, 1, 1], dtype=np.uint8),
    }
    model = Model(estimator=GlobalMean(), domain=domain, arrays=arrays, privacy=MODEL.privacy)
    assert [item for item, *_ in model.recommend({})] == list("ebdac")
    assert [item for item, *_ in model.recommend({}, 2, items=["a", "d"])] == ["d", "a"]
    ratings = Ratings.from_any((["u", "u"], ["e", "a"], [0.0, width]), domain)
    assert model.recommend_batch(ratings, 3)["item"].to_pylist() == ["b", "d", "c"]
    held_out = Ratings.from_any((["u"], ["b"], [width]), domain)
    assert evaluate(model, ratings, held_out, k=1, resamples=0)["recall@1"].value == 1.0


def test_no_users_at_all() -> None:
    nobody = Ratings.from_any(([], [], []), RATINGS.domain)
    model = PrivateALS(rank=3).fit(nobody, Accountant(Budget(1.0, 1e-6)))
    assert np.isfinite(model.predict({}, ITEMS)).all()
    assert MODEL.recommend_batch(nobody, 5).num_rows == 0
    assert MODEL.predict_pairs(nobody, nobody).size == 0
