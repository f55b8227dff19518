"""The model in which items recommend items, from one noisy item x item matrix of the users' rows.

The matrix is the sum of the outer products of rows at norm 1, without popularity. Off the diagonal it is of
low rank, from tastes, plus sparse, from items that go together (sequels, sizes, accessories). Both are
denoised, and EASE's regressions on the result are the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from hushrec.kernels.packed import unpacked
from hushrec.models.ease import item_weights
from hushrec.models.private_eigenrec.items import ItemStatistics, popularity_of
from hushrec.models.private_eigenrec.users import LikingUsers
from hushrec.training.gate import Gate
from hushrec.training.kalman import Tracked, no_evidence
from hushrec.types import Array, ModelArrays

# Tuned on validation users of Yahoo! R3 and MovieLens-1M and on generated likes, once, at commit 1480e89.

#: An entry exceeds the noise if it is more than this many times its deviation.
_EXCEEDS = 4.0
#: Only entries above this many times their deviation stay.
_THRESHOLD = 2.5
#: Ridge, as a part of the mean of the diagonal. Chosen on MovieLens-1M and games.
_RIDGE = 1.0
#: Entry of the matrix along popularity, as a part of its trace.
_ALONG_POPULARITY = 0.1


def train_pairs(items: ItemStatistics, rank: int, users: LikingUsers, gate: Gate) -> ModelArrays:
    matrix = gate.release("item matrix", users.item_matrix())
    return _served(items, matrix, _precision(gate), gate, rank)


def train_next_week_of_pairs(users: LikingUsers, gate: Gate, last: ModelArrays) -> ModelArrays:
    state, learned = last.state, np.zeros(users.domain.n_items, dtype=bool)
    learned[last.serve["pair_items"]] = True
    scale, first, noisy = state["item_scale"], state["item_first"], state["item_weights"]
    noise_sd = math.sqrt(float(state["item_weights_variance"].mean()))
    popularity, n_users = popularity_of(noisy, 0.0), float(state["users"][0])
    items = ItemStatistics(n_users, noisy, noise_sd, learned, popularity, scale, first)
    users.scale(scale, first)
    matrix = gate.release("item matrix", users.item_matrix())
    part, precision, before = 1.0, _precision(gate), float(state["pairs_precision"])
    if before:
        known = np.full(len(matrix), 1 / before)
        part = Tracked(state["pairs"], known, no_evidence()).part(matrix, 1 / precision)
    total = part**2 * precision + before
    matrix = state["pairs"] + (matrix - part * state["pairs"]) * (part * precision / total)
    return _served(items, matrix, total, gate, len(last.serve["pair_items"]) - 1)


def _precision(gate: Gate) -> float:
    return gate.noise_sd("item matrix") ** -2.0 if gate.private else 1.0


def _served(items: ItemStatistics, matrix: Array, precision: float, gate: Gate, rank: int) -> ModelArrays:
    noise_sd = math.sqrt(0.5 / precision) if gate.private else 0.0  # off the diagonal
    parts = ItemMatrix.of(unpacked(matrix), noise_sd, rank)
    scale, along = items.scale[items.learned], items.first[items.learned]
    along = along / np.linalg.norm(along)
    strength = _ALONG_POPULARITY * max(float(parts.diagonal.sum()), 0.0)
    weights = parts.weights(along, strength) * scale[:, None] / scale
    serve = {
        "center": np.float64(0.0),
        "item_bias": 1e-6 * items.popularity,
        "item_factors": np.zeros((len(items.noisy), 0), np.float32),
        "history_weight": items.scale**2,
        "pair_items": np.flatnonzero(items.learned).astype(np.int32),
        "pair_weights": weights.astype(np.float32),
        "supported": items.learned.astype(np.uint8),
        "directions": np.int64(parts.certain),
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


@dataclass(frozen=True)
class ItemMatrix:
    """The parts of a released item x item matrix.

    Attributes
    ----------
    diagonal : ndarray of shape (n,)
    directions, strengths : ndarray of shape (n, k) and (k,)
        The strongest eigenvectors off the diagonal and their eigenvalues, descending.
    standing : int
        Number of them that exceed the noise.
    residual : ndarray of shape (n, n)
        The rest without all these, 0 on the diagonal.
    noise_sd : float
        Noise of an entry off the diagonal.
    certain : int
        Lower bound on the taste dimensions.
    """

    diagonal: Array
    directions: Array
    strengths: Array
    standing: int
    residual: Array
    noise_sd: float
    certain: int

    @classmethod
    def of(cls, matrix: Array, noise_sd: float, count: int) -> ItemMatrix:
        """Separate a noisy matrix into its parts, with at most ``count`` directions.

        An eigenvalue of noise alone is below ``2 noise_sd sqrt(n)``.
        """
        residual, order = matrix - np.diag(np.diag(matrix)), len(matrix)
        strengths, directions = eigh(residual, subset_by_index=[max(order - count, 0), order - 1])
        strengths, directions = strengths[::-1], directions[:, ::-1]
        standing = int((strengths > 2 * noise_sd * math.sqrt(len(matrix))).sum())
        certain = _certain(matrix, directions, noise_sd)
        diagonal = np.diag(matrix).copy()
        parts = cls(diagonal, directions, strengths, standing, residual, noise_sd, certain)
        residual -= parts.low_rank()
        np.fill_diagonal(residual, 0.0)
        return parts

    def low_rank(self) -> NDArray[np.float64]:
        """Return the directions that exceed the noise, without the strength that noise adds."""
        columns, edge = self.directions[:, : self.standing], 2 * self.noise_sd * math.sqrt(len(self.diagonal))
        return (columns * _clean(self.strengths[: self.standing], edge)) @ columns.T

    def weights(self, popularity: Array, strength: float) -> NDArray[np.float64]:
        """Return EASE's weights of the items, shape (n, n); column j holds those for item j.

        Parameters
        ----------
        popularity : ndarray of shape (n,)
            The direction that was projected out, at norm 1.
        strength : float
            Entry of the matrix along it.
        """
        sparse = np.maximum(np.abs(self.residual) - _THRESHOLD * self.noise_sd, 0.0)
        full = np.copysign(sparse, self.residual) + self.low_rank()
        full += strength * np.outer(popularity, popularity)
        np.fill_diagonal(full, np.maximum(self.diagonal, 0.0) + strength * popularity**2)
        ridge = _RIDGE * (float(np.diag(full).mean()) or 1.0)
        least = float(eigh(full, eigvals_only=True, subset_by_index=[0, 0])[0])
        full[np.diag_indices(len(full))] += ridge + max(-least, 0.0)
        return item_weights(np.asfortranarray(full))


def _clean(strengths: Array, edge: float) -> Array:
    return np.sqrt(np.maximum(strengths**2 - edge**2, 0.0))


def _certain(matrix: Array, directions: Array, noise_sd: float) -> int:
    """Return a lower bound on the eigenvalues beyond noise and chance, without the largest entries.

    Derivation: docs/proofs/private-eigenrec.md.
    """
    rest = np.where(np.abs(matrix) > _EXCEEDS * noise_sd, 0.0, matrix)
    np.fill_diagonal(rest, 0.0)
    basis, _ = np.linalg.qr(directions)
    edge = 2 * noise_sd * math.sqrt(len(rest)) + 2 * math.sqrt(max(float(np.trace(matrix)), 0.0) / len(rest))
    return int((np.linalg.eigvalsh(basis.T @ rest @ basis) > edge).sum())
