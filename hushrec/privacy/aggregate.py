"""A privileged sum together with the most that one unit can change it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hushrec.errors import InputError
from hushrec.privacy._validate import RELATIONS, UNITS, choice, positive

NORMS = ("l2", "l1", "labels")


class Aggregate:
    """A value computed from private rows, on its way to the gate. It has no public accessor.

    Parameters
    ----------
    value : array_like of numbers, or an iterator of such arrays
        The privileged value; an iterator yields it in blocks along axis 0 and is used up by one release.
        The entries must be finite whatever the rows hold: nothing checks it, since the answer would leak.
    sensitivity : float
        Bound, in `norm`, on the change of the whole value (all blocks together) between two neighbouring
        data sets. From declared constants and enforced clips only.
    unit : {"user", "rating"}
    relation : {"add-remove", "replace"}
        The neighbouring relation that `sensitivity` is for.
    norm : {"l2", "l1", "labels"}
        "labels" counts the binary labels of one unit; the labels are bool or unsigned (0, 1), or signed or
        floating (-1, +1), and their places are public, hence `relation` must be "replace".
    scale : array_like, optional
        Public, greater than 0, broadcastable to the value (or to each of its blocks). The bound then holds
        for ``value * scale``, and the noise added to an entry is divided by its scale. The value itself is
        never multiplied. (Packed lower triangle of a symmetric matrix: scale 1 on the diagonal and sqrt(2)
        off it make the norm the Frobenius norm and the noise that of a symmetrised full matrix.)
    """

    __slots__ = ("_taken", "_value", "norm", "relation", "scale", "sensitivity", "streamed", "unit")

    def __init__(
        self,
        value: npt.ArrayLike | Iterator[npt.ArrayLike],
        *,
        sensitivity: float,
        unit: str,
        relation: str,
        norm: str = "l2",
        scale: npt.ArrayLike | None = None,
    ) -> None:
        self.sensitivity = positive(
            "sensitivity",
            sensitivity,
            "pass the bound on one unit's change of the value, from declared constants",
        )
        self.unit = choice("unit", unit, UNITS)
        self.relation = choice("relation", relation, RELATIONS)
        self.norm = choice("norm", norm, NORMS)
        self.scale = _valid_scale(scale)
        if norm == "labels" and (relation != "replace" or scale is not None):
            raise InputError(
                'Labels have public places: pass relation="replace" and no scale with norm="labels".'
            )
        self.streamed = isinstance(value, Iterator)
        self._taken = False
        self._value: Any = value
        if not isinstance(value, Iterator):
            self._value = numeric_array(value)
            check_scale_fits(self.scale, self._value)

    def _take(self) -> Any:
        """Hand the value to the gate; a stream only once."""
        if self.streamed and self._taken:
            raise InputError("A streamed aggregate can be released once; make it again from the rows.")
        self._taken = True
        return self._value

    def __repr__(self) -> str:
        return (
            f"Aggregate(<private>, sensitivity={self.sensitivity:g}, unit={self.unit!r}, "
            f"relation={self.relation!r}, norm={self.norm!r})"
        )

    def __reduce__(self) -> str:
        raise InputError("An Aggregate is private and cannot be copied or stored; release it first.")


def numeric_array(value: npt.ArrayLike) -> np.ndarray:
    """Return `value` as an array of bools, integers or floats; its type is the program's, not the data's."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputError(f"value must be an array of numbers, not of type {array.dtype}.")
    return array


def check_scale_fits(scale: np.ndarray | None, value: np.ndarray) -> None:
    """Refuse a scale that does not broadcast to `value`; shapes are public."""
    if scale is None:
        return
    try:
        fits = np.broadcast_shapes(scale.shape, value.shape) == value.shape
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"scale of shape {scale.shape} must broadcast to a value of shape {value.shape}.")


def _valid_scale(scale: npt.ArrayLike | None) -> np.ndarray | None:
    if scale is None:
        return None
    array = np.array(numeric_array(scale), dtype=np.float64)
    if not np.all((array > 0) & (array < np.inf)):
        raise InputError("scale must be greater than 0 and finite everywhere.")
    array.flags.writeable = False
    return array
