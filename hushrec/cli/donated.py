"""Options of public ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

from hushrec.cli.options import File
from hushrec.errors import InputError
from hushrec.public import PublicRatings

_POPULATIONS = "same", "external"


_GROUP = Group("Public data (docs/guides/public.md)", sort_key=3)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Published:
    """Files of public ratings, and their population.

    Parameters
    ----------
    public_ratings
        File of public ratings; repeatable. KIND is same or external (another population).
    """

    public_ratings: Annotated[list[str], Parameter(metavar="FILE=KIND", negative=())] | None = None

    def files(self) -> list[str]:
        return [self._parts(text)[0] for text in self.public_ratings or ()]

    def read(self, *private: str) -> PublicRatings | None:
        if not self.files():
            return None
        sources: dict[str, list[Any]] = {name: [] for name in _POPULATIONS}
        for text in self.public_ratings or ():
            path, population = self._parts(text)
            sources[population].append(path)
        public = PublicRatings(donors=getattr(self, "donors", None) or (), **sources)
        for path in private:
            public.apart_from(path)
        return public

    @staticmethod
    def _parts(text: str) -> tuple[str, str]:
        path, _, population = text.rpartition("=")
        if not path or population not in _POPULATIONS:
            raise InputError(
                f"--public-ratings {text!r} names no population; write FILE=same for ratings of the same "
                "population, or FILE=external for another one."
            )
        return path, population


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class Donated(Published):
    """Ratings that are public, some among the private ones.

    Parameters
    ----------
    donors
        Text file of users who agreed to publish their ratings. Donors are not protected.
    """

    donors: File | None = None

    def files(self) -> list[str]:
        return [*([] if self.donors is None else [self.donors]), *super().files()]
