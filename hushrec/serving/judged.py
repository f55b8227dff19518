"""The donors' verdict on public ratings, as a model file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from hushrec.checks import Share, check_fields, is_number


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Benefit of public ratings to predictions, measured on the donors' own ratings.

    Attributes
    ----------
    donors : int
        Those of the same population.
    external, features : bool
        Whether the public model was fitted to ratings of another population too, and to item features.
    agreement : float
        Agreement of the donors' ratings with the released values, relative to users of the same population;
        in [0, 1].
    weight : float
        Weight of the public model in predictions, in [0, 1]; 0 if it was refused.
    private, public, together : dict
        ``value``, ``low`` and ``high``: the RMSE on held-out ratings of donors, with a 95% interval over
        donors. The weight was chosen on the same donors.

    Privacy
    -------
    No cost: computed from released values and from ratings whose owners agreed to publish them.
    """

    donors: Annotated[int, "[0, inf)"]
    external: bool
    features: bool
    agreement: Share
    weight: Share
    private: dict[str, float | None]
    public: dict[str, float | None]
    together: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Judged:
        """Invert `to_dict`; ValueError for anything that it does not write."""
        if not (isinstance(entry, dict) and set(entry) == {field.name for field in fields(cls)}):
            raise ValueError("a verdict of donors has other fields")
        judged = cls(**entry)
        check_fields(judged)
        for figures in (judged.private, judged.public, judged.together):
            known = isinstance(figures, dict) and set(figures) == {"value", "low", "high"}
            if not known or not all(
                number is None or (is_number(number) and number >= 0) for number in figures.values()
            ):
                raise ValueError("a figure of donors is no number")
        return judged
