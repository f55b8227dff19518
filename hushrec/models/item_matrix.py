"""Reads the released item x item matrix of likes: a few directions of taste, or pairs of items.

Functions of released values alone. The matrix is the sum over users of the outer products of their rows, at
norm 1 and without popularity (:mod:`hushrec.models.private_eigenrec`), with noise of a known size. Its
entries off the diagonal are of low rank, from tastes, plus sparse, from items that go together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import ndtr

from hushrec.models.ease import item_weights
from hushrec.types import Array

# Chosen with the shares of the item matrix, see private_eigenrec.py.

#: An entry stands out where it is more than so many times its noise.
_STANDS_OUT = 4.0
#: Entries that stand out, beyond those of noise and this many deviations of their number, make pairs.
_DEVIATIONS, _LEAST_PAIRS = 3.0, 1.0
#: Pairs are built on where the squares of their entries are this part, at least, of those of directions.
#: Validation users: Yahoo! R3 has .11 to .8 (pairs bring Recall .02 to .07), MovieLens-1M .02 (cost .01),
#: generated likes with companions .2 and more (pairs bring .01 to .18), those without at most .04.
_PAIRS_PART = 0.05
#: What remains of an entry: what is above so many times its noise.
_THRESHOLD = 2.5
#: Ridge, as a part of the mean of the diagonal.
_RIDGE = 0.3


@dataclass(frozen=True)
class ItemMatrix:
    """A released item x item matrix in its parts.

    Attributes
    ----------
    diagonal : ndarray of shape (n,)
    directions, strengths : ndarray of shape (n, k) and (k,)
        The strongest eigenvectors of the rest and their eigenvalues, descending.
    standing : int
        How many of them stand out of the noise.
    residual : ndarray of shape (n, n)
        The rest without those that stand out, 0 on the diagonal.
    noise_sd : float
        Of an entry off the diagonal.
    certain : int
        Directions at least that are taste: beyond noise, chance among users, and single pairs of items.
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
        """Take a noisy matrix apart, with at most ``count`` directions.

        An eigenvalue of noise alone is below ``2 noise_sd sqrt(n)``.
        """
        residual, order = matrix - np.diag(np.diag(matrix)), len(matrix)
        strengths, directions = eigh(residual, subset_by_index=[max(order - count, 0), order - 1])
        strengths, directions = strengths[::-1], directions[:, ::-1]
        standing = int((strengths > 2 * noise_sd * math.sqrt(len(matrix))).sum())
        certain = _certain(matrix, residual, directions, strengths, noise_sd)
        found = cls(np.diag(matrix).copy(), directions, strengths, standing, residual, noise_sd, certain)
        residual -= found.low_rank()
        np.fill_diagonal(residual, 0.0)
        return found

    def low_rank(self) -> NDArray[np.float64]:
        """The directions that stand out, each as strong as it is without what noise adds."""
        columns = self.directions[:, : self.standing]
        return (columns * self._own_strengths()) @ columns.T

    def start(self) -> NDArray[np.float64]:
        """The directions, the strong ones shorter, so that they do not use up the users' norm."""
        relative = self.strengths / max(float(self.strengths[0]), 1e-300)
        return self.directions / np.sqrt(np.clip(relative, 1e-3, 1.0))

    def has_pairs(self) -> bool:
        """Tell whether pairs of items explain enough of the matrix, beside directions, to build on."""
        return self.pairs_part() > _PAIRS_PART

    def pairs_part(self) -> float:
        """Squares of entries that stand out over those of directions; 0 where chance may have made them."""
        entries = self.residual[np.tril_indices(len(self.residual), -1)]
        large = entries[entries > _STANDS_OUT * self.noise_sd]
        by_chance = len(entries) * float(ndtr(-_STANDS_OUT))
        enough = len(large) > by_chance + _DEVIATIONS * math.sqrt(by_chance) + _LEAST_PAIRS
        # of the squares of what stands out, the part that noise has
        density = math.exp(-(_STANDS_OUT**2) / 2) / math.sqrt(2 * math.pi)
        squares = len(entries) * self.noise_sd**2 * (float(ndtr(-_STANDS_OUT)) + _STANDS_OUT * density)
        sparse = float((large**2).sum()) - squares
        return enough * sparse / max(float((self._own_strengths() ** 2).sum()), 1e-300)

    def weights(self, popularity: Array, strength: float) -> NDArray[np.float64]:
        """EASE's weights of the items, from what of the matrix is no noise.

        Parameters
        ----------
        popularity : ndarray of shape (n,)
            The direction that was taken off, at norm 1.
        strength : float
            What the matrix has along it.

        Returns
        -------
        ndarray of shape (n, n)
            Column j holds the weights of the items for item j.
        """
        sparse = np.maximum(np.abs(self.residual) - _THRESHOLD * self.noise_sd, 0.0)
        full = np.copysign(sparse, self.residual) + self.low_rank()
        full += strength * np.outer(popularity, popularity)
        np.fill_diagonal(full, np.maximum(self.diagonal, 0.0) + strength * popularity**2)
        ridge = max(_RIDGE * float(np.diag(full).mean()), 1e-9)
        least = float(eigh(full, eigvals_only=True, subset_by_index=[0, 0])[0])
        full[np.diag_indices(len(full))] += ridge + max(-least, 0.0)
        return item_weights(np.asfortranarray(full))

    def _own_strengths(self) -> Array:
        """Eigenvalues that stand out, less what noise adds to them."""
        edge = 2 * self.noise_sd * math.sqrt(len(self.diagonal))
        return np.sqrt(np.maximum(self.strengths[: self.standing] ** 2 - edge**2, 0.0))


def _certain(matrix: Array, rest: Array, directions: Array, strengths: Array, noise_sd: float) -> int:
    """Eigenvalues, at least, beyond what noise and chance show, of the rest without its largest entries.

    Rows of norm 1 without a direction of their own have eigenvalues within ``2 sqrt(trace / n)`` of their
    mean, which off the diagonal is 0; and a matrix has as many eigenvalues above a bound as any of its
    compressions (docs/proofs/private-eigenrec.md).
    """
    pairs = np.where(np.abs(rest) > _STANDS_OUT * noise_sd, rest, 0.0)
    compressed = np.diag(strengths) - directions.T @ (pairs @ directions)
    edge = 2 * noise_sd * math.sqrt(len(rest)) + 2 * math.sqrt(max(float(np.trace(matrix)), 0.0) / len(rest))
    return int((np.linalg.eigvalsh((compressed + compressed.T) / 2) > edge).sum())
