"""A privileged value together with the most that one unit adds to it: made where it was clipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushrec.checks import RELATIONS, UNITS, check_choice, check_numbers
from hushrec.errors import InputError

NORMS = ("l2", "l1", "labels")
#: A large sum is kept as a multiple of 2^40 steps and a rest, to which the noise is added.
_LOW_BITS = 40


class Bound(NamedTuple):
    """The most that one unit moves a value, under either neighbouring relation.

    Attributes
    ----------
    add_remove, replace : float
        Greater than 0, from declared constants, enforced clips and released values. Infinite without a clip,
        which only an infinite budget allows.

    Examples
    --------
    >>> bound = hushrec.privacy.signed(1.0)              # contributions of norm 1, in any direction
    >>> bound.add_remove, bound.replace
    (1.0, 2.0)
    >>> bound.under("replace")
    2.0
    """

    add_remove: float
    replace: float

    def under(self, relation: str) -> float:
        """The relation's bound."""
        check_choice(relation=(relation, RELATIONS))
        return self.add_remove if relation == "add-remove" else self.replace

    def times(self, factor: float) -> Bound:
        """Bound the value times a factor > 0."""
        return Bound(self.add_remove * factor, self.replace * factor)


def signed(norm: float) -> Bound:
    """Bound contributions of at most that norm, in any direction.

    Examples
    --------
    >>> bound = hushrec.privacy.signed(1.0)
    >>> bound.add_remove, bound.replace
    (1.0, 2.0)
    """
    return Bound(norm, 2 * norm)


def positive(norm: float) -> Bound:
    """Bound contributions with no negative inner product: counts, positive semidefinite matrices.

    Examples
    --------
    >>> bound = hushrec.privacy.positive(1.0)              # two of them are at most sqrt(2) apart
    >>> bound.add_remove, round(bound.replace, 3)
    (1.0, 1.414)
    """
    return Bound(norm, math.sqrt(2.0) * norm)


def counted(most: float) -> Bound:
    """Bound a sum of one number a unit, from 0 to ``most``.

    Examples
    --------
    >>> bound = hushrec.privacy.counted(3)              # a user adds 0 to 3 to a count
    >>> bound.add_remove, bound.replace
    (3, 3)
    """
    return Bound(most, most)


def jointly(*bounds: Bound) -> Bound:
    """Bound several values released as one, all of which a unit may move.

    Examples
    --------
    >>> bound = hushrec.privacy.jointly(hushrec.privacy.signed(3.0), hushrec.privacy.signed(4.0))
    >>> bound.add_remove, bound.replace
    (5.0, 10.0)
    """
    return Bound(math.hypot(*(b.add_remove for b in bounds)), math.hypot(*(b.replace for b in bounds)))


