"""Options of public tables of items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

from hushrec.cli.options import File
from hushrec.cli.tables import item_columns
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.serving.attributes import Attributes

_ITEMS = Group("Public tables of the items", sort_key=4)


@Parameter(name="*", group=_ITEMS)
@dataclass(frozen=True, kw_only=True)
class Titled:
    """Titles of items.

    Parameters
    ----------
    titles
        Titles of the items: a CSV or Parquet table with a column of item ids and one named title.
    """

    titles: File | None = None

    def read(self, domain: Domain, columns: str | None = None) -> Attributes | None:
        attributes = getattr(self, "attributes", None)
        if self.titles is None and attributes is None:
            return None
        return Attributes.read(attributes, domain, self.titles, item_columns(columns))


@Parameter(name="*", group=_ITEMS)
@dataclass(frozen=True, kw_only=True)
class Ruled(Titled):
    """Rules for lists.

    Parameters
    ----------
    attributes
        Public facts on the items: a CSV or Parquet table with a column of item ids.
    where
        List items of which this is true, as in --where "in_stock and price < 50".
    at_most
        List at most N items of one value, as in --at-most brand=2; repeatable.
    boost
        Raise the scores of these items, as in --boost new=1.1; repeatable.
    """

    attributes: File | None = None
    where: Annotated[str | None, Parameter(metavar="CONDITION")] = None
    at_most: Annotated[tuple[str, ...], Parameter(metavar="COLUMN=N")] = ()
    boost: Annotated[tuple[str, ...], Parameter(metavar="CONDITION=FACTOR")] = ()

    def options(self, domain: Domain, columns: str | None = None) -> dict[str, Any]:
        if self.attributes is None and (self.where or self.at_most or self.boost):
            raise InputError(
                "--where, --at-most and --boost are about a table of the items; pass --attributes FILE."
            )
        most = numbers(self.at_most, "--at-most", "brand=2", int)
        boost = numbers(self.boost, "--boost", "new=1.1", float)
        attributes = self.read(domain, columns)
        return {"attributes": attributes, "where": self.where, "at_most": most, "boost": boost}


def numbers(texts: Sequence[str], option: str, example: str, kind: type) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, value = (part.strip() for part in text.rpartition("=")[::2])
        if name in found:
            raise InputError(f"{option} gives {name} twice; give it once.")
        try:
            found[name] = kind(value)
        except ValueError:
            name = ""
        if not name:
            raise InputError(
                f"{option} {text!r} does not end in a number; write for example {option} {example}."
            )
    return found
