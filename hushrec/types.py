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
    """Named arrays in the sections of a model file, as a training makes them or a reader expects them.

    Attributes
    ----------
    serve : mapping of str to ndarray
        What users are served with.
    state : mapping of str to ndarray
        What the next week of a season goes on from.
    lists : ModelArrays or None
        Those of the model that recommends, where this one only predicts.
    beside : mapping of str to ndarray
        What another model of the same kind is served with, where there is one.
    weight : float
        What that one counts beside this, in [0, 1].
    """

    serve: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    lists: ModelArrays | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 0.0

    @classmethod
    def of(cls, found: ModelArrays | Mapping[str, Any]) -> ModelArrays:
        """Return the parts as they are; a mapping alone is what users are served with."""
        return found if isinstance(found, ModelArrays) else cls(found)

    def __or__(self, served: Mapping[str, Any]) -> ModelArrays:
        """Return the same parts with these arrays to serve with."""
        return replace(self, serve={**self.serve, **served})

    def counting(self, weight: float) -> ModelArrays:
        """Return the parts with what the model beside counts; a week that goes on from them knows it, too."""
        return replace(self, state={**self.state, "beside_weight": np.float64(weight)}, weight=weight)
