"""Reads released sums of likes: directions of taste, and how much of each is taken for real.

Functions of released values alone, shared by the first training of :mod:`hushrec.models.private_eigenrec`
and the later weeks of a season.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import svd

from hushrec.types import Array

# What is no limit of floating point was chosen with the constants of private_eigenrec.py.

#: Singular values are not taken for smaller than this part of the largest.
_SMALLEST_VALUE = 1e-3
#: Steps in the largest entry of the popularity vector, as a power of two.
_POPULARITY_BITS = 5
#: With so many certain directions, what chance could show of a further one is half taken for taste.
_MANY = 5.0
#: Dimensions a row are not taken for fewer than this: rows are not quite as the theory has them.
_LEAST_RATIO = 0.1
#: A direction stands out where so much of it is beyond doubt.
STANDS_OUT = 0.5
#: How far less noise is looked at; by how much more than would do is told, and where nothing stands out yet,
#: so that the strongest is in part the luckiest: chosen on real tables (measured once, at commit 1480e89).
_MOST_SHARPER, _CAUTION, _CAUTION_AT_FIRST = 10.0, 1.25, 2.0
#: Learned likes a user up to which no direction counts, and from which all count in full.
_FEWEST = 2.0, 6.0
#: A round counts beside others where its sum of lengths is so many times its noise: below, it tells nothing.
_CLEAR = 3.0
#: Long histories are flatter than popularity: exp(-this) of them leave out an item of largest weight. The
#: power of the odds of a squared cosine with the difference (.7 to .9 on generated likes without taste, below
#: .3 where users of MovieLens-100K have few directions), and what is added to what is beyond doubt.
_LONG, _FLAT_POWER, _MOST_NOISE = 3.0, 4, 0.03
#: Released item weights are not taken for smaller than this, nor than their noise.
SMALLEST_WEIGHT = 1e-2


class Sums(NamedTuple):
    """A round's released sums, with their noise and the vectors that users' rows were multiplied with.

    Attributes
    ----------
    probe, sums : ndarray of shape (number of learned items, rank)
    noise_sd : float
    """

    probe: Array
    sums: Array
    noise_sd: float

    @property
    def lengths(self) -> float:
        """Sum of the users' lengths of factors."""
        return float((self.probe * self.sums).sum())

    def clear(self) -> bool:
        """True where it stands out of its noise."""
        return self.lengths > _CLEAR * self.noise_sd * float(np.linalg.norm(self.probe))

    @staticmethod
    def of_all(rounds: list[Sums], n_users: float) -> Sums:
        """All rounds as one with less noise, along the directions of the last one's probe
        (docs/guides/implicit.md).

        With M the sum of every user's row times itself, the sums of a round are about M times its probe, over
        the users' mean length of factors. Least squares, each round by its precision, so give M times those
        directions. They are then scaled so that entries have independent noise of one size, as in a round.
        """
        if not (rounds[-1].noise_sd and rounds[-1].clear()):
            return rounds[-1]
        clear = [each for each in rounds if each.clear()]
        probes = np.hstack([each.probe * (n_users / each.lengths / each.noise_sd) for each in clear])
        span = np.linalg.qr(rounds[-1].probe)[0]
        along = probes.T @ span
        precision, axes = np.linalg.eigh(along.T @ along)
        root = np.sqrt(np.maximum(precision, 1e-12 * precision[-1]))
        sums = np.hstack([each.sums / each.noise_sd for each in clear]) @ (along @ (axes / root))
        probe = span @ (axes * root)
        length = math.sqrt(max(float((probe * sums).sum()), 1e-9) / n_users)
        return Sums(probe, sums / length, 1 / length)


class Taste(NamedTuple):
    """Directions of taste, and what of each is taken for real.

    Attributes
    ----------
    vectors : ndarray of shape (number of learned items, rank)
        Orthonormal, in the order of `certain`.
    values : ndarray of shape (rank,)
        Their singular values.
    gains, certain : ndarrays of shape (rank,)
        From 0 to 1: what a direction counts in the scores, and what of it is beyond doubt.
    flat : float
        What beyond doubt is a direction that tells long histories from short ones, and no taste; 0 to rank.
    measured : Sums
        What it was read off.
    sharper : float
        With how many times less noise, or so many times as many users, one more direction would stand out; 0
        where none shows.
    """

    vectors: Array
    values: Array
    gains: Array
    certain: Array
    flat: float
    measured: Sums
    sharper: float = 0.0