class Bounded:
    """A value computed from private rows, with its bound: made by the function that clips it.

    A gate refuses it if ``bound`` times ``scale`` is not the planned sensitivity.

    Parameters
    ----------
    values : array_like of numbers
        Finite for any rows. No code checks this, since the result would leak.
    bound : Bound
        Bound of the norm of ``values * weight``.
    scale : float
        Public, > 0.
    weight : array_like, optional
        Public, > 0, broadcastable to the values: an entry's weight in the norm, by which its noise is
        divided. In a packed symmetric matrix sqrt(2) off the diagonal gives the Frobenius norm.
    step : array_like of float
        Each entry is a multiple of its step, a power of two, so sums are exact; 0 for inexact sums.
    norm : {"l2", "l1", "labels"}
        "labels" counts the binary labels of one unit at public places.

    Examples
    --------
    >>> clipped = np.clip([0.3, 2.0, -0.4], -1, 1)                # what each user adds, at most 1 in size
    >>> hushrec.Bounded([clipped.sum()], hushrec.privacy.signed(1.0))
    Bounded(<private>, Bound(add_remove=1.0, replace=2.0), scale=1, unit='user')
    """

    __slots__ = ("_high", "_values", "bound", "norm", "scale", "step", "unit", "weight")

    def __init__(
        self,
        values: npt.ArrayLike,
        bound: Bound,
        *,
        scale: float = 1.0,
        weight: npt.ArrayLike | None = None,
        step: npt.ArrayLike = 0.0,
        norm: str = "l2",
        unit: str = "user",
    ) -> None:
        if not isinstance(bound, Bound) or not all(most > 0 for most in bound):
            raise InputError("bound must be a Bound of numbers greater than 0; pass signed(clip), say.")
        self.bound = bound
        check_numbers(scale=(scale, float, "(0, inf)"))
        self.scale = float(scale)
        self.weight = None if weight is None else _valid_weight(weight)
        self.step = np.asarray(step, dtype=np.float64)
        check_choice(norm=(norm, NORMS), unit=(unit, UNITS))
        self.norm, self.unit = norm, unit
        self._values = numeric_array(values)
        self._high: np.ndarray | None = None
        shape = self._values.shape  # which is public
        try:
            np.broadcast_to(self.entry_scale, shape)
        except ValueError:
            what = f"weight of shape {np.shape(self.entry_scale)} must broadcast to a value of shape {shape}."
            raise InputError(what) from None

    @classmethod
    def of_steps(cls, steps: npt.NDArray[np.int64], **declared: Any) -> Bounded:
        """Return an exact sum of any size, from integers in units of its step.

        Float64 does not hold it from 2^53 steps on, so a multiple of 2^40 steps is added after the noise.
        """
        half = 1 << (_LOW_BITS - 1)
        part = np.array(steps)
        part += half  # in place: a large sum fills the memory
        part &= (1 << _LOW_BITS) - 1
        part -= half
        whole = cls(part * declared["step"], **declared)
        whole._high = np.subtract(steps, part, out=part) * whole.step
        return whole

    def _steps(self) -> npt.NDArray[np.int64]:
        """The value in units of its step, exactly."""
        steps = np.empty(self._values.shape, np.int64)
        np.divide(self._values, self.step, out=steps, casting="unsafe")  # without a large float64 array
        return steps if self._high is None else steps + (self._high / self.step).astype(np.int64)

    @property
    def largest_noise(self) -> np.ndarray:
        """Noise, in the unit of the values, below which the grid that it is rounded to divides 2^40 steps.

        Infinite for inexact sums.
        """
        return np.where(self.step > 0, self.step * 2.0 ** (_LOW_BITS + 24), math.inf)

    def _completed(self, noisy: np.ndarray) -> np.ndarray:
        """Add what :meth:`_take` leaves out, a multiple of the grid that the noise was rounded to."""
        return noisy if self._high is None else noisy + self._high

    def sensitivity(self, relation: str) -> float:
        """Bound times scale."""
        return self.bound.under(relation) * self.scale

    @property
    def declared(self) -> dict[str, Any]:
        """The public arguments: all but the values."""
        return {name: getattr(self, name) for name in ("bound", "scale", "weight", "step", "norm", "unit")}

    def times(self, factor: float) -> Bounded:
        """Return the same value, counted ``factor`` times in a joint release."""
        same = Bounded(self._take(), **self.declared | {"scale": self.scale * factor})
        same._high = self._high
        return same

    @property
    def entry_scale(self) -> np.ndarray | float:
        """Scale times weight: divides the planned noise of an entry."""
        return self.scale if self.weight is None else self.scale * self.weight

    def _take(self) -> np.ndarray:
        return self._values

    def __repr__(self) -> str:
        return f"Bounded(<private>, {self.bound}, scale={self.scale:g}, unit={self.unit!r})"

    def __reduce__(self) -> str:
        raise InputError("A Bounded is private and cannot be copied or stored; release it first.")


def together(parts: Sequence[Bounded], bound: Bound | None = None) -> Bounded:
    """Combine vectors of one unit into one release.

    ``bound`` is on all parts together. By default one user may reach all parts' bounds at once.

    Examples
    --------
    >>> sums = hushrec.Bounded([0.5, -0.5], hushrec.privacy.signed(1.0))
    >>> count = hushrec.Bounded([7.0], hushrec.privacy.counted(1.0))
    >>> both = hushrec.privacy.together([sums, count])                    # one release instead of two
    >>> round(both.sensitivity("add-remove"), 3)
    1.414
    """
    if len({part.unit for part in parts}) != 1:
        raise InputError("Parts of one release need one unit, all user or all rating.")
    values = [part._take() for part in parts]
    scales = [
        np.broadcast_to(part.entry_scale, value.shape) for part, value in zip(parts, values, strict=True)
    ]
    steps = [np.broadcast_to(part.step, value.shape) for part, value in zip(parts, values, strict=True)]
    if bound is None:
        bound = jointly(*(part.bound.times(part.scale) for part in parts))
    whole = Bounded(
        np.concatenate(values),
        bound,
        weight=np.concatenate(scales),
        step=np.concatenate(steps),
        unit=parts[0].unit,
    )
    if any(part._high is not None for part in parts):
        highs = [
            np.zeros(value.shape) if part._high is None else part._high
            for part, value in zip(parts, values, strict=True)
        ]
        whole._high = np.concatenate(highs)
    return whole


def numeric_array(value: npt.ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"value must be an array of numbers, not of type {array.dtype}.")
    return array


def _valid_weight(weight: npt.ArrayLike) -> np.ndarray:
    array = np.array(numeric_array(weight), dtype=np.float64)
    if not np.all((array > 0) & (array < np.inf)):
        raise InputError("weight must be greater than 0 and finite everywhere.")
    array.flags.writeable = False
    return array
