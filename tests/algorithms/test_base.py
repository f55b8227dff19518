"""The billboard as people use it: one user, many users, unknown users, wrong ids."""

import math

import numpy as np
import pytest

from hushrec.algorithms import Billboard, GlobalMean, PrivateALS
from hushrec.data import Domain, Ratings, realistic
from hushrec.errors import InputError
from hushrec.evaluation.metrics import evaluate
from hushrec.privacy import Accountant, Budget
from hushrec.serving import UserState, all_scores

RATINGS = realistic(200, 60, 5000, seed=0)
MODEL = PrivateALS(rank=3).fit(RATINGS, Accountant(Budget(math.inf, 1e-6)), seed=1)
ITEMS = RATINGS.domain.items


def history_of(row: int) -> dict:
    matrix = RATINGS.matrix
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return {ITEMS[item]: float(value) for item, value in zip(matrix.indices[part], matrix.data[part])}


def test_one_user_is_served_as_in_a_batch_and_as_by_hand() -> None:
    history = history_of(7)
    scores = MODEL.predict(history, ITEMS)
    state = MODEL.fold_in(Ratings.of_user(history, RATINGS.domain))
    by_hand = (
        MODEL.arrays["center"]
        + state.offset[0]
        + MODEL.item_bias
        + MODEL.item_factors.astype(float) @ state.factors[0]
    )
    np.testing.assert_allclose(scores, np.clip(by_hand, 1, 5), rtol=1e-9)
    best = MODEL.recommend(history, 10)
    assert not {item for item, *_ in best} & set(history)
    unseen = [(score, item) for score, item in zip(by_hand, ITEMS) if item not in history]
    assert [item for item, *_ in best] == [item for _, item in sorted(unseen, reverse=True)[:10]]
    table = MODEL.recommend_batch(RATINGS, 10).to_pydict()
    rows = [index for index, user in enumerate(table["user"]) if user == RATINGS.users[7]]
    assert [table["item"][row] for row in rows] == [item for item, *_ in best]
    assert [table["rank"][row] for row in rows] == list(range(1, 11))


@pytest.mark.parametrize("n_items", [7, 60, 4001])
def test_the_bits_of_a_list_tell_nothing_of_the_others(n_items: int) -> None:
    """Killed: scores of a product by BLAS, whose last bits tell how many users are served beside her."""
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
    model = Billboard(estimator=GlobalMean(), domain=domain, arrays=arrays, privacy=MODEL.privacy)
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


def test_similar_items_by_cosine() -> None:
    model = PrivateALS(rank=3, iterations=1).fit(RATINGS, Accountant(Budget(math.inf, 1e-6)))
    factors = model.item_factors.astype(float)
    cosines = factors @ factors[4] / (np.linalg.norm(factors, axis=1) * np.linalg.norm(factors[4]))
    cosines[4] = -9
    found = model.similar_items(ITEMS[4], 3)
    assert [item for item, _ in found] == [ITEMS[i] for i in np.argsort(-cosines)[:3]]
    noisy = PrivateALS(rank=3, iterations=1).fit(RATINGS, Accountant(Budget(5.0, 1e-6)))
    with pytest.raises(InputError, match="cannot tell what it learned"):
        noisy.similar_items(ITEMS[4])
    with pytest.raises(InputError, match="learned nothing of people's tastes"):
        GlobalMean().fit(RATINGS, Accountant(Budget(1.0, 1e-6))).similar_items(ITEMS[0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MODEL.predict({}, ["no such item"]), "no such item"),
        (lambda: MODEL.predict({}, "i1"), "list"),
        (lambda: MODEL.recommend({}, 0), "n=0"),
        (lambda: MODEL.recommend(RATINGS, 5), "recommend_batch"),
        (lambda: MODEL.similar_items("no such item"), "no such item"),
        (lambda: PrivateALS().fit(RATINGS, Accountant(Budget(1, 1e-6)), seed=-1), "seed"),
        (lambda: PrivateALS().fit(RATINGS, Accountant(Budget(1, 1e-6, unit="rating"))), "unit"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_another_catalogue_is_refused() -> None:
    other = Ratings.from_any((["a"], ["x"], [3.0]), Domain(items=["x"], rating_range=(1, 5)))
    with pytest.raises(InputError, match="catalogue"):
        MODEL.fold_in(other)


def test_a_billboard_cannot_be_changed_and_shows_no_rows() -> None:
    assert isinstance(MODEL, Billboard)
    with pytest.raises(ValueError):
        MODEL.item_bias[0] = 1
    with pytest.raises(TypeError):
        MODEL.arrays["item_bias"] = np.zeros(3)
    assert "200" not in repr(MODEL)
