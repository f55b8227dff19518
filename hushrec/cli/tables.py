"""Options of what tables of ratings hold and of how they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Group, Parameter

from hushrec.cli.help import MAIN
from hushrec.cli.options import Catalogue, Count, File, Range, Whole, pairs
from hushrec.data import Domain, Ratings, Store
from hushrec.data.store_files import is_store
from hushrec.errors import InputError

_ROLES = ("user", "item", "rating", "time", "quantity")
_DATA = Group("Data", sort_key=2)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class Declared:
    """The domain of the ratings.

    Parameters
    ----------
    rating_range
        Lowest and highest possible rating, as 1 5.
    max_ratings_per_user
        Cap on the ratings of a user. By default 10,000.
    item_features
        Public table of items: ids, numbers, categories.
    """

    catalogue: Annotated[Catalogue, Parameter(group=MAIN)] | None = None
    rating_range: Annotated[Range, Parameter(group=MAIN)] | None = None
    max_ratings_per_user: Whole | None = None
    item_features: File | None = None

    def domain(self, likes: bool = False, source: str | None = None) -> Domain:
        """The declared domain, of ratings or of likes; of a store, the one that it was prepared with."""
        declared = {"rating_range": self.rating_range, "max_ratings_per_user": self.max_ratings_per_user}
        given: dict[str, Any] = {name: value for name, value in declared.items() if value is not None}
        if self.catalogue is not None:
            given["items"] = tuple(Domain.read_catalogue(self.catalogue))
        if is_store(source):
            return replace(Store(str(source)).domain, item_features=self.item_features, **given)
        if self.catalogue is None:
            raise InputError(
                "--catalogue is missing: declare the items, one item id a line, for example --catalogue"
                " items.txt."
            )
        if self.rating_range is None and not likes:
            raise InputError(
                "--rating-range is missing: declare the lowest and the highest rating, for example"
                " --rating-range 1 5, or say with --implicit that every row is a like."
            )
        return Domain(**given, item_features=self.item_features, likes=likes)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class Size:
    """The declared domain, or no more than its size.

    Parameters
    ----------
    n_items
        Number of items, instead of --catalogue.
    rating_range
        Lowest and highest possible rating, as 1 5.
    max_ratings_per_user
        Cap on the ratings of one user.
    """

    n_items: Annotated[Count, Parameter(name="--items", group=MAIN)] | None = None
    catalogue: Annotated[Catalogue, Parameter(group=MAIN)] | None = None
    rating_range: Annotated[Range, Parameter(group=MAIN)] | None = None
    max_ratings_per_user: Whole = 10_000

    def declared(self, likes: bool) -> tuple[Domain | None, int]:
        """The domain, or one of that size; None where no rating range is given for the latter.

        Of likes where these are planned for and no rating range is given.
        """
        if self.catalogue is not None and self.n_items is not None:
            raise InputError(
                "Pass --catalogue or --items, not both: the catalogue says how many items there are."
            )
        if self.catalogue is None and self.n_items is None:
            raise InputError(
                "--items is missing: say how many items there are, for example --items 2000, or declare them"
                " with --catalogue items.txt."
            )
        likes = likes and self.rating_range is None
        if self.catalogue is not None and self.rating_range is None and not likes:
            raise InputError(
                "--rating-range is missing: with a catalogue declare the lowest and the highest rating,"
                " for example --rating-range 1 5."
            )
        items = range(self.n_items) if self.n_items else Domain.read_catalogue(self.catalogue or "")
        if self.rating_range is None and not likes:
            return None, len(items)
        cap = self.max_ratings_per_user
        return Domain(tuple(items), self.rating_range, max_ratings_per_user=cap, likes=likes), len(items)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class Reading:
    """The reading of tables of ratings.

    Parameters
    ----------
    implicit
        Every row is a like; no ratings are needed.
    columns
        As user=uid,item=movie,rating=stars.
    format
        As parquet, csv, tsv or movielens-dat.
    """

    implicit: Annotated[bool, Parameter(group=MAIN)] = False
    columns: Annotated[str, Parameter(metavar="ROLE=NAME,...", show_default="usual")] | None = None
    format: Annotated[str, Parameter(metavar="NAME", show_default="by name")] | None = None

    def open(self, path: str, domain: Domain) -> Ratings | Store:
        """The ratings of a file, or a store as it is."""
        if is_store(path) and self.columns is None and self.format is None:
            self._check(domain)
            return Store(path, domain)
        return self.read(path, domain)

    def read(self, path: str, domain: Domain, *, times: bool = False) -> Ratings:
        """The ratings of a file or a store, over a domain; with their times where these are asked for."""
        self._check(domain)
        return Ratings.from_any(path, domain, **self.arguments(times=times and not is_store(path)))

    def _check(self, domain: Domain) -> None:
        if self.implicit and domain.high > 1:
            raise InputError(
                "--implicit is for a model of likes, and this one is of ratings from"
                f" {domain.low:g} to {domain.high:g}; leave it out, and have a column of ratings."
            )

    def arguments(self, *, times: bool = False) -> dict[str, Any]:
        """Return the arguments for the readers of `Ratings`."""
        names: dict[str, Any] | None = None
        if self.columns is not None:
            names = pairs(self.columns.split(","), "--columns", "user=uid,item=movie")
            if unknown := sorted(set(names) - set(_ROLES)):
                raise InputError(f"--columns has no role {unknown[0]!r}; the roles are {', '.join(_ROLES)}.")
        if times:
            names = {"time": True} | (names or {})
        return {"columns": names, "format": self.format, "implicit": self.implicit}
