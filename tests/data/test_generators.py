import sys

import numpy as np
import pytest

from hushrec.data import lifelike, realistic
from hushrec.errors import InputError

SHAPES = [(1, 1, 1), (5, 1, 5), (1, 9, 9), (30, 20, 600), (200, 40, 2500), (943, 1682, 100_000)]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_size_is_met_exactly_and_again(shape):
    ratings = realistic(*shape, seed=0)
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings) == shape
    assert ratings.matrix.has_canonical_format and (np.diff(ratings.matrix.indptr) >= 1).all()
    assert set(np.unique(ratings.matrix.data)) <= {1, 2, 3, 4, 5}
    assert (realistic(*shape, seed=0).matrix != ratings.matrix).nnz == 0


def test_what_cannot_be_made_is_refused():
    for shape in ((0, 1, 1), (10, 10, 9), (10, 10, 101), (1, 20_000, 10_001), (1.5, 2, 3), (True, 2, 2)):
        with pytest.raises(InputError):
            realistic(*shape, seed=0)
    for wrong in ({"rating_range": (5, 1)}, {"rating_range": (0, 0.5)}):
        with pytest.raises(InputError):
            realistic(10, 10, 50, **{"seed": 0, **wrong})


def test_a_lifelike_user_has_the_same_rows_among_more_and_a_taste(monkeypatch):
    """A user's rows follow from their number; like-minded users choose alike, beyond popularity."""
    few, many = (lifelike("films", n_users=count, n_items=150, seed=1) for count in (40, 700))
    assert (few.matrix != many.matrix[:40]).nnz == 0 and many.matrix.has_canonical_format
    monkeypatch.setattr(sys.modules[lifelike.__module__], "_CELLS", 1000)  # some six users at a time
    assert (lifelike("films", n_users=40, n_items=150, seed=1).matrix != few.matrix).nnz == 0
    assert set(np.unique(many.matrix.data)) == {1, 2, 3, 4, 5}
    assert (lifelike("films", n_users=40, n_items=150, seed=2).matrix != few.matrix).nnz
    strongest = []
    for ratings in (many, realistic(700, 150, many.n_ratings, seed=1)):
        chosen = ratings.matrix.astype(bool).toarray().astype(float)
        chosen -= chosen.mean(axis=0)
        strongest.append(np.linalg.svd(chosen, compute_uv=False)[2])  # the first two tell of long histories
    assert strongest[0] > 1.5 * strongest[1]
    for setting in ("sparse", "shop"):
        assert lifelike(setting, n_users=5, n_items=1, seed=0).n_ratings == 5
    with pytest.raises(InputError, match="one of films, sparse, shop"):
        lifelike("songs", seed=0)
