"""Public ratings of another population as item features, for use without donors."""

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

#: Number of taste dimensions, and the smallest number of likes assumed of an item.
_DIRECTIONS, _FEWEST = 16, 3.0


def item_vectors(ratings: Ratings) -> pa.Table:
    """Return a table of item features computed from public ratings of another population.

    Parameters
    ----------
    ratings : Ratings
        Public ratings or likes of any part of a catalogue.

    Returns
    -------
    pyarrow.Table
        Columns ``item`` and ``vector`` for `Domain(item_features=...)`: the logarithm of the number of
        ratings, the item's bias and factors (for ratings), and its coordinates in the taste dimensions if at
        least two users like something. Items without a rating are left out.

    Raises
    ------
    InputError
        There are no ratings.

    Examples
    --------
    >>> elsewhere = hushrec.realistic(200, 50, 4000, seed=1)
    >>> table = hushrec.public.item_vectors(elsewhere)
    >>> domain = hushrec.Domain(elsewhere.domain.items, rating_range=(1, 5), item_features=table)
    >>> domain.item_features.shape
    (50, 24)
    """
    check_kind(ratings, Ratings, "ratings", "read them with Ratings.from_any(path, domain)")
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
    """Return the leading scaled singular vectors of the users' unit rows, without that of popularity."""
    counts = np.bincount(likes.matrix.indices, minlength=likes.n_items)
    scale = 1 / np.sqrt(np.maximum(np.diff(likes.matrix.indptr), 1))
    rows = sp.diags_array(scale) @ with_values(likes.matrix, np.ones(likes.matrix.nnz))
    rows = rows @ sp.diags_array(1 / np.sqrt(np.maximum(counts, _FEWEST)))
    size = min(_DIRECTIONS + 1, min(rows.shape) - 1)
    if size < 1:
        return np.zeros((likes.n_items, 0))
    with one_blas_thread():
        _, values, right = svds(rows, size, random_state=0)
    order = np.argsort(-values)[1:]
    return np.asarray(right[order].T * values[order])
