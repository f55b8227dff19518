"""The donors' verdict on public ratings, as a model file holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

#: The metric of each job.
METRICS = {"lists": "recall@20", "ratings": "rmse"}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Benefit of public ratings to a private model, measured on the donors' own ratings.

    Attributes
    ----------
    job : {"lists", "ratings"}
    donors : int
        Number of donors of the same population.
    external, features : bool
        Whether the public model was fitted to ratings of another population too, and to item features.
    agreement : float
        Agreement of the donors' ratings with the released values, relative to users of the same population;
        in [0, 1].
    weight : float
        Weight of the public model in scores, in [0, 1]; 0 if it was refused.
    metric : {"recall@20", "rmse"}
    private, public, together : dict
        ``value``, ``low`` and ``high``: the figure on held-out ratings of donors, with a 95% interval over
        donors. The weight was chosen on the same donors.

    Privacy
    -------
    No cost: computed from released values and from ratings whose owners agreed to publish them.
    """

    job: str
    donors: int
    external: bool
    features: bool
    agreement: float
    weight: float
    metric: str
    private: dict[str, float | None]
    public: dict[str, float | None]
    together: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in a model file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Judged:
        """Return the inverse of `to_dict`; ValueError for anything that `to_dict` does not write."""
        named = isinstance(entry, dict) and set(entry) == {field.name for field in fields(cls)}
        if not named or METRICS.get(str(entry["job"])) != entry["metric"]:
            raise ValueError("a verdict of donors has other fields")
        if type(entry["donors"]) is not int or entry["donors"] < 0:
            raise ValueError("a verdict of donors counts no donors")
        if not all(type(entry[name]) is bool for name in ("external", "features")):
            raise ValueError("a verdict of donors does not say what it used")
        if not all(_number(entry[name], 1.0) for name in ("agreement", "weight")):
            raise ValueError("a weight of donors is not in [0, 1]")
        for name in ("private", "public", "together"):
            part = entry[name]
            known = isinstance(part, dict) and set(part) == {"value", "low", "high"}
            if not known or not all(each is None or _number(each, math.inf) for each in part.values()):
                raise ValueError("a figure of donors is no number")
        return cls(**entry)


def _number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= most
