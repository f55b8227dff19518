"""Options that several commands have, each stated once, and what becomes of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from hushrec.cli import show
from hushrec.errors import InputError
from hushrec.registry import ESTIMATORS, best

if TYPE_CHECKING:
    from hushrec.data import Domain, Ratings, Store
    from hushrec.privacy import Budget, Ledger

#: What is assumed where a data set of the ledger has no budget, and --epsilon inf needs no delta.
SHOWN_DELTA = 1e-6
#: A larger epsilon is warned of: the tables of docs/frontier.md end there.
_WEAK = 20.0
_ROLES = ("user", "item", "rating", "time")


def whole(kind: Any, tokens: Sequence[Token]) -> int:
    """An integer as written."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError("pass an integer") from None


def whole_or_none(kind: Any, tokens: Sequence[Token]) -> int | None:
    """An integer, or the word none."""
    return None if tokens[0].value.lower() == "none" else whole(kind, tokens)


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

_MODEL = (
    "A model by its name; hushrec train --model NAME --help lists the settings of any of"
    f" {', '.join(ESTIMATORS)}."
)
_JOB = (
    "What the model is for: lists to recommend, ratings to predict, or both. By default both, and lists where"
    " there are likes."
)
_ITEMS = (
    "Declared items: a text file, one item id a line, as in --catalogue items.txt. A store (hushrec prepare)"
    " knows them, and its range and cap."
)
_USERS = "Declared number of users, if it is public; else it is released for a small part of the budget."
_SEED = "Of initialisation, sampling and splits; privacy noise has none."
_FAILURE = "Part of delta reserved for private choices."
_NO_FAILURE = "of tune all, of a ledger's budget none"

Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object instead of text.")]
Model = Annotated[str, Parameter(metavar="NAME", help=_MODEL)]
Job = Annotated[Literal["lists", "ratings", "both"], Parameter(name="--for", help=_JOB)]
Catalogue = Annotated[File, Parameter(help=_ITEMS)]
NoProgress = Annotated[bool, Parameter(help="No progress bar (none without a terminal).")]
Seed = Annotated[int, Parameter(converter=whole, validator=Number(gte=0), help=_SEED)]
Users = Annotated[Count, Parameter(name="--users", help=_USERS)]
Failure = Annotated[float, Parameter(show_default=_NO_FAILURE, help=_FAILURE)]
Force = Annotated[bool, Parameter(help="Replace what is written where it is there already.")]
Resume = Annotated[bool, Parameter(help="Go on with the last such training that was killed.")]
Verbose = Annotated[bool, Parameter(help="Print settings and every release too, as report does.")]
Plot = Annotated[str, Parameter(metavar="FILE.png", help="Write a plot too (PNG or SVG).")]


@dataclass(frozen=True, kw_only=True)
class _Protected:
    """What is protected, but for how well.

    Parameters
    ----------
    delta
        Chance left over by epsilon: well below one over the number of users.
    relation
        What one user is protected from: being known to be in the data, or any change of her ratings. By
        default add-remove.
    """

    delta: float | None = None
    relation: Literal["add-remove", "replace"] | None = None

    def budget_of(self, epsilon: float, unit: str = "user") -> Budget:
        """A budget; delta is needed for a finite epsilon only."""
        from hushrec.privacy import Budget

        if self.delta is None and epsilon != math.inf:
            raise InputError(
                "--delta is missing: pass a number well below one over the number of users,"
                " for example --delta 1e-6."
            )
        if _WEAK < epsilon < math.inf:
            show.note(
                f"Warning: epsilon = {epsilon:g} promises next to nothing: whoever suspects what a user rated"
                " can be all but sure of it afterwards; 10 or less is usual."
            )
        delta = SHOWN_DELTA if self.delta is None else self.delta
        relation = self.relation or ("replace" if unit == "rating" else "add-remove")
        return Budget(epsilon, delta, unit=unit, relation=relation)


_BUDGET = Group("Budget", sort_key=2)


