"""Changes of the code that a study or the ablation needs, and that are no options of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.packed import unpacked
from hushrec.kernels.sweeps import SweepSettings, gramian, with_constant
from hushrec.models.private_als import server, settings, train
from hushrec.papers.dpals import dpals
from hushrec.training.users import FittedUsers, norms

Array = NDArray[Any]


def no_projection() -> AbstractContextManager[Any]:
    """DPALS without the projection to the positive semidefinite cone (line 11)."""

    def solved(
        blocks: Iterable[tuple[Array, Array]],
        settings: SweepSettings,
        rank: int,
        unobserved: Array | None = None,
    ) -> Array:
        ridge = np.diag(settings.ridge(rank, np.float64))
        rows = [
            np.linalg.solve(unpacked(gram) + ridge, rhs)
            for block in blocks
            for gram, rhs in zip(*block, strict=True)
        ]
        return with_constant(np.array(rows), rank)

    stack = ExitStack()
    stack.enter_context(mock.patch.object(dpals, "project_psd", lambda packed: packed))
    stack.enter_context(mock.patch.object(dpals, "solve_statistics", solved))
    return stack


def _rating_clip(self: FittedUsers, items: Array, user_norm: float, clip: float) -> tuple[Array, Array]:
    """Clip every residual instead of a user's whole contribution.

    With weights whose squares add up to 1 and users within their norm, residuals clipped to
    ``clip / user_norm`` keep the contribution within the bound.
    """
    matrix, own, model = self._rows.matrix, BiasedFactors(self._fitted), BiasedFactors(items)
    factors = own.factors.astype(np.float64)
    factors = factors if factors.shape[1] else np.ones((len(factors), 1))  # a constant stands for them
    lengths = norms(factors)
    if math.isfinite(user_norm):
        factors = factors * np.minimum(1.0, user_norm / np.maximum(lengths, 1e-300))[:, None]
    cells = np.repeat(np.arange(self._rows.n_users), np.diff(matrix.indptr))
    fitted = np.einsum("ij,ij->i", own.factors[cells], model.factors[matrix.indices])
    residual = matrix.data - self._center - own.biases[cells] - model.biases[matrix.indices] - fitted
    bound = clip / (user_norm if math.isfinite(user_norm) else 1.0)
    weight = self._user_weight[cells] * self._item_weight[matrix.indices]  # type: ignore[index]
    values = weight * np.clip(residual, -bound, bound)
    sums = np.column_stack(
        [
            np.bincount(matrix.indices, values * factors[cells, k], minlength=len(items))
            for k in range(factors.shape[1])
        ]
    )
    return sums, gramian(factors * (self._user_weight > 0)[:, None])


def _replaced(name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: mock.patch.object(train, name, value)


def _plain_gain(slope: Array, variance: Array | float, noise_variance: Array) -> Array:
    """Least squares: divide by the slope."""
    return np.asarray(1 / np.maximum(slope, 1e-300))


def _no_gain() -> AbstractContextManager[Any]:
    """Neither for biases nor for factors."""
    stack = ExitStack()
    for module in (train, server):
        stack.enter_context(mock.patch.object(module, "wiener_gain", _plain_gain))
    return stack


def _no_popularity(*given: Any) -> tuple[Array, Array]:
    """Items are drawn to their mean alone."""
    released, slope, design, variance, noise_variance, precision = given
    return _COMMON(released, slope, design * [1, 0], variance, noise_variance, precision)


def _declared_units(model: Any, users: Any, gate: Any) -> Any:
    """Units of half the range instead of the released spreads: those that MovieLens has."""
    level = _LEVEL(model, users, gate)
    spread = math.sqrt(train._USUAL_SPREAD[0]) * users.domain.half_width
    return level._replace(spread=spread, bias_regularization=8.0)


def _certain(self: FittedUsers, items: Array, weights: Array, regularization: float) -> Array:
    """Users who know their factors."""
    return np.zeros(self._rows.n_users)


def _first_residual(released: Array, last: float, *others: Any) -> float:
    """The residual variance as it usually is, whatever is released."""
    return last


_COMMON = train.regression
_LEVEL = train._level

PATCHES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no projection": no_projection,
    "rating clip": lambda: mock.patch.object(FittedUsers, "_residual_sums", _rating_clip),
    "no Wiener gain": _no_gain,
    "no popularity": _replaced("regression", _no_popularity),
    "bias spread declared": _replaced("likely_scale", lambda *given: 1.0),
    "residual variance declared": _replaced("residual_variance", _first_residual),
    "units declared": lambda: mock.patch.object(train, "_level", _declared_units),
    "users certain": lambda: mock.patch.object(FittedUsers, "_uncertainty", _certain),
    "bias clip does not fall": lambda: mock.patch.object(settings, "_BIAS_CLIP_DECAY", 1.0),
}