class Known(NamedTuple):
    """The items as they are known before the rounds: released weights and what follows from them."""

    n_users: float
    noisy: Array
    noise_sd: float
    learned: NDArray[np.bool_]
    popularity: Array
    scale: Array
    first: Array

    @property
    def told(self) -> float:
        """Part of taste that so few likes a user can tell, 0 to 1."""
        likes = (self.noisy[self.learned].sum() / self.n_users) ** 2  # a user, about
        return float(np.rint(100 * np.clip((likes - _FEWEST[0]) / (_FEWEST[1] - _FEWEST[0]), 0, 1)) / 100)

    def taste(self, measured: Sums) -> Taste:
        """Return the taste in the sums of a round, given the vectors they were taken with
        (docs/guides/implicit.md).

        A direction is held against four things that are no taste: the noise; what items owe to themselves,
        as a user's row meets itself; what so many users would show by chance; and that long histories are
        flatter than short ones.
        """
        probe, sums, noise_sd = measured
        (height, rank), n_users = sums.shape, self.n_users
        left, values, right = svd(sums, full_matrices=False, lapack_driver="gesvd")
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(rank)])  # any, but the same everywhere
        left, right = left * signs, right * signs[:, None]
        values = np.maximum(values, max(_SMALLEST_VALUE * values[0], 1e-100))
        spread = (self.popularity * self.scale**2)[self.learned]
        lengths = max(float((probe * sums).sum()), 1e-9)  # sum of the users' norms of factors
        own = np.einsum("jk,j,jk->k", left, spread / spread.sum(), probe @ right.T) * n_users**2 / lengths
        own = np.maximum(own, 1e-9 * values)
        ratio = np.einsum("jk,jk->k", left, probe @ right.T) * n_users / lengths / own  # users a dimension
        ratio = np.clip(ratio, _LEAST_RATIO, height)
        above = np.maximum(1 - height * (noise_sd / values) ** 2, 0.0)
        clear = np.maximum(1 - ((math.sqrt(height) + math.sqrt(rank)) * noise_sd / values) ** 2, 0.0)
        taste = beyond_chance(values * clear / own, ratio)
        certain = clear * taste
        flatness = self.flatness(left, certain)
        flat, certain = float(certain @ flatness), certain * (1 - flatness)
        sharper = 0.0
        if noise_sd and measured.clear():
            sharper = _until_one_more(clear, values / own, ratio, 1 - flatness)
        # what is mostly chance is worth less than its part, unless there is more that is certain
        trust = (certain * taste).sum() ** 2
        trust, rich = trust / (1 + trust), trust / (_MANY**2 + trust)
        lenient = above * beyond_chance(values / own, (1 - rich) * ratio)
        gains = trust * lenient * (1 - flatness) + (1 - trust) * certain * taste
        gains *= self.told
        order = np.argsort(-certain, kind="stable")
        return Taste(left[:, order], values[order], gains[order], certain[order], flat, measured, sharper)

    def flatness(self, directions: Array, certain: Array) -> Array:
        """Return how surely each direction is what tells long histories from short ones, 0 to 1.

        Whoever likes many items, and goes by popularity alone, likes most of the popular ones and more of the
        others: a row of 1 - exp(-c p), less its part along p, for items of popularity p. Where there is taste
        beside, long histories are of other tastes, too, and such a direction counts.

        Parameters
        ----------
        directions : ndarray of shape (number of learned items, rank)
            Of norm 1, at right angles to popularity.
        certain : ndarray of shape (rank,)
            What of each is beyond doubt; only so much of it can lie along anything.
        """
        scale, first = self.scale[self.learned], self.first[self.learned]
        row = -np.expm1(-_LONG * self.popularity[self.learned]) * scale
        row -= first * (first @ row) / (first @ first)
        cosine = (row @ directions) ** 2 / np.maximum(float(row @ row) * (certain + _MOST_NOISE), 1e-300)
        cosine = np.minimum(cosine, 1.0)
        along = cosine**_FLAT_POWER / (cosine**_FLAT_POWER + (1 - cosine) ** _FLAT_POWER)
        return along / (1 + float(certain @ (1 - along)) ** 2)


def _until_one_more(clear: Array, size: Array, ratio: Array, share: Array) -> float:
    """Return how many times less noise lets one more direction stand out, by what was measured; 0 for none.

    Parameters
    ----------
    clear, size, ratio : ndarray of shape (rank,)
        What of each direction is above the noise, and the arguments of `beyond_chance` without it.
    share : ndarray of shape (rank,)
        What of each is no flatness of long histories.
    """
    times = np.append(1.0, np.geomspace(1.1, _MOST_SHARPER, 50))
    above = np.where(clear > 0, 1 - (1 - clear) / times[:, None] ** 2, 0.0)
    standing = (above * beyond_chance(size * above, ratio) * share > STANDS_OUT).sum(axis=1)
    enough = np.flatnonzero(standing > standing[0])
    caution = _CAUTION if standing[0] else _CAUTION_AT_FIRST
    return float(caution * times[enough[0]]) if len(enough) else 0.0


_NONE = np.zeros((0, 0))
NOTHING = Taste(_NONE, np.zeros(0), np.zeros(0), np.zeros(0), 0.0, Sums(_NONE, _NONE, 0.0))


def beyond_chance(size: Array, ratio: Array) -> Array:
    """Part of an eigenvector's share that is no chance, 0 to 1, from its eigenvalue in units of the noise.

    Of a covariance matrix that is the identity but for some spikes, from a sample of 1 / ``ratio`` rows a
    dimension: the square of the cosine between the sample's vector and the true one (Donoho, Gavish and
    Johnstone 2018, table 2), times the spike's share of the true eigenvalue. 0 up to the edge of what there
    is without spikes.
    """
    shifted = size + 1 - ratio
    spike = np.maximum((shifted + np.sqrt(np.maximum(shifted**2 - 4 * size, 0.0))) / 2, 1 + 1e-9)
    cosine = np.maximum(1 - ratio / (spike - 1) ** 2, 0.0) / (1 + ratio / (spike - 1))
    return np.where(size > (1 + np.sqrt(ratio)) ** 2, cosine * (1 - 1 / spike), 0.0)


def relative_weights(noisy: Array, noise_sd: float) -> Array:
    """Item weights over the largest, none smaller than its noise."""
    weights = np.maximum(noisy, max(noise_sd, SMALLEST_WEIGHT))
    return weights / weights.max()


def grid(first: Array) -> float:
    """The step, a power of two, of which a popularity vector's entries are made multiples."""
    return 2.0 ** (math.ceil(math.log2(first.max())) - _POPULARITY_BITS)


def apart(block: Array, direction: Array) -> Array:
    """Columns less their part along a vector."""
    return block - np.outer(direction, direction @ block / (direction @ direction))