@Parameter(name="*", group=_BUDGET)
@dataclass(frozen=True, kw_only=True)
class Promise(_Protected):
    """How much privacy.

    Parameters
    ----------
    epsilon
        Privacy: smaller is safer, > 0, as in --epsilon 5; the word inf asks for none. No default.
    relation
        What one user is protected from: being known to be in the data, or any change of her ratings. By
        default add-remove, and replace for --unit rating.
    unit
        What epsilon protects: all ratings of a user, or the value of one (--model one-bit only).
    """

    epsilon: Epsilon
    unit: Literal["user", "rating"] = "user"

    def budget(self) -> Budget:
        """The budget that is promised."""
        return self.budget_of(self.epsilon, self.unit)


@Parameter(name="*", group=_BUDGET)
@dataclass(frozen=True, kw_only=True)
class Promises(_Protected):
    """How much privacy, several times.

    Parameters
    ----------
    epsilons
        Privacy levels, separated by commas, as in --epsilons 1,5,10. No default.
    """

    epsilons: str

    def levels(self) -> list[float]:
        """Each epsilon."""
        try:
            return [epsilon_of(part) for part in self.epsilons.split(",")]
        except ValueError:
            raise InputError(
                f"--epsilons {self.epsilons!r} is not a list of numbers; write for example 1,5,10,inf."
            ) from None


_DECLARED = Group("Declared, never read from the ratings", sort_key=3)


@Parameter(name="*", group=_DECLARED)
@dataclass(frozen=True, kw_only=True)
class Declared:
    """The domain of the ratings.

    Parameters
    ----------
    rating_range
        Lowest and highest rating, as in --rating-range 1 5; others are dropped. Likes (--implicit) have none.
    max_ratings_per_user
        Cap, 10,000 unless declared; a user's further ratings are sampled away.
    item_features
        Public facts of the items that private-als may learn from, at no privacy cost: a CSV or Parquet table
        with a column of item ids and columns of numbers, such as genres as 0 and 1.
    """

    rating_range: Range | None = None
    catalogue: Catalogue | None = None
    max_ratings_per_user: Whole | None = None
    item_features: File | None = None

    def domain(self, likes: bool = False, source: str | None = None) -> Domain:
        """The declared domain, of ratings or of likes; of a store, the one that it was prepared with."""
        from hushrec.data import Domain, Store
        from hushrec.data.store import is_store

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
    max_ratings_per_user: Whole = 10_000
    n_items: Annotated[Count, Parameter(name="--items")] | None = None

    def declared(self, likes: bool) -> tuple[Domain | None, int]:
        """The domain, or one of that size; None where no rating range is given for the latter.

        Of likes where these are planned for and no rating range is given.
        """
        from hushrec.data import Domain

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
        items = Domain.read_catalogue(self.catalogue) if self.catalogue else range(self.n_items or 0)
        if self.rating_range is None and not likes:
            return None, len(items)
        cap = self.max_ratings_per_user
        return Domain(tuple(items), self.rating_range, max_ratings_per_user=cap, likes=likes), len(items)


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
        Every row is a like; neither a rating column nor --rating-range is needed. A model file knows it.
    """

    columns: Annotated[str, Parameter(metavar="ROLE=NAME,...")] | None = None
    format: Annotated[str, Parameter(metavar="NAME")] | None = None
    implicit: bool = False

    def open(self, path: str, domain: Domain) -> Ratings | Store:
        """The ratings of a file, or a store as it is."""
        from hushrec.data import Store
        from hushrec.data.store import is_store

        if is_store(path) and self.columns is None and self.format is None:
            self._check(domain)
            return Store(path, domain)
        return self.read(path, domain)

    def read(self, path: str, domain: Domain, *, times: bool = False) -> Ratings:
        """The ratings of a file or a store, over a domain; with their times where these are asked for."""
        from hushrec.data import Ratings
        from hushrec.data.store import is_store

        self._check(domain)
        return Ratings.read(path, domain, **self.arguments(times=times and not is_store(path)))

    def _check(self, domain: Domain) -> None:
        if self.implicit and domain.high > 1:
            raise InputError(
                "--implicit is for a model of likes, and this one is of ratings from"
                f" {domain.low:g} to {domain.high:g}; leave it out, and have a column of ratings."
            )

    def arguments(self, *, times: bool = False) -> dict[str, Any]:
        """Of the readers of `Ratings`."""
        names: dict[str, Any] | None = None
        if self.columns is not None:
            names = pairs(self.columns.split(","), "--columns", "user=uid,item=movie")
            if unknown := sorted(set(names) - set(_ROLES)):
                raise InputError(f"--columns has no role {unknown[0]!r}; the roles are {', '.join(_ROLES)}.")
        if times:
            names = {"time": True} | (names or {})
        return {"columns": names, "format": self.format, "implicit": self.implicit}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Lists:
    """What is measured of lists.

    Parameters
    ----------
    k
        Length of the lists.
    relevant_from
        Held-out ratings from here up are relevant; by default all are, of a model for lists its likes.
    """

    k: Annotated[Count, Parameter(name="-k")] = 20
    relevant_from: float | None = None


_LEDGER = Group("Ledger", sort_key=5)
#: The data set of whoever names none.
_DEFAULT = "default"


@Parameter(name="*", group=_LEDGER)
@dataclass(frozen=True, kw_only=True)
class Account:
    """Where charges are recorded.

    Parameters
    ----------
    ledger
        Where charges are recorded.
    dataset
        Name of these users in the ledger: runs on the same users must share it.
    """

    ledger: Annotated[File, Parameter(show_default="one ledger for this account")] | None = None
    dataset: Annotated[str, Parameter(metavar="NAME")] = _DEFAULT

    def open(self, create: bool = False) -> Ledger:
        """The ledger at the path, or the account's own."""
        from hushrec.privacy import Ledger, default_path

        if create and self.ledger is not None and not Path(self.ledger).exists():
            show.note(f"A new ledger begins at {self.ledger}: what another one holds is not counted.")
        return Ledger(self.ledger or default_path(), create=create)


