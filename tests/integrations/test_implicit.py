"""Behaviour that users of implicit rely on, of implicit itself and of hushrec behind the same calls.

The differences by design are those of docs/guides/migrating.md.
"""

import math

import numpy as np
import pytest
import scipy.sparse as sp

import hushrec
from hushrec.kernels.threads import one_blas_thread
from hushrec.models import ALS, EASE, PrivateEigenRec
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise

pytest.importorskip("implicit")
from implicit.als import AlternatingLeastSquares
from implicit.evaluation import ranking_metrics_at_k

N, WITHOUT = 50, Budget(math.inf, 1e-6)


class Adapter:
    """A model of ours behind the calls of implicit's recommenders."""

    def __init__(self, estimator, budget: Budget = WITHOUT) -> None:
        self._estimator, self._budget = estimator, budget

    def fit(self, user_items, show_progress=False):
        domain = hushrec.Domain(range(user_items.shape[1]), likes=True)
        rows = hushrec.Ratings.from_any(sp.csr_array(user_items), domain, implicit=True)
        noise = SeededNoise(0) if self._budget.private else None
        self.model = self._estimator.fit(rows, Accountant(self._budget, noise=noise))

    def recommend(
        self, userid, user_items, N=10, filter_already_liked_items=True, filter_items=None, items=None
    ):
        options = {"exclude_seen": filter_already_liked_items, "exclude_items": filter_items, "items": items}
        rows = [user_items[[place]].indices.tolist() for place in range(user_items.shape[0])]
        found = [as_arrays(self.model.recommend(row, N, **options)) for row in rows]
        return found[0] if np.ndim(userid) == 0 else tuple(map(np.array, zip(*found, strict=True)))

    def similar_items(self, itemid, N=10):
        return as_arrays(self.model.similar_items(itemid, N))


def as_arrays(found):
    return np.array([each.item for each in found], np.int32), np.array([each.score for each in found])


def of_implicit() -> AlternatingLeastSquares:
    with one_blas_thread():  # or it warns
        return AlternatingLeastSquares(factors=6, regularization=0.01, random_state=23)


MODELS = {
    "implicit": of_implicit,
    "als": lambda: Adapter(ALS(rank=6, unobserved_weight=0.1)),
    "ease": lambda: Adapter(EASE()),
    "eigenrec": lambda: Adapter(PrivateEigenRec(rank=2, iterations=4)),
    "private": lambda: Adapter(PrivateEigenRec(rank=2, iterations=4, n_users=N), Budget(200, 1e-6)),
}


def checkerboard(size: int = N):
    """Users like the items of their own parity, without the item of their own number."""
    places = np.arange(size)
    liked = (places[:, None] - places) % 2 == 0
    np.fill_diagonal(liked, False)
    return sp.csr_matrix(liked.astype(np.float32))


LIKED = checkerboard()


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    model = MODELS[request.param]()
    model.fit(LIKED, show_progress=False)
    return model


def test_the_item_that_was_held_out_comes_first(fitted) -> None:
    batch, _ = fitted.recommend(np.arange(N), LIKED, N=5)
    assert batch.shape == (N, 5) and batch[:, 0].tolist() == list(range(N))
    for user in range(N):
        items, scores = fitted.recommend(user, LIKED[user], N=5)
        assert items[0] == user and len(items) == 5
        assert (np.diff(scores) <= 1e-6).all() and not set(items) & set(LIKED[user].indices)


def test_a_user_of_whom_the_model_knows_nothing_is_served_from_their_row(fitted) -> None:
    """Somebody who likes a few even items gets even ones; without likes, the list is of full length."""
    row = sp.csr_matrix((np.ones(3, np.float32), ([0, 0, 0], [2, 8, 30])), shape=(1, N))
    known = {} if isinstance(fitted, Adapter) else {"recalculate_user": True}
    items, _ = fitted.recommend(0, row, N=10, **known)
    assert (items % 2 == 0).all() and not set(items) & {2, 8, 30}
    assert len(fitted.recommend(0, sp.csr_matrix((1, N), dtype=np.float32), N=10, **known)[0]) == 10


