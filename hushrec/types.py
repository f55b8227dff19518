"""Types that all rooms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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
    beside : mapping of str to ndarray
        Arrays of another model of the same kind for serving.
    weight : float
        Weight of the other model, in [0, 1].
    """

    serve: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    lists: ModelArrays | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 0.0

    @classmethod
    def of(cls, arrays: ModelArrays | Mapping[str, Any]) -> ModelArrays:
        """A mapping becomes the arrays for serving."""
        return arrays if isinstance(arrays, ModelArrays) else cls(arrays)

    def __or__(self, served: Mapping[str, Any]) -> ModelArrays:
        """Replace arrays for serving."""
        return replace(self, serve={**self.serve, **served})

    def counting(self, weight: float) -> ModelArrays:
        """Add the weight of another model, which the next week of a season keeps."""
        return replace(self, state={**self.state, "beside_weight": np.float64(weight)}, weight=weight)
