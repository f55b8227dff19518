"""Options that several commands have, each stated once, and what becomes of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from hushrec.errors import InputError
from hushrec.registry import ESTIMATORS

if TYPE_CHECKING:
    from hushrec.data import Domain, Ratings
    from hushrec.privacy import Budget, Ledger

#: What is assumed where a data set of the ledger has no budget, and --epsilon inf needs no delta.
SHOWN_DELTA = 1e-6
_ROLES = ("user", "item", "rating")


def whole(kind: Any, tokens: Sequence[Token]) -> int | None:
    """An integer as written, or none where there may be none."""
    text = tokens[0].value
    if text.lower() == "none" and NoneType in get_args(kind):
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError("pass an integer") from None


def epsilon_of(text: str) -> float:
    """A number, or the explicit word for no privacy; a number too large for float64 is not that word."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    word = text.strip().lower()
    if (math.isinf(value) and word not in ("inf", "infinity")) or (math.isnan(value) and word != "nan"):
        raise ValueError("pass a number greater than 0, or the word inf")
    return value


def _epsilon(kind: Any, tokens: Sequence[Token]) -> float:
    return epsilon_of(tokens[0].value)


def pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary of texts."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError(f"{option} {text!r} is not NAME=VALUE; write for example {option} {example}.")
        if name in found:
            raise InputError(f"{option} gives {name} twice; give it once.")
        found[name] = value
    return found


Whole = Annotated[int, Parameter(converter=whole)]
Count = Annotated[int, Parameter(converter=whole, validator=Number(gte=1))]
Epsilon = Annotated[float, Parameter(converter=_epsilon)]
Range = Annotated[tuple[float, float], Parameter(metavar="LOW HIGH")]
File = Annotated[str, Parameter(metavar="FILE")]

Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object instead of text.")]
Model = Annotated[
    str,
    Parameter(
        metavar="NAME",
        help="private-als is the one to use for ratings, private-eigenrec for likes; --model NAME --help"
        f" lists the settings of any of {', '.join(ESTIMATORS)}.",
    ),
]
Catalogue = Annotated[
    str,
    Parameter(
        metavar="FILE", help="Declared items: a text file, one item id a line, as in --catalogue items.txt."
    ),
]
NoProgress = Annotated[bool, Parameter(help="No progress bar (none without a terminal).")]
K = Annotated[Count, Parameter(name="-k", help="Length of the lists.")]
RelevantFrom = Annotated[
    float, Parameter(help="Held-out ratings from here up are relevant; by default all are.")
]
Seed = Annotated[
    int,
    Parameter(
        converter=whole,
        validator=Number(gte=0),
        help="Of initialisation, sampling and splits; privacy noise has none.",
    ),
]
Users = Annotated[
    Count,
    Parameter(
        name="--users",
        help="Declared number of users, if it is public; else it is released for a small part of the budget.",
    ),
]
Delta = Annotated[
    float, Parameter(help="Chance left over by epsilon: well below one over the number of users.")
]
Relation = Annotated[
    Literal["add-remove", "replace"],
    Parameter(
        help="What one user is protected from: being known to be in the data, or any change of her ratings."
    ),
]
Failure = Annotated[
    float,
    Parameter(
        show_default="of tune all, of a ledger's budget none",
        help="Part of delta reserved for private choices.",
    ),
]
LedgerPath = Annotated[
    str,
    Parameter(
        name="--ledger",
        metavar="FILE",
        show_default="one ledger for this account",
        help="Where charges are recorded.",
    ),
]
DataSet = Annotated[
    str, Parameter(help="Name of these users in the ledger: runs on the same users must share it.")
]

Plot = Annotated[str, Parameter(metavar="FILE.png", help="Write a plot too (PNG or SVG).")]
Authority = Annotated[
    str,
    Parameter(
        metavar="FILE",
        show_default="the system's",
        help="Authority that signed the server's certificate, PEM.",
    ),
]
Server = Annotated[str, Parameter(metavar="URL", help="Address that serve-completion printed.")]
Key = Annotated[
    str, Parameter(metavar="FILE", help="The node's secrets; made if missing, for your eyes only.")
]
Patience = Annotated[
    float,
    Parameter(validator=Number(gte=0), help="Seconds to keep trying while the server is away or not ready."),
]


