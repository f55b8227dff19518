"""Types that all rooms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]


class Part(NamedTuple):
    """A term of a list's score.

    Attributes
    ----------
    name : str
    weight : float
        In units of the part's typical best score.
    columns : int
        Its number of columns among the item factors.
    """

    name: str
    weight: float
    columns: int = 0


@dataclass(frozen=True)
class ModelArrays:
    """Named arrays in the sections of a model file.

    Attributes
    ----------
    serve : mapping of str to ndarray
        Arrays that users are served with.
    state : mapping of str to ndarray
        Arrays that the next week of a season starts from.
    lists : ModelArrays or None
        Those of the model that recommends, where this one only predicts.
    parts : tuple of Part
        The parts of the lists, with their weights; none where only popularity and taste count.
    """

    serve: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    lists: ModelArrays | None = None
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, arrays: ModelArrays | Mapping[str, Any]) -> ModelArrays:
        """A mapping becomes the arrays for serving."""
        return arrays if isinstance(arrays, ModelArrays) else cls(arrays)

    def __or__(self, served: Mapping[str, Any]) -> ModelArrays:
        """Replace arrays for serving."""
        return replace(self, serve={**self.serve, **served})
