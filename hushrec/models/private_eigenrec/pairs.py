"""The model in which items recommend items, from one noisy item x item matrix of the users' rows.

The matrix is the sum of the outer products of rows at norm 1, without popularity. Off the diagonal it is of
low rank, from tastes, plus sparse, from items that go together (sequels, sizes, accessories). Both are
denoised, and EASE's regressions on the result are the model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hushrec.kernels.packed import from_rectangle, ritz_pairs
from hushrec.models.ease import item_weights
from hushrec.models.private_eigenrec.items import ItemStatistics, popularity_of
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.training.gate import Gate
from hushrec.training.kalman import Tracked, no_evidence
from hushrec.types import Array, ModelArrays

# Tuned once on validation users of Yahoo! R3 and MovieLens-1M and on generated likes.

#: An entry exceeds the noise if it is more than this many times its deviation.
_EXCEEDS = 4.0
#: Only entries above this many times their deviation stay.
_THRESHOLD = 2.5
#: Ridge, as a part of the mean of the diagonal. Chosen on MovieLens-1M and games.
_RIDGE = 1.0
#: Entry of the matrix along popularity, as a part of its trace.
_ALONG_POPULARITY = 0.1
#: Rows of a matrix that are denoised at a time, and columns of Lanczos iterations beyond those needed.
_ROWS, _FURTHER = 256, 8


def memory_for(n_items: int) -> float:
    """Return the GiB that a training takes: three triangles of 8 octets an entry, and all else.

    The triangles are sums, the answer of a partition or the noisy sums, and the matrix in float32.
    `python -m benchmarks.scale --steps lists` measures it.
    """
    return 0.5 + 3 * 4.0 * n_items**2 / 2**30


def train_pairs(items: ItemStatistics, rank: int, users: LikingUsers, gate: Gate) -> ModelArrays:
    matrix = gate.release("item matrix", users.item_matrix()).ravel()
    return _served(items, matrix, _precision(gate), gate, rank)


def train_next_week_of_pairs(users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    state, learned = last.state, np.zeros(users.domain.n_items, dtype=bool)
    learned[last.serve["pair_items"]] = True
    scale, first, noisy = state["item_scale"], state["item_first"], state["item_weights"]
    noise_sd = math.sqrt(float(state["item_weights_variance"].mean()))
    popularity, n_users = popularity_of(noisy, 0.0), float(state["users"][0])
    items = ItemStatistics(n_users, noisy, noise_sd, learned, popularity, scale, first)
    users.scale(scale, first)
    matrix = gate.release("item matrix", users.item_matrix()).ravel()
    part, precision, before = 1.0, _precision(gate), float(state["pairs_precision"])
    if before:
        part = Tracked(state["pairs"], np.array(1 / before), no_evidence()).part(matrix, 1 / precision)
    total = part**2 * precision + before
    matrix -= part * state["pairs"]  # in place: copies may not fit
    matrix *= part * precision / total
    matrix += state["pairs"]
    return _served(items, matrix, total, gate, len(last.serve["pair_items"]) - 1)


def _precision(gate: Gate) -> float:
    return gate.noise_sd("item matrix") ** -2.0 if gate.private else 1.0


def _served(items: ItemStatistics, matrix: Array, precision: float, gate: Gate, rank: int) -> ModelArrays:
    noise_sd = math.sqrt(0.5 / precision) if gate.private else 0.0  # off the diagonal
    scale, along = items.scale[items.learned], items.first[items.learned]
    full = from_rectangle(matrix, len(scale), np.float32)
    found = denoise(full, noise_sd, rank)
    weights = _regressed(full, along / np.linalg.norm(along))
    weights *= scale[:, None].astype(np.float32)
    weights /= scale.astype(np.float32)
    serve = {
        "center": np.float64(0.0),
        "item_bias": 1e-6 * items.popularity,
        "item_factors": np.zeros((len(items.noisy), 0), np.float32),
        "history_weight": items.scale**2,
        "pair_items": np.flatnonzero(items.learned).astype(np.int32),
        "pair_weights": weights,
        "supported": items.learned.astype(np.uint8),
        "directions": np.int64(found.certain),
    }
    state = {
        "pairs": matrix,
        "pairs_precision": np.float64(precision if gate.private else 0.0),
        "users": np.array([items.n_users]),
        "item_weights": items.noisy,
        "item_weights_variance": np.full(len(items.noisy), items.noise_sd**2),
        "item_scale": items.scale,
        "item_first": items.first,
    }
    return ModelArrays(serve, state)


class Found(NamedTuple):
    """Numbers of taste dimensions in an item matrix.

    Attributes
    ----------
    standing : int
        Eigenvalues off the diagonal that exceed the noise.
    certain : int
        Lower bound on the taste dimensions.
    """

    standing: int
    certain: int


def denoise(matrix: Array, noise_sd: float, count: int) -> Found:
    """Denoise a symmetric item matrix in place.

    Off the diagonal it becomes the sum of a part of low rank, from at most ``count`` eigenvectors that exceed
    the noise, without the strength that noise adds, and of the entries of the rest that exceed it.
    ``noise_sd`` is that of an entry off the diagonal. An eigenvalue of noise alone is below
    ``2 noise_sd sqrt(n)``.
    """
    order, diagonal, edge = len(matrix), matrix.diagonal().copy(), 2 * noise_sd * math.sqrt(len(matrix))
    np.fill_diagonal(matrix, 0.0)
    strengths, basis = (part[..., : -count - 1 : -1] for part in ritz_pairs(matrix, count + _FURTHER))
    standing = int((strengths > edge).sum())
    columns = basis[:, :standing]
    strong = np.sqrt(np.maximum(strengths[:standing] ** 2 - edge**2, 0.0)).astype(matrix.dtype)
    rest = np.zeros((basis.shape[1], basis.shape[1]))  # of the matrix without its largest entries
    for start in range(0, order, _ROWS):
        rows = matrix[start : start + _ROWS]
        small = np.where(np.abs(rows) > _EXCEEDS * noise_sd, matrix.dtype.type(0), rows)
        rest += basis[start : start + _ROWS].T @ (small @ basis)
        low_rank = (columns[start : start + _ROWS] * strong) @ columns.T
        rows -= low_rank
        size = np.abs(rows)
        size -= matrix.dtype.type(_THRESHOLD * noise_sd)
        np.copysign(np.maximum(size, 0, out=size), rows, out=rows)
        rows += low_rank
    np.fill_diagonal(matrix, diagonal)
    # derivation: docs/proofs/private-eigenrec.md
    chance = 2 * math.sqrt(max(float(diagonal.sum(dtype=np.float64)), 0.0) / order)
    return Found(standing, int((np.linalg.eigvalsh(rest) > edge + chance).sum()))


def _regressed(matrix: Array, popularity: Array) -> Array:
    """Return EASE's weights of the items of a denoised matrix, in its place, column j for item j.

    ``popularity`` is the direction that was projected out, at norm 1.
    """
    strength = _ALONG_POPULARITY * max(float(matrix.diagonal().sum(dtype=np.float64)), 0.0)
    diagonal = np.maximum(matrix.diagonal(), 0.0) + strength * popularity**2
    for row, along in zip(matrix, strength * popularity, strict=True):
        row += (along * popularity).astype(matrix.dtype)
    np.fill_diagonal(matrix, diagonal)
    least = float(ritz_pairs(matrix, _FURTHER)[0][0])
    ridge = _RIDGE * (float(diagonal.mean()) or 1.0)  # which also makes up for the error of `least`
    np.fill_diagonal(matrix, diagonal + ridge + max(-least, 0.0))
    return item_weights(matrix.T)