@Parameter(name="*", group=Group("Budget", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class Promise:
    """How much privacy.

    Parameters
    ----------
    epsilon
        Privacy: smaller is safer, > 0, as in --epsilon 5; the word inf asks for none. No default.
    unit
        What epsilon protects: all ratings of a user, or the value of one (--model one-bit only).
    """

    epsilon: Epsilon
    delta: Delta | None = None
    relation: Annotated[Relation | None, Parameter(show_default="add-remove; replace for --unit rating")] = (
        None
    )
    unit: Literal["user", "rating"] = "user"

    def budget(self) -> Budget:
        """The budget that is promised."""
        relation = self.relation or ("replace" if self.unit == "rating" else "add-remove")
        return budget_of(self.epsilon, self.delta, relation, self.unit)


def budget_of(epsilon: float, delta: float | None, relation: str | None, unit: str = "user") -> Budget:
    """A budget, delta being needed for a finite epsilon only."""
    from hushrec.privacy import Budget

    if delta is None:
        if epsilon != math.inf:
            raise InputError(
                "--delta is missing: pass a number well below one over the number of users,"
                " for example --delta 1e-6."
            )
        delta = SHOWN_DELTA
    return Budget(epsilon, delta, unit=unit, relation=relation or "add-remove")


_DECLARED = Group("Declared, never read from the ratings", sort_key=3)


@Parameter(name="*", group=_DECLARED)
@dataclass(frozen=True, kw_only=True)
class Declared:
    """The domain of the ratings.

    Parameters
    ----------
    rating_range
        Lowest and highest rating, as in --rating-range 1 5; others are dropped.
    max_ratings_per_user
        Cap; a user's further ratings are sampled away.
    item_features
        Public facts of the items that private-als may learn from, at no privacy cost: a CSV or Parquet table
        with a column of item ids and columns of numbers, such as genres as 0 and 1.
    """

    rating_range: Range
    catalogue: Catalogue
    max_ratings_per_user: Annotated[Whole, Parameter(show_default="10000")] | None = None
    item_features: File | None = None

    def domain(self) -> Domain:
        """The declared domain."""
        from hushrec.data import Domain

        given = {"max_ratings_per_user": self.max_ratings_per_user, "item_features": self.item_features}
        return Domain(
            tuple(Domain.read_catalogue(self.catalogue)),
            rating_range=self.rating_range,
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )


@Parameter(name="*", group=_DECLARED)
@dataclass(frozen=True, kw_only=True)
class Size:
    """The declared domain, or no more than its size.

    Parameters
    ----------
    rating_range
        Lowest and highest rating; without it errors are in units of the range only.
    max_ratings_per_user
        Cap on the ratings of a user.
    n_items
        Number of items, instead of --catalogue.
    """

    rating_range: Range | None = None
    catalogue: Catalogue | None = None
    max_ratings_per_user: Annotated[Whole, Parameter(show_default="10000")] | None = None
    n_items: Annotated[Count, Parameter(name="--items")] | None = None

    def declared(self) -> tuple[Domain | None, int]:
        """The domain, or one of that size; None where no rating range is given for the latter."""
        from hushrec.data import Domain

        if self.catalogue is not None and self.n_items is not None:
            raise InputError(
                "Pass --catalogue or --items, not both: the catalogue says how many items there are."
            )
        if self.catalogue is not None:
            items: tuple[Any, ...] = tuple(Domain.read_catalogue(self.catalogue))
        elif self.n_items is not None:
            items = tuple(range(self.n_items))
        else:
            raise InputError(
                "--items is missing: say how many items there are, for example --items 2000, or declare them"
                " with --catalogue items.txt."
            )
        if self.rating_range is None:
            if self.catalogue is not None:
                raise InputError(
                    "--rating-range is missing: with a catalogue declare the lowest and the highest rating,"
                    " for example --rating-range 1 5."
                )
            return None, len(items)
        cap: dict[str, Any] = (
            {} if self.max_ratings_per_user is None else {"max_ratings_per_user": self.max_ratings_per_user}
        )
        return Domain(items, rating_range=self.rating_range, **cap), len(items)


@Parameter(name="*", group=Group("Reading tables", sort_key=4))
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How tables of ratings are read.

    Parameters
    ----------
    columns
        Names of the columns, for example user=uid,item=movie,rating=stars; usual names are found.
    format
        parquet, csv, tsv, movielens-100k, movielens-dat or jester; told from the file's name.
    implicit
        Every row is a like of 1; a rating column is not needed.
    """

    columns: Annotated[str, Parameter(metavar="ROLE=NAME,...")] | None = None
    format: str | None = None
    implicit: bool = False

    def read(self, path: str, domain: Domain) -> Ratings:
        """The ratings of a file, over a domain."""
        from hushrec.data import Ratings

        names = None
        if self.columns is not None:
            names = pairs(self.columns.split(","), "--columns", "user=uid,item=movie")
            if unknown := sorted(set(names) - set(_ROLES)):
                raise InputError(f"--columns has no role {unknown[0]!r}; the roles are {', '.join(_ROLES)}.")
        return Ratings.read(path, domain, columns=names, format=self.format, implicit=self.implicit)


@Parameter(name="*", group=Group("Ledger", sort_key=5))
@dataclass(frozen=True, kw_only=True)
class Charging:
    """Where a run is charged.

    Parameters
    ----------
    data_is_public
        Nobody's ratings are private: charge nothing, and stamp every result NOT PRIVATE.
    """

    ledger: LedgerPath | None = None
    dataset: DataSet = "default"
    data_is_public: bool = False

    def arguments(self) -> dict[str, Any]:
        """Of an accountant; asked for when all else has been checked, since it may create the ledger."""
        ledger = None if self.data_is_public else open_ledger(self.ledger)
        return {"ledger": ledger, "dataset": self.dataset, "data_is_public": self.data_is_public}


def open_ledger(path: str | None, create: bool = True) -> Ledger:
    """The ledger at a path, or the account's own."""
    from hushrec.privacy import Ledger, default_path

    return Ledger(path or default_path(), create=create)


def progress_shown(no_progress: bool) -> bool:
    """Whether there is somebody to show progress to."""
    return not no_progress and sys.stderr.isatty()


def listed(text: str) -> list[str]:
    """Words, separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def epsilons_of(text: str) -> list[float]:
    """Privacy levels, separated by commas."""
    try:
        return [epsilon_of(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--epsilons {text!r} is not a list of numbers; write for example 1,5,10,inf."
        ) from None
