"""Public ratings of another population as item features, where no donors are there to judge them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from hushrec.checks import check_kind
from hushrec.data import Ratings
from hushrec.errors import InputError
from hushrec.kernels.sparse_rows import with_values
from hushrec.kernels.threads import one_blas_thread
from hushrec.public.ratings_model import public_items
from hushrec.types import Array

#: Directions of likes, and likes that an item is not taken to have fewer of.
_DIRECTIONS, _FEWEST = 16, 3.0


def item_vectors(ratings: Ratings) -> pa.Table:
    """Tell of the items what public ratings of another population show, as a table of item features.

    Parameters
    ----------
    ratings : Ratings
        Public, over any part of a catalogue. Ratings, or likes.

    Returns
    -------
    pyarrow.Table
        A column ``item`` and a column ``vector`` for `Domain(item_features=...)`: logarithm of the number of
        ratings, how high the item is rated and its factors (of ratings), and its place in the directions of
        what is liked together, where two users or more like something. Items without a rating are left out.

    Raises
    ------
    InputError
        There is no rating.

    Examples
    --------
    >>> elsewhere = hushrec.realistic(200, 50, 4000, seed=1)
    >>> table = hushrec.public.item_vectors(elsewhere)
    >>> domain = hushrec.Domain(elsewhere.domain.items, rating_range=(1, 5), item_features=table)
    >>> domain.item_features.shape
    (50, 24)
    """
    check_kind(ratings, Ratings, "ratings", "read them with Ratings.read(path, domain)")
    if not ratings.n_ratings:
        raise InputError(
            "These public ratings have no row that can be used; check that their items are of the catalogue,"
            " and the ratings numbers within the declared range."
        )
    domain, counts = ratings.domain, np.bincount(ratings.matrix.indices, minlength=ratings.n_items)
    columns = [np.log1p(counts)[:, None]]
    if not domain.likes:
        with one_blas_thread():
            known = public_items(ratings, None)
        columns += [known.bias[:, None], known.factors]
    columns.append(_directions(ratings.liked(domain.like_threshold).rated()))
    seen = np.flatnonzero(counts).tolist()
    vectors = np.column_stack(columns)[seen]
    return pa.table({"item": [domain.items[place] for place in seen], "vector": list(vectors)})


def _directions(likes: Ratings) -> Array:
    """Leading directions of the users' rows, at norm 1, beside that of popularity; each by its strength."""
    counts = np.bincount(likes.matrix.indices, minlength=likes.n_items)
    each = 1 / np.sqrt(np.maximum(np.diff(likes.matrix.indptr), 1))
    rows = sp.diags_array(each) @ with_values(likes.matrix, np.ones(likes.matrix.nnz))
    rows = rows @ sp.diags_array(1 / np.sqrt(np.maximum(counts, _FEWEST)))
    size = min(_DIRECTIONS + 1, min(rows.shape) - 1)
    if size < 1:
        return np.zeros((likes.n_items, 0))
    with one_blas_thread():
        _, values, right = svds(rows, size, random_state=0)
    order = np.argsort(-values)[1:]
    return np.asarray(right[order].T * values[order])
