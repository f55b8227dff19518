"""Reconstruction of the ratings behind one masked upload, as the server can do it.

On the orthogonal complement of the public key's columns the mask vanishes. This leaves ``n_ratings -
mask_rank`` exact linear equations for ratings on a known grid. A reduced lattice basis (LLL) gives the one
solution, for any noise of the mask. A window of at most 40 ratings gives the coefficients, and these all
other ratings.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from hushrec.errors import InputError
from hushrec.types import Array

#: Ratings that the lattice is built on, unless the mask needs more.
WINDOW = 40
#: Least ratings in a window as a multiple of the mask's rank: fewer equations leave the lattice no gap.
_MARGIN = 1.5
#: Weight of the equations in the lattice: the least error outweighs all ratings.
_PRECISION = 1 << 36
#: Integers up to here are exact in a double: ratings are counted in steps.
_LARGEST = 2.0**53
#: A solution must meet every equation to this part of a rating step.
_AGREEMENT = 1e-5


@dataclass(frozen=True)
class Reconstruction:
    """The ratings that were computed from one upload.

    Attributes
    ----------
    ratings : ndarray of shape (n_ratings,) or None
    exact_combinations : int
        Linear combinations of the ratings that the upload gives exactly, even without single ratings.
    n_ratings : int
    reason : str
        Why ``ratings`` is None, else empty.
    """

    ratings: Array | None
    exact_combinations: int
    n_ratings: int
    reason: str = ""

    @property
    def recovered(self) -> int:
        return 0 if self.ratings is None else len(self.ratings)


def reconstruct(
    upload: Array, public_rows: Array, *, rating_range: tuple[float, float], step: float = 1.0
) -> Reconstruction:
    """Compute the ratings behind one masked upload.

    Parameters
    ----------
    upload : ndarray of shape (n_ratings,)
        Masked values, float64.
    public_rows : ndarray of shape (n_ratings, mask_rank)
        Rows of the public key at the uploaded items; of two rounds side by side.
    rating_range : (float, float)
    step : float
        Ratings are low, low + step, ... up to high; 0.5 for half stars.

    Returns
    -------
    Reconstruction
        Its ratings meet every exact equation, so they are the true ones but for a coincidence.

    Examples
    --------
    >>> from hushrec.papers.masked.masking import draw_coefficients, masked, public_key
    >>> from hushrec.papers.masked.reconstruction import reconstruct
    >>> ratings, items = np.arange(30) % 5 + 1.0, np.arange(30)
    >>> key = public_key(200, mask_rank=2, seed=0)
    >>> upload = masked(ratings, items, [key], [draw_coefficients(2, noise_sd=240.0)])
    >>> found = reconstruct(upload, key[items], rating_range=(1, 5))      # from the server's view
    >>> bool((found.ratings == ratings).all())
    True
    """
    upload = np.asarray(upload, dtype=np.float64)
    n_ratings, mask_rank = public_rows.shape
    low, high = rating_range
    if upload.shape != (n_ratings,) or not step > 0 or not 0 < (high - low) / step < _LARGEST:
        raise InputError(
            "Pass one masked value a public row, a finite rating_range=(low, high) and step > 0."
        )
    sizes = [float(np.abs(numbers).max(initial=0)) for numbers in (upload, public_rows)]
    if max(sizes[0] / step, sizes[1]) >= _LARGEST:
        raise InputError("The record's numbers are too large for ratings in such steps; pass another step.")
    combinations = max(0, n_ratings - mask_rank)
    if combinations == 0:
        return Reconstruction(None, 0, n_ratings, f"at most {mask_rank} ratings were uploaded")
    if find_spec("flint") is None:
        reason = "install python-flint (pip install 'hushrec[audit]') for the lattice step"
        return Reconstruction(None, combinations, n_ratings, reason)
    middle = round((high - low) / step / 2)
    scaled = (upload - low) / step - middle  # the ratings are now integers around zero
    window = min(n_ratings, max(WINDOW, int(_MARGIN * mask_rank)))
    part = slice(0, window)
    solution = _solve(*_equations(scaled[part], public_rows[part]), bound=middle + 1)
    if solution is not None:
        coefficients = np.linalg.lstsq(public_rows[part], scaled[part] - solution, rcond=None)[0]
        every = np.rint(scaled - public_rows @ coefficients)
        equations, targets = _equations(scaled, public_rows)
        ratings = low + step * (every + middle)
        if (
            np.abs(equations @ every - targets).max() < _AGREEMENT
            and ((ratings >= low) & (ratings <= high + step / 2)).all()
        ):
            return Reconstruction(ratings, combinations, n_ratings)
    return Reconstruction(None, combinations, n_ratings, "no ratings on this grid meet the equations")


def _equations(scaled: Array, public_rows: Array) -> tuple[Array, Array]:
    """Return orthonormal equations of the ratings that are free of the mask."""
    left, _, _ = np.linalg.svd(public_rows)
    equations = left[:, public_rows.shape[1] :].T
    return equations, equations @ scaled


def _solve(equations: Array, targets: Array, bound: int) -> Array | None:
    """Find the integer vector within the bound by LLL on Kannan's embedding."""
    from flint import fmpz_mat

    count, size = equations.shape
    weighted = np.rint(_PRECISION * np.vstack([equations.T, -targets])).astype(object)
    left = np.eye(size + 1, dtype=object)
    left[size, size] = bound
    reduced = fmpz_mat([[int(entry) for entry in row] for row in np.hstack([left, weighted])]).lll()
    for row in np.array(reduced.tolist(), dtype=object):
        if abs(int(row[size])) == bound:
            candidate = np.array([int(entry) for entry in row[:size]], dtype=np.float64)
            candidate *= np.sign(int(row[size]))
            if np.abs(candidate).max() <= bound and (
                np.abs(equations @ candidate - targets).max() < _AGREEMENT
            ):
                return candidate
    return None
