"""Estimate taste dimensions from released sums of likes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import svd

from hushrec.kernels.packed import unpacked
from hushrec.training.posterior import posterior_means, ratio
from hushrec.types import Array

_PRECISION = float(np.finfo(np.float64).eps)
#: Candidates of a regression coefficient of one half of the likes on the other. Negative ones are as usual as
#: positive ones at first, so that noise alone has a mean of 0.
_OF_HALVES = np.linspace(-1.0, 1.0, 101)
#: Their reliabilities for twice as many likes as a half has (Spearman and Brown), with the sign.
_RELIABILITIES = 2 * _OF_HALVES / (1 + np.abs(_OF_HALVES))
#: A taste dimension counts as learned if its product of halves is this many times its standard error.
_LEARNED = 3.0


class Sums(NamedTuple):
    """A round's released sums, their noise, and the vectors that users' rows were multiplied with.

    ``probe`` and ``sums`` have shape (number of learned items, rank).
    """

    probe: Array
    sums: Array
    noise_sd: float

    @property
    def lengths(self) -> float:
        """Sum of the users' lengths of factors."""
        return float((self.probe * self.sums).sum())

    def clear(self) -> bool:
        return self.lengths > self.noise_sd * float(np.linalg.norm(self.probe))

    @staticmethod
    def of_all(rounds: list[Sums], n_users: float) -> Sums:
        """Combine all rounds into one with less noise, along the last probe (docs/guides/implicit.md).

        Let M be the sum of every user's row times itself. A round's sums are about M times its probe, over
        the users' mean length of factors. Least squares, each round by its precision, estimates M times those
        directions. They are then scaled, so entries have independent noise of one size, as in a round.
        """
        if not (rounds[-1].noise_sd and rounds[-1].clear()):
            return rounds[-1]
        clear = [sums for sums in rounds if sums.clear()]
        probes = np.hstack([past.probe * (n_users / past.lengths / past.noise_sd) for past in clear])
        span = np.linalg.qr(rounds[-1].probe)[0]
        along = probes.T @ span
        precision, axes = np.linalg.eigh(along.T @ along)
        root = np.sqrt(np.maximum(precision, _PRECISION * precision[-1]))
        sums = np.hstack([past.sums / past.noise_sd for past in clear]) @ (along @ (axes / root))
        probe = span @ (axes * root)
        length = math.sqrt(abs(float((probe * sums).sum())) / n_users)
        return Sums(probe, sums / length, 1 / length)

    def directions(self) -> tuple[Array, Array]:
        """Return the left singular vectors, in columns, and the singular values, the largest first."""
        left, values, _ = svd(self.sums, full_matrices=False, lapack_driver="gesvd")
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])])  # the same everywhere
        return left * signs, np.maximum(values, _PRECISION * (values[0] or 1.0))

    def shown(self) -> float:
        """Return the part of the largest squared singular value that exceeds the noise, 0 to 1."""
        edge = self.noise_sd * (math.sqrt(self.sums.shape[0]) + math.sqrt(self.sums.shape[1]))
        return max(1 - float(ratio(edge, float(np.linalg.norm(self.sums, 2)))) ** 2, 0.0)


class Halves(NamedTuple):
    """Released products of the two halves of every user's likes, along some directions.

    Attributes
    ----------
    products, squares : ndarray of shape (rank, rank)
        Sums over users of one half's factors times the other's, and of either times itself.
    noise_sd : float
    """

    products: Array
    squares: Array
    noise_sd: float

    @classmethod
    def of(cls, released: Array, noise_sd: float) -> Halves:
        """Read them from a release of :meth:`LikingUsers.halves`."""
        plus, minus = map(unpacked, np.split(released, 2))
        return cls(plus - minus, plus + minus, math.sqrt(2.0) * noise_sd)

    def taste(self, vectors: Array, values: Array, along: Array, n_users: float) -> Taste:
        """Return taste dimensions with their gains (docs/guides/implicit.md, "How far to trust a dimension").

        Parameters
        ----------
        vectors : ndarray of shape (number of learned items, number of dimensions)
        values : ndarray of shape (number of dimensions,)
            Their singular values in the sums.
        along : ndarray of shape (rank, number of dimensions)
            The dimensions in the basis of the products, of norm at most 1.
        n_users : float
        """
        product = np.einsum("jk,ji,ik->k", along, self.products, along)
        square = np.einsum("jk,ji,ik->k", along, self.squares, along)
        square = np.maximum(square, np.abs(product))
        self_part = np.minimum(n_users / (values.sum() * values), 1.0)  # of a user's row in the dimension
        product = product - self_part * (product + square)
        deviation = np.sqrt(self.noise_sd**2 + square**2 / n_users)
        misfit = ratio(product[:, None] - square[:, None] * _OF_HALVES, deviation[:, None])
        likelihood = np.vstack([-(misfit**2) / 2, np.zeros(len(_OF_HALVES))])  # and of one more: any
        learned = int((product > _LEARNED * deviation).sum())
        # posterior means vary less than tastes do; a ranking needs the full spread (Louis 1984)
        root = np.sign(_OF_HALVES) * np.sqrt(np.abs(_RELIABILITIES))
        gains = np.maximum(posterior_means(root if learned else _RELIABILITIES, likelihood)[0][:-1], 0.0)
        if not learned:  # the fitted prior of a few doubtful dimensions is no prior of many
            gains *= ratio(np.maximum(product, 0.0) ** 2, product**2 + deviation**2)
        order = np.argsort(-ratio(product, deviation), kind="stable")
        return Taste(vectors[:, order], gains[order], learned)


class Taste(NamedTuple):
    """Taste dimensions, the clearest first.

    Attributes
    ----------
    vectors : ndarray of shape (number of learned items, rank)
        Orthonormal.
    gains : ndarray of shape (rank,)
        Weight of a dimension in the scores, 0 to 1.
    learned : int
        Number of dimensions that exceed noise and chance.
    """

    vectors: Array
    gains: Array
    learned: int


class Measured(NamedTuple):
    """Released values that later weeks continue: sums, and products of halves in a basis."""

    sums: Sums
    basis: Array
    halves: Array
    halves_sd: float


_NONE = np.zeros((0, 0))
NOTHING = Taste(_NONE, np.zeros(0), 0)
UNMEASURED = Measured(Sums(_NONE, _NONE, 0.0), _NONE, np.zeros(0), 0.0)


def project_out(block: Array, direction: Array) -> Array:
    """Return columns without their part along a vector."""
    return block - np.outer(direction, direction @ block / (direction @ direction))
