"""Options of tables of ratings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Group, Parameter

from hushrec.cli.help import MAIN
from hushrec.cli.options import Catalogue, Count, File, Range, Whole, pairs
from hushrec.data import Domain, Ratings, Store
from hushrec.data.columns import Several
from hushrec.data.features import named_item_table
from hushrec.data.store_files import is_store
from hushrec.errors import InputError

_ROLES = ("user", "item", "rating", "time", "quantity")
#: Roles in tables of items only.
_ITEM_ROLES = ("id", "title")
_DATA = Group("Data", sort_key=2)
_HELP = "Names or positions of columns, as user=uid,item=sku; also rating, quantity, time, id, title."
Table = Annotated[str, Parameter(help="A table with columns of users, items and ratings.")]
Columns = Annotated[
    str, Parameter(name="--columns", metavar="ROLE=NAME,...", show_default="usual", help=_HELP, group=_DATA)
]


def tables_of(paths: tuple[str, ...]) -> Any:
    """Return the one table, or the list of several."""
    if not paths:
        raise InputError("RATINGS is missing: pass a table with columns of users, items and ratings.")
    return paths[0] if len(paths) == 1 else list(paths)


def names_of(columns: str | None) -> dict[str, str]:
    if columns is None:
        return {}
    names = pairs(columns.split(","), "--columns", "user=uid,item=movie")
    if unknown := sorted(set(names) - {*_ROLES, *_ITEM_ROLES}):
        roles = ", ".join((*_ROLES, *_ITEM_ROLES))
        raise InputError(f"--columns has no role {unknown[0]!r}; the roles are {roles}.")
    return names


def item_columns(columns: str | None) -> dict[str, str]:
    names = names_of(columns)
    asked = {"item": "id" if "id" in names else "item", "title": "title"}
    return {role: names[asked_as] for role, asked_as in asked.items() if asked_as in names}


def item_tables(paths: list[str] | None, columns: str | None) -> list[Any] | None:
    """Return tables of item features, or their paths if no columns are named."""
    asked = item_columns(columns)
    if paths is None or not asked:
        return paths
    return [named_item_table(path, asked, "item features") for path in paths]


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
        Public table of articles: ids, titles, categories, numbers; repeatable.
    """

    catalogue: Annotated[Catalogue, Parameter(group=MAIN)] | None = None
    rating_range: Annotated[Range, Parameter(group=MAIN)] | None = None
    max_ratings_per_user: Whole | None = None
    item_features: Annotated[list[File], Parameter(negative=())] | None = None

    def domain(self, likes: bool = False, source: Any = None, columns: str | None = None) -> Domain:
        items = None if self.catalogue is None else Domain.read_catalogue(self.catalogue)
        declared = self._given(items, columns)
        if is_store(source):
            return replace(Store(str(source)).domain, **declared)
        if items is None:
            raise InputError(
                "--catalogue is missing: declare the items, one item id a line, for example --catalogue"
                " items.txt."
            )
        if self.rating_range is None and not likes:
            raise InputError(
                "--rating-range is missing: declare the lowest and the highest rating, for example "
                "--rating-range 1 5, or pass --implicit if every row is a like."
            )
        return Domain(**declared, likes=likes)

    def _given(self, items: Iterable[Any] | None, columns: str | None) -> dict[str, Any]:
        features = item_tables(self.item_features, columns)
        declared: dict[str, Any] = {"items": items and tuple(items), "rating_range": self.rating_range}
        declared["max_ratings_per_user"] = self.max_ratings_per_user
        arguments = {name: value for name, value in declared.items() if value is not None}
        return arguments | {"item_features": features}


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class Size(Declared):
    """The declared domain, or no more than its size.

    Parameters
    ----------
    n_items
        Number of items, instead of --catalogue.
    item_features
        Public table of items; needs --catalogue.
    """

    n_items: Annotated[Count, Parameter(name="--items", group=MAIN)] | None = None
    columns: Columns | None = None

    def declared(self, likes: bool) -> tuple[Domain | None, int]:
        """Return the domain, or None where only its size is given, and the number of items."""
        if self.catalogue is not None and self.n_items is not None:
            raise InputError(
                "Pass --catalogue or --items, not both: the catalogue determines the number of items."
            )
        if self.catalogue is None and self.n_items is None:
            raise InputError(
                "--items is missing: pass the number of items, for example --items 2000, or declare them "
                "with --catalogue items.txt."
            )
        if self.catalogue is None and self.item_features is not None:
            raise InputError("--item-features needs --catalogue: it declares the ids of the items.")
        likes = likes and self.rating_range is None
        items = range(self.n_items) if self.n_items else Domain.read_catalogue(self.catalogue or "")
        if likes or self.rating_range is not None:
            return Domain(**self._given(items, self.columns), likes=likes), len(items)
        if self.catalogue is not None:
            raise InputError(
                "--rating-range is missing: with a catalogue declare the lowest and the highest rating,"
                " for example --rating-range 1 5."
            )
        return None, len(items)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True, kw_only=True)
class Reading:
    """The reading of tables of ratings.

    Parameters
    ----------
    implicit
        Every row is a like, unless its value is 0 or less; no values are needed.
    format
        parquet, csv, tsv, movielens-dat, or a delimiter such as ";".
    """

    implicit: Annotated[bool, Parameter(group=MAIN)] = False
    columns: Columns | None = None
    format: Annotated[str, Parameter(metavar="NAME", show_default="by name")] | None = None
    is_second: Annotated[bool, Parameter(parse=False)] = False

    def second(self) -> Reading:
        """Return the reading of another table: a name of --columns that it lacks is the first one's."""
        return replace(self, is_second=True)

    def open(self, path: Any, domain: Domain) -> Ratings | Store:
        if is_store(path) and self.columns is None and self.format is None:
            self._check(domain)
            return Store(path, domain)
        return self.read(path, domain)

    def read(self, path: Any, domain: Domain, *, times: bool = False) -> Ratings:
        self._check(domain)
        return Ratings.from_any(path, domain, **self.arguments(times=times and not is_store(path)))

    def _check(self, domain: Domain) -> None:
        if self.implicit and domain.high > 1:
            raise InputError(
                "--implicit is for a model of likes, and this one is of ratings from"
                f" {domain.low:g} to {domain.high:g}; leave it out, and have a column of ratings."
            )

    def arguments(self, *, times: bool = False) -> dict[str, Any]:
        names: dict[str, Any] = {
            role: name for role, name in names_of(self.columns).items() if role not in _ITEM_ROLES
        }
        if times:
            names = {"time": True} | names
        if self.is_second:
            names = Several(names)
        return {"columns": names or None, "format": self.format, "implicit": self.implicit}