def test_items_are_filtered(fitted) -> None:
    assert 4 not in fitted.recommend(4, LIKED[4], N=10, filter_items=[4])[0]
    everything = fitted.recommend(4, LIKED[4], N=N, filter_already_liked_items=False)[0]
    assert set(everything) == set(range(N))
    assert fitted.recommend(4, LIKED[4], N=1, items=[1, 3, 4])[0].tolist() == [4]


def test_similar_items_are_liked_by_the_same_users(fitted) -> None:
    for item in range(N):
        items, scores = fitted.similar_items(item, N=10)
        assert len(items) == 10 and (items % 2 == item % 2).all() and (np.diff(scores) <= 1e-6).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_rows_and_columns_of_nothing_and_any_type(name: str, kind) -> None:
    """An item without users is similar to none, and a user without likes changes nothing."""
    dense = LIKED.toarray()
    dense[42], dense[:, 42] = 0, 0
    model = MODELS[name]()
    model.fit(sp.csr_matrix(dense.astype(kind)), show_progress=False)
    for item in range(40):
        assert 42 not in model.similar_items(item, N=10)[0]


def test_metrics_are_those_of_implicit() -> None:
    """Each user holds out two likes, so that all ways to average are one."""
    rng, held = np.random.default_rng(0), np.zeros((N, N), bool)
    whole = LIKED.toarray() * (rng.random((N, N)) < 0.8)
    for user in range(N):
        held[user, rng.choice(np.flatnonzero(whole[user]), 2, replace=False)] = True
    train, test = (sp.csr_matrix(whole * part) for part in (~held, held))
    model = Adapter(ALS(rank=2, unobserved_weight=0.1))
    model.fit(train)
    theirs = ranking_metrics_at_k(model, train, test, K=5, show_progress=False)
    domain = model.model.domain
    rows = [hushrec.Ratings.from_any(sp.csr_array(part), domain, implicit=True) for part in (train, test)]
    names = {"capped-recall": "precision", "map": "map", "ndcg": "ndcg"}
    ours = hushrec.evaluate(model.model, *rows, k=5, metrics=list(names), resamples=0)
    for name, of_theirs in names.items():
        assert 0.1 < ours[f"{name}@5"].value < 1
        assert ours[f"{name}@5"].value == pytest.approx(theirs[of_theirs], rel=1e-6)


def test_what_differs_by_design() -> None:
    """Each row of the page, on both sides."""
    theirs, ours = MODELS["implicit"](), MODELS["als"]()
    for model in (theirs, ours):
        model.fit(LIKED, show_progress=False)
    row, several = LIKED[4], [0, 2, 4, 6]
    assert theirs.similar_items(4, N=3)[0][0] == 4 and 4 not in ours.similar_items(4, N=N)[0]
    assert set(theirs.recommend(4, row, N=4, items=several)[0]) == set(several)
    assert ours.recommend(4, row, N=4, items=several)[0].tolist() == [4]
    assert len(theirs.recommend(4, row, N=1000)[0]) == 1000
    assert len(ours.recommend(4, row, N=1000)[0]) == N - row.nnz
    assert theirs.similar_items([4, 5], N=2)[0].shape == (2, 2)
    assert ours.similar_items([4, 5], N=2)[0].shape == (2,)
    with pytest.raises(ValueError, match="both items and filter_items"):
        theirs.recommend(4, row, items=[4], filter_items=[6])
    assert not len(ours.recommend(4, row, items=[4], filter_items=[4])[0])
    with pytest.raises(IndexError):
        theirs.recommend(4, row, items=[4, 999])
    with pytest.warns(UserWarning, match="skipped 1 of 2 items"):
        assert ours.recommend(4, row, items=[4, 999])[0].tolist() == [4]
    with pytest.raises(IndexError):
        theirs.similar_items(999)
    with pytest.raises(hushrec.InputError, match="not in the model's catalogue"):
        ours.similar_items(999)
