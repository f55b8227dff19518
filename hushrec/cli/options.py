"""Options that several commands have."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from hushrec.cli import output
from hushrec.cli.help import MAIN
from hushrec.errors import InputError, LedgerError
from hushrec.privacy import Budget, Ledger, default_path
from hushrec.registry import ESTIMATORS, JOBS, best

if TYPE_CHECKING:
    from hushrec.network.service import Limits, Service

#: Delta for a data set without a budget, and for --epsilon inf.
SHOWN_DELTA = 1e-6
#: Epsilon from which a warning is printed: docs/understand/frontier.md ends there.
_WEAK = 20.0


def whole(kind: Any, tokens: Sequence[Token]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError("pass an integer") from None


def value_of(text: str) -> Any:
    words: dict[str, Any] = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def epsilon_of(text: str) -> float:
    """Refuse a number too large for float64, which is not the word inf."""
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
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InputError(f"{option} {text!r} is not NAME=VALUE; write for example {option} {example}.")
        if name in values:
            raise InputError(f"{option} gives {name} twice; give it once.")
        values[name] = value
    return values


Whole = Annotated[int, Parameter(converter=whole)]
Count = Annotated[int, Parameter(converter=whole, validator=Number(gte=1))]
Range = Annotated[tuple[float, float], Parameter(metavar="LOW HIGH")]
Seconds = Annotated[float, Parameter(validator=Number(gte=0, lte=10_000_000))]
File = Annotated[str, Parameter(metavar="FILE")]
Port = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lte=65535))]

PRIVACY = Group("Privacy and ledger", sort_key=4)

_MODEL = "lists, ratings, both, or a model's name (see hushrec settings)."
_ITEMS = "Text file of all item ids, one per line."
_USERS = "Number of users, if it is public; else it is released for 1% of the budget."
_SEED = "Seed of sampling and splits; noise has none."
_FAILURE = "Part of delta that is reserved for hushrec tune."
_NO_FAILURE = "tune: all; ledger: none"

Json = Annotated[bool, Parameter(name="--json", help="Print one JSON object instead of text.")]
Named = Annotated[str, Parameter(metavar="NAME", help="A model's name: see hushrec settings.")]
ModelName = Annotated[
    str, Parameter(metavar="NAME", help=_MODEL, show_default="both; lists with --implicit", group=MAIN)
]
Catalogue = Annotated[File, Parameter(help=_ITEMS)]
NoProgress = Annotated[bool, Parameter(help="Show no progress bar.")]
Seed = Annotated[int, Parameter(converter=whole, validator=Number(gte=0), help=_SEED)]
Users = Annotated[Count, Parameter(name="--users", help=_USERS)]
Failure = Annotated[float, Parameter(show_default=_NO_FAILURE, help=_FAILURE)]
LedgerFile = Annotated[File, Parameter(show_default="one per account", help="File of the charges.")]
PlainHttp = Annotated[bool, Parameter(help="Use http:// beyond this machine, if a tunnel encrypts it.")]
Authority = Annotated[
    File, Parameter(show_default="the system's", help="Authority that signed the certificates, PEM.")
]
Force = Annotated[bool, Parameter(help="Replace output files that exist.")]
_RESUME = "Resume the same killed training. Kept values are not charged again; one lost release may be."
Resume = Annotated[bool, Parameter(help=_RESUME)]


_SET = "Change a setting (hushrec settings MODEL)."
Settings = Annotated[tuple[str, ...], Parameter(name="--set", metavar="NAME=VALUE", help=_SET)]


def settings_given(texts: Sequence[str]) -> dict[str, Any]:
    named = pairs(texts, "--set", "rank=8")
    return {name.replace("-", "_"): value_of(value) for name, value in named.items()}


@dataclass(frozen=True, kw_only=True)
class _Protected:
    """The kind of protection, without its strength.

    Parameters
    ----------
    delta
        Well below one over the number of users, as 1e-6.
    relation
        Protect a user's presence or any change. By default add-remove.
    """

    delta: Annotated[float, Parameter(group=MAIN)] | None = None
    relation: Literal["add-remove", "replace"] | None = None

    def budget_of(self, epsilon: float, unit: str = "user") -> Budget:
        if self.delta is None and epsilon != math.inf:
            raise InputError(
                "--delta is missing: pass a number well below one over the number of users,"
                " for example --delta 1e-6."
            )
        if _WEAK < epsilon < math.inf:
            output.note(
                f"Warning: epsilon = {epsilon:g} is a very weak promise: an attacker can become all but sure"
                " of what a user rated; 10 or less is usual."
            )
        delta = SHOWN_DELTA if self.delta is None else self.delta
        relation = self.relation or ("replace" if unit == "rating" else "add-remove")
        return Budget(epsilon, delta, unit=unit, relation=relation)


@Parameter(name="*", group=PRIVACY)
@dataclass(frozen=True, kw_only=True)
class Promise(_Protected):
    """The privacy that is asked for.

    Parameters
    ----------
    epsilon
        Privacy: smaller is safer; inf disables it.
    relation
        Protect a user's presence or any change. By default add-remove.
    unit
        Protect a user, or one rating (--model one-bit).
    """

    epsilon: Annotated[float, Parameter(converter=_epsilon, group=MAIN)]
    unit: Literal["user", "rating"] = "user"

    def budget(self) -> Budget:
        return self.budget_of(self.epsilon, self.unit)


@Parameter(name="*", group=PRIVACY)
@dataclass(frozen=True, kw_only=True)
class Promises(_Protected):
    """Several levels of privacy.

    Parameters
    ----------
    epsilons
        Privacy levels, separated by commas, as in --epsilons 1,5,10. No default.
    """

    epsilons: Annotated[str, Parameter(group=MAIN)]

    def levels(self) -> list[float]:
        try:
            return [epsilon_of(part) for part in self.epsilons.split(",")]
        except ValueError:
            raise InputError(
                f"--epsilons {self.epsilons!r} is not a list of numbers; write for example 1,5,10,inf."
            ) from None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Lists:
    """The measures of lists.

    Parameters
    ----------
    k
        Length of the lists.
    relevant_from
        Relevant held-out ratings are those from here up; by default all, for a model of lists its likes.
    """

    k: Annotated[Count, Parameter(name="-k")] = 20
    relevant_from: float | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Listening:
    """Options of listening.

    Parameters
    ----------
    host
        Address to listen on.
    port
        Port; 0 takes a free one.
    certificate
        PEM file of this server's certificate and chain, for HTTPS.
    certificate_key
        PEM file of its private key.
    requests_per_second
        Requests of one address, on average.
    connections
        Largest number of open connections.
    """

    host: str = "127.0.0.1"
    port: Port = 8765
    certificate: File | None = None
    certificate_key: Annotated[File, Parameter(show_default="in --certificate")] | None = None
    requests_per_second: Annotated[float, Parameter(validator=Number(gt=0))] = 100.0
    connections: Count = 2000

    def limits(self, **more: Any) -> Limits:
        from hushrec.network.service import Limits  # an extra, which the help does without

        return Limits(requests_per_second=self.requests_per_second, connections=self.connections, **more)

    def service(self, server: Any, **limits: Any) -> Service:
        from hushrec.network.service import Service

        return Service(
            server.answer,
            host=self.host,
            port=self.port,
            limits=self.limits(**limits),
            certificate=self.certificate,
            key=self.certificate_key,
            admit=server.admit,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Serving(Listening):
    port: Port = 8000


_ANOTHER = " --ledger or HUSHREC_LEDGER names another file."
#: The data set if none is named.
_DEFAULT = "default"


@Parameter(name="*", group=PRIVACY)
@dataclass(frozen=True, kw_only=True)
class Account:
    """The record of charges.

    Parameters
    ----------
    ledger
        File in which charges are recorded.
    dataset
        Name of these users in the ledger, in all their runs.
    """

    ledger: Annotated[File, Parameter(show_default="one per account")] | None = None
    dataset: Annotated[str, Parameter(metavar="NAME", group=MAIN)] = _DEFAULT

    def open(self, create: bool = False) -> Ledger:
        try:
            return Ledger(self.ledger or default_path(), create=create)
        except LedgerError as error:
            hint = "" if self.ledger or "--ledger" in str(error) else _ANOTHER
            raise InputError(f"{error}{hint}") from None


@Parameter(name="*", group=PRIVACY)
@dataclass(frozen=True, kw_only=True)
class Charging(Account):
    """The record that a run is charged to.

    Parameters
    ----------
    data_is_public
        Charge nothing; results are stamped NOT PRIVATE.
    allow_composition
        Allow a cost in addition to an open season.
    """

    data_is_public: bool = False
    allow_composition: bool = False

    def arguments(self, private: bool = True) -> dict[str, Any]:
        """This may create the ledger."""
        if not (private or self.data_is_public) and self.dataset == _DEFAULT:
            raise InputError(
                f"Without privacy, data set {_DEFAULT!r} of the ledger would be charged an infinite "
                "epsilon, permanently; pass --dataset with another name, or --data-is-public if the "
                "ratings are public."
            )
        ledger = None if self.data_is_public else self.open(create=True)
        words = {"data_is_public": self.data_is_public, "allow_composition": self.allow_composition}
        return {"ledger": ledger, "dataset": self.dataset, **words}


def model_for(model: str | None, likes: bool, private: bool) -> str:
    job = model or ("lists" if likes else "both")
    if likes and job in ("ratings", "both"):
        raise InputError(f"--model {job} needs ratings, and --implicit makes every row a like; pass lists.")
    if job not in JOBS and job not in ESTIMATORS:
        raise InputError(
            f"--model {job} is not known; pass lists, ratings, both, or a name of hushrec settings. Your own"
            " model needs a script that registers it: docs/guides/own-model.md."
        )
    return best(job, private) if job in JOBS else job


def progress_shown(no_progress: bool) -> bool:
    return not no_progress and sys.stderr.isatty()


def _days(kind: Any, tokens: Sequence[Token]) -> float:
    number, unit = tokens[0].value[:-1], tokens[0].value[-1:]
    try:
        days = float(number) / {"d": 1, "h": 24}[unit]
    except (KeyError, ValueError):
        days = math.nan
    if not math.isfinite(days):
        raise ValueError("pass days or hours, for example 6d or 12h")
    return days


Days = Annotated[float, Parameter(converter=_days, metavar="DAYS")]


def listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