@Parameter(name="*", group=_LEDGER)
@dataclass(frozen=True, kw_only=True)
class Charging(Account):
    """Where a run is charged.

    Parameters
    ----------
    data_is_public
        Nobody's ratings are private: charge nothing, and stamp every result NOT PRIVATE.
    """

    data_is_public: bool = False

    def arguments(self, private: bool = True) -> dict[str, Any]:
        """Of an accountant; asked for when all else has been checked, since it may create the ledger."""
        ledger = None if self.data_is_public else self.open(create=True)
        if ledger is not None and not private and self.dataset == _DEFAULT and not _budgeted(ledger):
            show.note(
                f"Warning: without privacy, data set {_DEFAULT!r} of the ledger is charged an infinite"
                " epsilon, for good; pass --dataset with a name of its own, or --data-is-public where the"
                " ratings are no secret."
            )
        return {"ledger": ledger, "dataset": self.dataset, "data_is_public": self.data_is_public}


def _budgeted(ledger: Ledger) -> bool:
    """Whether the usual data set has a budget, which refuses what is infinite."""
    try:
        return ledger.left(_DEFAULT) is not None
    except InputError:  # it is not in the ledger
        return False


def model_for(model: str | None, job: str | None, likes: bool, private: bool) -> str:
    """The model that is named, or the best for a job."""
    if model is not None and job is not None:
        raise InputError("Pass --for or --model, not both: --model chooses by hand what --for would choose.")
    if likes and job in ("ratings", "both"):
        raise InputError(f"--for {job} needs ratings, and --implicit says that there are likes only.")
    return model or best(job or ("lists" if likes else "both"), private)


def progress_shown(no_progress: bool) -> bool:
    """Whether there is somebody to show progress to."""
    return not no_progress and sys.stderr.isatty()


def listed(text: str) -> list[str]:
    """Words, separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
