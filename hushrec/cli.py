"""The command line: the only place that prints or parses arguments.

Exit codes: 0 done, 1 refused (budget, ledger) or failed, 2 bad input, 130 interrupted. Errors are one line on
stderr. With ``--json`` stdout is one JSON object, infinity the string "inf", undefined values null.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import math
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import click

from hushrec import __version__
from hushrec.audit import commands as _audit
from hushrec.console import json_option as _json
from hushrec.console import pairs as _pairs
from hushrec.console import print_json as _print_json
from hushrec.console import settings as _settings
from hushrec.console import value_of
from hushrec.errors import HushrecError, InputError
from hushrec.outsourcing import commands as _outsourcing

if TYPE_CHECKING:
    from hushrec.algorithms import Billboard
    from hushrec.data import Domain, Ratings
    from hushrec.evaluation.expected_loss import ExpectedLoss
    from hushrec.privacy import Budget, Ledger, Plan
    from hushrec.privacy.ledger import RunSummary
    from hushrec.serving import Algorithm

#: What is assumed where a data set of the ledger has no budget, and --epsilon inf needs no delta.
_SHOWN_DELTA = 1e-6
_PRIVATE_TABLE = "PRIVATE: each user's rows are for that user alone; publish none of them together"
_LONGEST_NAME = 120
_RESERVED_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}

_INPUTS = (
    "catalogue", "item_features", "ratings_path", "model_path", "history_path", "test_path", "items_path",
    "ledger_path",
)  # fmt: skip
_POSITIVE = click.IntRange(min=1)
_ROLES = ("user", "item", "rating")

#: What errors say to users of the library, and to users of the command line.
_AS_OPTIONS = (
    (r"columns=\{'(\w+)': NAME\}", r"--columns \1=NAME"),
    (r"Budget\(\.\.\., unit='(\w+)', relation='([\w-]+)'\)", r"--unit \1 --relation \2"),
    (r"Budget\(\.\.\., unit='(\w+)'\)", r"--unit \1"),
    (r"\bpass epsilon\b", "pass --epsilon"),
    (r"--epsilon=inf\b", "--epsilon inf"),
    (r"\bmath\.inf\b", "inf"),
    (r"\bpass (\w+=(?:True|False|'[\w-]+'))(?=[ ,.;])", r"pass --set \1"),
    (r", or allow it to be created", ""),
)

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
Reader = Callable[[str, "Domain"], "Ratings"]


class _Group(click.Group):
    """Turns every error into one line on stderr and its exit code; a traceback never reaches the user."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort from None  # without click's empty line

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
        try:
            sys.exit(run(*args, standalone_mode=False, **extra) or 0)  # type: ignore[call-overload]
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else "")
            sys.exit(0)
        except click.ClickException as error:
            _fail(error.format_message(), 2)
        except InputError as error:
            _fail(str(error), 2)
        except HushrecError as error:
            _fail(str(error), 1)
        except click.Abort:
            _fail("Interrupted; what was charged before stays charged.", 130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except OSError as error:
            what = error.filename or "standard output"
            _fail(f"The system refused: {error.strerror or type(error).__name__} ({what}).", 1)
        except MemoryError:
            _fail("Out of memory; what was charged before stays charged.", 1)
        except Exception as error:
            if os.environ.get("HUSHREC_DEBUG"):
                raise
            # the words of an unexpected error may hold private rows
            _fail(
                f"Unexpected {type(error).__name__}; this is a fault of hushrec,"
                " set HUSHREC_DEBUG=1 to see where it happened.",
                1,
            )


def _fail(message: str, code: int) -> NoReturn:
    for words, options in _AS_OPTIONS:
        message = re.sub(words, options, message)
    message = " ".join(message.split())
    click.echo(f"Error: {message}" + ("" if message.endswith((".", "?)")) else "."), err=True)
    sys.exit(code)


# ---------------------------------------------------------------------- from arguments to values


class _Epsilon(click.ParamType):
    """A number, or the explicit word for no privacy; a number too large for float64 is not that word."""

    name = "float"

    @staticmethod
    def of(text: str) -> float:
        value = float(text)
        if math.isinf(value) and text.strip().lower() not in ("inf", "infinity"):
            raise ValueError
        return value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return self.of(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor the word inf.", param, ctx)


def _budget(epsilon: float | None, delta: float | None, relation: str | None, unit: str = "user") -> Budget:
    from hushrec.privacy import Budget

    if epsilon is None:
        raise InputError(
            "--epsilon is missing: say how much privacy, for example --epsilon 5, or --epsilon inf for none."
        )
    if delta is None:
        if epsilon != math.inf:
            raise InputError(
                "--delta is missing: pass a number well below one over the number of users,"
                " for example --delta 1e-6."
            )
        delta = _SHOWN_DELTA
    relation = relation or ("replace" if unit == "rating" else "add-remove")
    return Budget(epsilon, delta, unit=unit, relation=relation)


def _one_bit(
    overrides: Iterable[str], mechanism: str | None, link: str | None, threshold: float | None
) -> dict[str, Any]:
    """Settings of any model, and the three of one-bit models that have options of their own."""
    named = {"mechanism": mechanism, "link": link, "threshold": threshold}
    return _settings(overrides) | {name: value for name, value in named.items() if value is not None}


def _domain(
    catalogue: str | None,
    rating_range: tuple[float, float] | None,
    max_ratings_per_user: int | None,
    item_features: str | None,
) -> Domain:
    from hushrec.data import Domain

    if catalogue is None:
        raise InputError(
            "--catalogue is missing: declare the items in a text file, one item id a line,"
            " and pass --catalogue items.txt."
        )
    if rating_range is None:
        raise InputError(
            "--rating-range is missing: declare the lowest and the highest rating,"
            " for example --rating-range 1 5."
        )
    given = {"max_ratings_per_user": max_ratings_per_user, "item_features": item_features}
    return Domain(
        tuple(Domain.read_catalogue(catalogue)),
        rating_range=rating_range,
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )


def _sizes(
    catalogue: str | None,
    rating_range: tuple[float, float] | None,
    max_ratings_per_user: int | None,
    n_items: int | None,
) -> tuple[Domain | None, int]:
    """The declared domain, or one of that size; None where no rating range is given for the latter."""
    if catalogue is None and n_items is None:
        raise InputError(
            "--items is missing: say how many items there are, for example --items 2000, or declare them"
            " with --catalogue items.txt."
        )
    if catalogue is None and n_items is not None:
        from hushrec.data import Domain

        if rating_range is None:
            return None, n_items
        cap: dict[str, Any] = {}
        if max_ratings_per_user is not None:
            cap["max_ratings_per_user"] = max_ratings_per_user
        return Domain(tuple(range(n_items)), rating_range=rating_range, **cap), n_items
    if n_items is not None:
        raise InputError(
            "Pass --catalogue or --items, not both: the catalogue says how many items there are."
        )
    domain = _domain(catalogue, rating_range, max_ratings_per_user, None)
    return domain, domain.n_items


def _check_features(model: str, domain: Domain) -> None:
    """Refuse item features for a model that would not look at them."""
    from hushrec.algorithms import ESTIMATORS

    if domain.item_features is not None and not ESTIMATORS[model].uses_item_features:
        raise InputError(f"{model} makes no use of item features; leave --item-features out.")


def _reader(columns: str | None, file_format: str | None, implicit: bool) -> Reader:
    names = None if columns is None else _pairs(columns.split(","), "--columns", "user=uid,item=movie")
    if names and (unknown := sorted(set(names) - set(_ROLES))):
        raise InputError(f"--columns has no role {unknown[0]!r}; the roles are {', '.join(_ROLES)}.")

    def read(path: str, domain: Domain) -> Ratings:
        from hushrec.data import Ratings

        return Ratings.read(path, domain, columns=names, format=file_format, implicit=implicit)

    return read


def _model(path: str) -> Billboard:
    from hushrec.billboard import load

    return load(path)


def _ledger(path: str | None, create: bool = True) -> Ledger:
    from hushrec.privacy import Ledger, default_path

    return Ledger(path or default_path(), create=create)


@dataclass(frozen=True)
class Charging:
    """Where a run is charged; called when all else has been checked, since it may create the ledger."""

    ledger_path: str | None
    dataset: str
    data_is_public: bool

    def __call__(self) -> dict[str, Any]:
        ledger = None if self.data_is_public else _ledger(self.ledger_path)
        return {"ledger": ledger, "dataset": self.dataset, "data_is_public": self.data_is_public}


def _shown(no_progress: bool) -> bool:
    return not no_progress and sys.stderr.isatty()


def _settings_by_model(overrides: Iterable[str]) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for name, value in _settings(overrides).items():
        model, dot, setting = name.partition(".")
        if not dot:
            raise InputError(
                f"--set {name}=... needs the model's name, for example --set private-als.{name}=..."
            )
        settings.setdefault(model, {})[setting] = value
    return settings


def _choices(tried: Iterable[str]) -> dict[str, list[Any]]:
    texts = _pairs(tried, "--try", "rank=4,8")
    return {name: [value_of(value.strip()) for value in text.split(",")] for name, text in texts.items()}


def _generated(n_users: int, domain: Domain, seed: int) -> Ratings:
    """Ratings that look like people's, over the declared catalogue and range; about 100 a user."""
    from hushrec.data import Ratings, realistic

    each = max(1, min(100, domain.n_items // 4, domain.max_ratings_per_user))
    ends = (domain.low, domain.high)
    ratings = realistic(n_users, domain.n_items, n_users * each, rating_range=ends, seed=seed)
    return Ratings.from_scipy(ratings.matrix, domain)


def _words(models: str) -> list[str]:
    return [name.strip() for name in models.split(",") if name.strip()]


def _numbers(epsilons: str | None) -> list[float]:
    if epsilons is None:
        raise InputError("--epsilons is missing: say which to compare, for example --epsilons 1,5,10.")
    try:
        return [_Epsilon.of(part) for part in epsilons.split(",")]
    except ValueError:
        raise InputError(
            f"--epsilons {epsilons!r} is not a list of numbers; write for example 1,5,10,inf."
        ) from None


def _output_file(path: str | None, option: str) -> Path:
    """A path that can be written and is none of the command's inputs, found out before anything is spent."""
    if path is None:
        raise InputError(f"{option.split()[0]} is missing: say where the result goes, for example {option}.")
    target = Path(path)
    if target.is_symlink():  # written through, not replaced
        target = target.resolve()
    if target.exists() and not target.is_file() and not target.is_dir():
        raise InputError(f"{path!r} is not a regular file and would be replaced; pass another name.")
    if target.is_dir():
        raise InputError(f"{path!r} is a folder; pass the name of a file in it.")
    given = click.get_current_context().params
    inputs = [Path(value) for name, value in given.items() if value and name in _INPUTS]
    if target.exists() and any(other.exists() and target.samefile(other) for other in inputs):
        raise InputError(f"{path!r} is one of the inputs and would be overwritten; pass another name.")
    _check_writable(target.parent)
    return target


def _output_folder(path: str | None, option: str) -> Path:
    """A folder that can be written to, or can be made."""
    if path is None:
        raise InputError(
            f"{option} is missing: say which folder the result goes to, for example {option} results."
        )
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path!r} is a file; pass a folder.")
    _check_writable(folder if folder.exists() else folder.parent)
    return folder


def _check_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"Cannot write to {str(folder)!r} ({error.strerror});"
            " pass a path in a folder that exists and is writable."
        ) from None


# ---------------------------------------------------------------------- options that commands share


def _bundle(name: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Options that reach a command as one value, ``name=make(...)`` of what was given for them."""

    def add(command: Command) -> Command:
        def bundled(**arguments: Any) -> Any:
            given = {key: arguments.pop(key) for key in inspect.signature(make).parameters}
            return command(**arguments, **{name: make(**given)})

        wrapped: Command = functools.wraps(command)(bundled)
        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return add


_model_name = click.option(
    "--model",
    default="private-als",
    show_default=True,
    help="private-als: matrix factorisation, the one to use. dpals: Chien et al. 2021 as published."
    " one-bit-user: likes and dislikes. one-bit: likes, single labels protected. item-bias, global-mean,"
    " popular: baselines. als: no privacy. Or another paper's, by its name.",
)
_k = click.option("-k", "k", type=_POSITIVE, default=20, show_default=True, help="Length of the lists.")
_relevant_from = click.option(
    "--relevant-from", type=float, help="Held-out ratings from here up are relevant; by default all are."
)
_delta = click.option(
    "--delta", type=float, help="Chance left over by epsilon: well below one over the number of users."
)
_relation = click.option(
    "--relation",
    type=click.Choice(["add-remove", "replace"]),
    help="What one user is protected from: being known to be in the data, or any change of her ratings."
    "  [default: add-remove; replace for --unit rating]",
)
_budget_options = _bundle(
    "budget",
    _budget,
    click.option(
        "--epsilon",
        type=_Epsilon(),
        help="Privacy: smaller is safer, > 0; the word inf asks for none. No default.",
    ),
    _delta,
    _relation,
    click.option(
        "--unit",
        type=click.Choice(["user", "rating"]),
        default="user",
        show_default=True,
        help="What epsilon protects: all ratings of a user, or the value of one (--model one-bit only).",
    ),
)
_domain_options = _bundle(
    "domain",
    _domain,
    click.option(
        "--rating-range",
        type=(float, float),
        metavar="LOW HIGH",
        help="Declared lowest and highest rating; others are dropped.",
    ),
    click.option("--catalogue", metavar="FILE", help="Declared items: a text file, one item id a line."),
    click.option(
        "--max-ratings-per-user",
        type=int,
        help="Declared cap; a user's further ratings are sampled away.  [default: 10000]",
    ),
    click.option(
        "--item-features",
        metavar="FILE",
        help="Public facts of the items that private-als may learn from, at no privacy cost: a CSV or Parquet"
        " table with a column of item ids and columns of numbers, such as genres as 0 and 1.",
    ),
)
_size_options = _bundle(
    "sizes",
    _sizes,
    click.option(
        "--rating-range",
        type=(float, float),
        metavar="LOW HIGH",
        help="Declared lowest and highest rating; without it errors are in units of the range only.",
    ),
    click.option("--catalogue", metavar="FILE", help="Declared items: a text file, one item id a line."),
    click.option("--max-ratings-per-user", type=int, help="Declared cap.  [default: 10000]"),
    click.option("--items", "n_items", type=_POSITIVE, help="Number of items, instead of --catalogue."),
)
_reading_options = _bundle(
    "read",
    _reader,
    click.option(
        "--columns",
        metavar="ROLE=NAME,...",
        help="Names of the columns, for example user=uid,item=movie,rating=stars; usual names are found.",
    ),
    click.option(
        "--format",
        "file_format",
        help="parquet, csv, tsv, movielens-100k, movielens-dat or jester; told from the file's name.",
    ),
    click.option("--implicit", is_flag=True, help="Every row is a like of 1; a rating column is not needed."),
)
_users = click.option(
    "--users",
    "n_users",
    type=_POSITIVE,
    help="Declared number of users, if it is public; else it is released for a small share of the budget.",
)
_seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of initialisation, sampling and splits; privacy noise has none.",
)
_settings_options = _bundle(
    "settings",
    _one_bit,
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a hyper-parameter, for example --set rank=16; repeatable.",
    ),
    click.option(
        "--mechanism", help="one-bit: input, objective, gradient, output, output-published or none."
    ),
    click.option("--link", help="one-bit: logistic or probit."),
    click.option(
        "--threshold", type=float, help="one-bit, one-bit-user: ratings above it are likes; declared."
    ),
)
_ledger_path = click.option(
    "--ledger",
    "ledger_path",
    metavar="FILE",
    help="Where charges are recorded.  [default: one ledger for this account]",
)
_dataset = click.option(
    "--dataset",
    default="default",
    show_default=True,
    help="Name of these users in the ledger: runs on the same users must share it.",
)
_charge_options = _bundle(
    "charge_to",
    Charging,
    _ledger_path,
    _dataset,
    click.option(
        "--data-is-public",
        is_flag=True,
        help="Nobody's ratings are private: charge nothing, and stamp every result NOT PRIVATE.",
    ),
)
_progress = _bundle(
    "progress",
    _shown,
    click.option("--no-progress", is_flag=True, help="No progress bar (none without a terminal)."),
)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 refused by a budget or failed, 2 bad input, 130 interrupted.",
)
@click.version_option(__version__, message="hushrec %(version)s")
def cli() -> None:
    """Train, judge and use recommenders under user-level differential privacy.

    A model file holds only values that were released with noise, so it may be published. Every user is
    served by folding her own ratings in.

    \b
    hushrec plan  --epsilon 5 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
    hushrec train ratings.parquet --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                  --catalogue items.txt --out model.hush
    hushrec report model.hush
    hushrec recommend model.hush history.parquet --user 42
    """


def main() -> None:
    """Entry point of the ``hushrec`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an id that the terminal cannot show is no error
            stream.reconfigure(errors="backslashreplace")
    cli()


# ---------------------------------------------------------------------- commands


@cli.command()
@click.argument("ratings_path", metavar="RATINGS")
@_model_name
@_budget_options
@_domain_options
@click.option("--out", "out_path", metavar="FILE", help="Where the model goes.")
@_users
@_settings_options
@_seed
@_reading_options
@_charge_options
@_progress
@_json
def train(
    ratings_path: str,
    model: str,
    budget: Budget,
    domain: Domain,
    out_path: str | None,
    n_users: int | None,
    settings: dict[str, Any],
    seed: int,
    read: Reader,
    charge_to: Charging,
    progress: bool,
    as_json: bool,
) -> None:
    """Train a model on private RATINGS (Parquet, CSV, TSV, MovieLens or Jester file).

    The budget, the item catalogue and the rating range are declared, never read from the ratings. Settings
    that are not given are chosen from epsilon, the catalogue, the range and the number of users. What the
    run spends is charged in the ledger before it is released, and stays charged if the run fails.

    \b
    hushrec train ratings.parquet --model private-als --epsilon 5 --delta 1e-6 \\
                  --rating-range 1 5 --catalogue items.txt --out model.hush
    hushrec train likes.csv --implicit --model private-eigenrec --epsilon 1 --delta 1e-6 \\
                  --rating-range 0 1 --catalogue items.txt --out likes.hush
    hushrec train ratings.parquet --model one-bit --mechanism input --threshold 3.5 --unit rating \\
                  --epsilon 4 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --out likes.hush
    """
    from hushrec.evaluation.runs import check_run
    from hushrec.evaluation.runs import train as run
    from hushrec.privacy import Accountant

    check_run(model, budget, domain, n_users, settings)
    _check_features(model, domain)
    out = _output_file(out_path, "--out model.hush")
    ratings = read(ratings_path, domain)
    accountant = Accountant(budget, **charge_to())
    billboard = run(
        model, ratings, accountant, n_users=n_users, settings=settings, seed=seed, progress=progress
    )
    _save(billboard, out)
    _warn_of_the_number_of_users(billboard, n_users)
    if as_json:
        _print_json({"file": str(out), **_described(billboard)})
    else:
        click.echo(f"Trained {model} and wrote {out}\n{_about(billboard)}")


@cli.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("history_path", metavar="HISTORY")
@click.argument("test_path", metavar="TEST")
@_k
@_relevant_from
@click.option(
    "--resamples",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Bootstrap resamples behind the intervals.",
)
@_seed
@_reading_options
@_json
def evaluate(
    model_path: str,
    history_path: str,
    test_path: str,
    k: int,
    relevant_from: float | None,
    resamples: int,
    seed: int,
    read: Reader,
    as_json: bool,
) -> None:
    """Measure MODEL on held-out ratings TEST, users folded in from HISTORY.

    RMSE and MAE over all held-out ratings, Recall, NDCG and catalogue coverage of the lists, each with a 95%
    bootstrap interval over users. Users without a history are served from the released values alone. The
    figures are computed without noise: keep them to yourself.

    \b
    hushrec evaluate model.hush train.parquet test.parquet
    hushrec evaluate model.hush train.parquet test.parquet --relevant-from 4 -k 10 --json
    """
    from hushrec.evaluation import evaluate as measure

    billboard = _model(model_path)
    history = read(history_path, billboard.domain)
    targets = read(test_path, billboard.domain)
    result = measure(
        billboard, history, targets, k=k, relevant_from=relevant_from, resamples=resamples, seed=seed
    )
    if as_json:
        _print_json({"model": billboard.estimator.name, **result.to_dict()})
    else:
        click.echo(result.text())


@cli.command()
@click.argument("model_path", metavar="MODEL")
@click.argument("history_path", metavar="HISTORY")
@click.option("--user", help="Serve this user; one without ratings in HISTORY gets the list for newcomers.")
@click.option("--all-users", is_flag=True, help="Serve every user in HISTORY; needs --out-dir or --out.")
@click.option("-n", "n", type=_POSITIVE, default=10, show_default=True, help="Items per user.")
@click.option("--items", "items_path", metavar="FILE", help="Recommend among these only: one item id a line.")
@click.option("--include-seen", is_flag=True, help="Allow items that the user has rated.")
@click.option("--out-dir", metavar="DIR", help="One CSV file per user, named by her percent-encoded id.")
@click.option(
    "--out", "out_path", metavar="FILE.parquet", help="One file for all users, marked private inside."
)
@_reading_options
@_json
def recommend(
    model_path: str,
    history_path: str,
    user: str | None,
    all_users: bool,
    n: int,
    items_path: str | None,
    include_seen: bool,
    out_dir: str | None,
    out_path: str | None,
    read: Reader,
    as_json: bool,
) -> None:
    """Recommend items to one user or to all, from MODEL and the users' own ratings in HISTORY.

    A user's list is computed from her own ratings: show it to her alone. For many users there is one file
    per user, or one file marked private.

    \b
    hushrec recommend model.hush history.parquet --user 42 -n 10
    hushrec recommend model.hush history.parquet --all-users --out-dir lists/
    hushrec recommend model.hush history.parquet --all-users --out lists.private.parquet
    """
    from hushrec.data import Domain

    if user is not None and all_users:
        raise InputError("Pass --user ID or --all-users, not both.")
    if user is None and not all_users:
        raise InputError("Pass --user ID for one user, or --all-users for every user in the history.")
    if all_users and (out_dir is None) == (out_path is None):
        raise InputError(
            "--all-users needs --out-dir DIR (one file per user) or --out FILE.parquet (one file)."
        )
    if out_path is not None and Path(out_path).suffix.lower() not in (".parquet", ".pq"):
        raise InputError(f"--out {out_path!r} is written as Parquet; give it a name that ends in .parquet.")
    if user is not None and (out_dir or out_path):
        raise InputError("--out and --out-dir are for --all-users; one user's list is printed.")
    billboard = _model(model_path)
    items = None if items_path is None else Domain.read_catalogue(items_path)
    folder = None if out_dir is None else _output_folder(out_dir, "--out-dir")
    out = None if out_path is None else _output_file(out_path, "--out")
    history = read(history_path, billboard.domain)
    if user is not None:
        _recommend_one(billboard, history, user, n, not include_seen, items, as_json)
        return
    table = billboard.recommend_batch(history, n, exclude_seen=not include_seen, items=items)
    if folder is not None:
        _write_files(table, folder)
        target = folder
    else:
        assert out is not None
        _write_private_table(table, out)
        target = out
    if as_json:
        _print_json({"users": history.n_users, "path": str(target), "note": _PRIVATE_TABLE})
    else:
        click.echo(f"Wrote the lists of {history.n_users:,} users to {target}\n{_PRIVATE_TABLE}.")


@cli.command()
@click.argument("model_path", metavar="MODEL")
@_json
def report(model_path: str, as_json: bool) -> None:
    """Say what MODEL is and what it promises. Reads the model file and nothing else.

    \b
    hushrec report model.hush
    hushrec report model.hush --json
    """
    billboard = _model(model_path)
    if as_json:
        _print_json(_described(billboard))
        return
    click.echo(f"Model:      {billboard.estimator.name}\n{_about(billboard)}")


@cli.command()
@_model_name
@_budget_options
@_size_options
@_users
@click.option(
    "--ratings-per-user",
    type=click.FloatRange(min=1),
    default=50,
    show_default=True,
    help="Mean number of ratings that a user has, for the expected error.",
)
@_settings_options
@_json
def plan(
    model: str,
    budget: Budget,
    sizes: tuple[Domain | None, int],
    n_users: int | None,
    ratings_per_user: float,
    settings: dict[str, Any],
    as_json: bool,
) -> None:
    """Show the noise and the error of a configuration, and how many users it needs, without any data.

    mu is the cost of a release: the squares of all releases' mu add up to the square of the budget's, and
    share is a release's part of that sum. The error is that of generated ratings (docs/how-many-users.md).

    \b
    hushrec plan --users 50000 --items 2000 --epsilon 1 --delta 1e-6
    hushrec plan --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
    hushrec plan --model item-bias --epsilon 1 --delta 1e-6 --rating-range 1 5 --catalogue items.txt
    """
    from hushrec.evaluation.runs import choose, needs_user_count

    domain, n_items = sizes
    simulated = model in ("private-als", "item-bias") and budget.unit == "user" and not settings
    if n_users is None and (needs_user_count(model) or domain is None):
        raise InputError(
            f"{model} is tuned to the number of users: say for how many, for example --users 6000."
            if needs_user_count(model)
            else "The error depends on the number of users: say for how many, for example --users 6000."
        )
    if domain is None and not simulated:
        raise InputError(
            "Expected errors are known for private-als and item-bias with planned settings and budgets of"
            " users; for what another configuration releases pass --rating-range too."
        )
    result: dict[str, Any] = {"model": model}
    text = [f"Model:      {model}", f"Budget:     {budget}, mu = {_short(budget.mu)}"]
    if not budget.private:
        text[0] += "   NOT PRIVATE"
    if domain is not None:
        estimator = choose(model, budget, domain, n_users=n_users, settings=settings)
        planned = estimator.plan(budget, domain)
        result |= {"hyper_parameters": estimator.hyper_parameters(), **_planned(planned)}
        text[1:1] = [_settings_line(estimator)]
        text += ["", _plan_table(planned)]
    if simulated and n_users is not None:
        expected = _Expected(budget, n_users, n_items, ratings_per_user, domain)
        result["expected"] = expected.to_dict()
        text += ["", expected.text()]
    if as_json:
        _print_json(result)
    else:
        click.echo("\n".join(text))


@cli.command()
@click.argument("ratings_path", metavar="RATINGS")
@_bundle(
    "models",
    _words,
    click.option(
        "--models", default="private-als,item-bias", show_default=True, help="Models, separated by commas."
    ),
)
@_bundle(
    "epsilons",
    _numbers,
    click.option(
        "--epsilons",
        help="Privacy levels, separated by commas; inf adds the non-private reference. No default.",
    ),
)
@_delta
@_domain_options
@click.option("--out-dir", metavar="DIR", help="Where table and plot go.")
@click.option(
    "--holdout", type=float, default=0.2, show_default=True, help="Share of the ratings to test on."
)
@click.option("--draws", type=_POSITIVE, default=1, show_default=True, help="Runs of each cell.")
@_k
@_relevant_from
@_relation
@_users
@_bundle(
    "settings",
    _settings_by_model,
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="MODEL.NAME=VALUE",
        help="Set a hyper-parameter of a model, for example --set private-als.rank=16; repeatable.",
    ),
)
@_seed
@_reading_options
@_charge_options
@_progress
@_json
def compare(
    ratings_path: str,
    models: list[str],
    epsilons: list[float],
    delta: float | None,
    domain: Domain,
    out_dir: str | None,
    holdout: float,
    draws: int,
    k: int,
    relevant_from: float | None,
    relation: str | None,
    n_users: int | None,
    settings: dict[str, dict[str, Any]],
    seed: int,
    read: Reader,
    charge_to: Charging,
    progress: bool,
    as_json: bool,
) -> None:
    """Train several models over several epsilons on RATINGS; write a table and the privacy-utility plot.

    Part of the ratings is held out for testing. The baselines that every private model must beat are always
    in it. Every run is charged in the ledger and the total is printed; if all runs together do not fit, none
    is made. Or declare --data-is-public: nothing is charged and every result is stamped NOT PRIVATE.

    \b
    hushrec compare ratings.parquet --models private-als,item-bias --epsilons 1,5,10 --delta 1e-6 \\
                    --rating-range 1 5 --catalogue items.txt --out-dir comparison
    hushrec compare movies.csv --epsilons 1,5,10,inf --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --data-is-public --out-dir comparison
    """
    from hushrec.data.splits import split_ratings
    from hushrec.evaluation import compare as run

    budget = _budget(min(epsilons), delta, relation)
    if not 0 < holdout < 1:
        raise InputError(
            f"--holdout {holdout:g} is out of range; pass a share between 0 and 1, for example 0.2."
        )
    folder = _output_folder(out_dir, "--out-dir")
    train_part, test_part = split_ratings(read(ratings_path, domain), (1 - holdout, holdout), seed=seed)
    comparison = run(
        train_part,
        test_part,
        models,
        epsilons,
        delta=budget.delta,
        relation=budget.relation,
        n_users=n_users,
        settings=settings,
        draws=draws,
        k=k,
        relevant_from=relevant_from,
        seed=seed,
        on_run=_say_run(budget) if progress else None,
        **charge_to(),
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = comparison.write(folder)
    if as_json:
        files = {kind: str(path) for kind, path in paths.items()}
        _print_json({**comparison.to_dict(), "files": files})
    else:
        click.echo(comparison.markdown())
        click.echo(f"Table: {paths['parquet']}, {paths['md']}\nPlot:  {paths['png']}, {paths['svg']}")


_failure = click.option(
    "--failure",
    type=float,
    help="Part of delta reserved for private choices.  [default: of `tune` all, of a ledger's budget none]",
)


@cli.group()
def ledger() -> None:
    """Look at what was charged to a data set, or give it a budget.

    \b
    hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
    hushrec ledger show --dataset shop
    hushrec ledger close --dataset shop
    """


@ledger.command("show")
@_ledger_path
@_dataset
@click.option(
    "--delta", type=float, help=f"At which epsilon is given.  [default: the budget's, else {_SHOWN_DELTA:g}]"
)
@_json
def ledger_show(ledger_path: str | None, dataset: str, delta: float | None, as_json: bool) -> None:
    """Print what all runs on a data set have been charged together, and how it grew from run to run.

    \b
    hushrec ledger show
    hushrec ledger show --ledger team.sqlite --dataset shop --json
    """
    book = _ledger(ledger_path, create=False)
    try:
        summary = book.summary(dataset, delta)
    except InputError:
        if delta is not None:
            raise
        summary = book.summary(dataset, _SHOWN_DELTA)
    history = book.history(dataset, summary.delta)
    if as_json:
        runs = [asdict(run) for run in history]
        _print_json({"ledger": str(book.path), **summary.to_dict(), "history": runs})
    else:
        left = book.left(dataset)
        rest = f"; {left}" if left and not summary.closed else ""
        click.echo(f"{summary}{rest}.\nLedger: {book.path}{_growth(history)}")


@ledger.command("open")
@_ledger_path
@_dataset
@_budget_options
@_failure
@_json
def ledger_open(
    ledger_path: str | None, dataset: str, budget: Budget, failure: float | None, as_json: bool
) -> None:
    """Give a data set a budget that all its runs share; later it can be lowered, never raised.

    Only a budget with --failure allows `hushrec tune` on private ratings.

    \b
    hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
    """
    budget = replace(budget, failure=failure or 0.0)
    book = _ledger(ledger_path)
    book.open_dataset(dataset, budget)
    if as_json:
        _print_json({"ledger": str(book.path), **book.summary(dataset).to_dict()})
    else:
        click.echo(f'Data set "{dataset}" has the budget {budget}.\nLedger: {book.path}')


cli.add_command(_outsourcing.serve_completion)
cli.add_command(_outsourcing.node)
cli.add_command(_audit.audit)


@ledger.command("close")
@_ledger_path
@_dataset
@_json
def ledger_close(ledger_path: str | None, dataset: str, as_json: bool) -> None:
    """Allow no further charge to a data set, for good.

    \b
    hushrec ledger close --dataset shop
    """
    book = _ledger(ledger_path, create=False)
    book.close_dataset(dataset)
    if as_json:
        _print_json({"ledger": str(book.path), "dataset": dataset, "closed": True})
    else:
        click.echo(f'Data set "{dataset}" is closed: nothing more can be charged to it.\nLedger: {book.path}')


@cli.command()
@click.argument("ratings_path", metavar="[RATINGS]", required=False)
@_model_name
@_bundle(
    "choices",
    _choices,
    click.option(
        "--try",
        "tried",
        multiple=True,
        metavar="NAME=V1,V2,...",
        help="Values of a setting to try, for example --try rank=4,8; repeatable, giving all combinations.",
    ),
)
@_budget_options
@_domain_options
@click.option("--out", "out_path", metavar="FILE", help="Where the best model goes (private choice only).")
@click.option(
    "--generated",
    "n_generated",
    type=_POSITIVE,
    metavar="USERS",
    help="Try on generated ratings of this many users instead of RATINGS: free.",
)
@click.option("--mean-runs", type=float, default=10.0, show_default=True, help="Expected number of runs.")
@_failure
@_seed
@_reading_options
@_charge_options
@_json
def tune(
    ratings_path: str | None,
    model: str,
    choices: dict[str, list[Any]],
    budget: Budget,
    domain: Domain,
    out_path: str | None,
    n_generated: int | None,
    mean_runs: float,
    failure: float | None,
    seed: int,
    read: Reader,
    charge_to: Charging,
    as_json: bool,
) -> None:
    """Choose hyper-parameters. Do it on generated ratings first: that is free and usually enough.

    With --generated, or with --data-is-public and RATINGS, every combination is tried and listed, best
    first, and no budget is spent. On private RATINGS a random number of combinations is tried, only the best
    model is written, and the whole is charged before the first run; how many were tried is told to nobody.

    \b
    hushrec tune --generated 6000 --model private-als --try rank=4,8 --try user_variance=0.2,0.4 \\
                 --epsilon 5 --delta 1e-6 --rating-range 1 5 --catalogue items.txt
    hushrec tune ratings.parquet --model item-bias --try clip=0.3,0.45,0.6 --epsilon 5 --delta 1e-6 \\
                 --rating-range 1 5 --catalogue items.txt --out model.hush
    """
    from hushrec.evaluation.tuning import grid, rank
    from hushrec.evaluation.tuning import tune as run
    from hushrec.privacy import Accountant

    if ratings_path is not None and n_generated is not None:
        raise InputError("Pass RATINGS or --generated USERS, not both.")
    if out_path is not None and (n_generated or charge_to.data_is_public):
        raise InputError("Nothing is trained for keeps where all is tried and listed; leave --out away.")
    if ratings_path is None and n_generated is None:
        raise InputError("Pass RATINGS, or --generated USERS to try on generated ratings.")
    candidates = grid(choices)
    ratings = _generated(n_generated, domain, seed) if n_generated else None
    if charge_to.data_is_public and ratings_path is not None:
        ratings = read(ratings_path, domain)
    if ratings is not None:
        trials = rank(ratings, model, candidates, budget, seed=seed)
        listed = [{"settings": dict(trial.settings), "rmse": trial.rmse} for trial in trials]
        if as_json:
            _print_json({"model": model, "epsilon": budget.epsilon, "trials": listed})
        else:
            words = [
                ", ".join(f"{k}={v}" for k, v in trial.settings.items()) or "as planned" for trial in trials
            ]
            kind = "generated" if n_generated else "public"
            click.echo(f"{model} on {kind} ratings, no budget spent, budget of each run: {budget}")
            click.echo("    RMSE  (best first)")
            click.echo("\n".join(f"{trial.rmse:8.4f}  {word}" for trial, word in zip(trials, words)))
        return
    assert ratings_path is not None
    out = _output_file(out_path, "--out model.hush")
    ratings = read(ratings_path, domain)
    reserved = replace(budget, failure=budget.delta if failure is None else failure)
    accountant = Accountant(reserved, **charge_to())
    billboard = run(ratings, model, candidates, accountant, mean_runs=mean_runs, seed=seed)
    _save(billboard, out)
    if as_json:
        _print_json({"file": str(out), **_described(billboard)})
    else:
        click.echo(f"Chose {model} and wrote {out}\n{_about(billboard)}")


# ---------------------------------------------------------------------- from values to output


def _about(billboard: Billboard) -> str:
    """Settings, domain and privacy statement, for a reader."""
    domain = billboard.domain
    return (
        f"{_settings_line(billboard.estimator)}\n"
        f"Domain:     {domain.n_items:,} items, ratings from {domain.low:g} to {domain.high:g},"
        f" at most {domain.max_ratings_per_user:,} per user\n\n{billboard.privacy.text()}"
    )


def _settings_line(estimator: Algorithm) -> str:
    settings = ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in estimator.hyper_parameters().items()
    )
    return textwrap.fill(settings or "none", 100, initial_indent="Settings:   ", subsequent_indent=" " * 12)


def _described(billboard: Billboard) -> dict[str, Any]:
    domain = billboard.domain
    return {
        "model": billboard.estimator.name,
        "hyper_parameters": billboard.estimator.hyper_parameters(),
        "n_items": domain.n_items,
        "rating_range": [domain.low, domain.high],
        "max_ratings_per_user": domain.max_ratings_per_user,
        "privacy": billboard.privacy.to_dict(),
    }


def _save(billboard: Billboard, out: Path) -> None:
    try:
        billboard.save(out)
    except InputError as error:  # too late for bad input: the budget is spent
        raise HushrecError(f"The model was trained and charged but could not be saved: {error}") from None


def _warn_of_the_number_of_users(billboard: Billboard, declared: int | None) -> None:
    """Say what the declared or released number of users tells of the run; nothing else is looked at."""
    released = [each for each in billboard.privacy.releases if each.label == "number of users"]
    number = declared if declared is not None else getattr(billboard.estimator, "n_users", None)
    if number is None:
        return
    if released and declared is None and number <= 4 * released[0].noise_sd:
        click.echo(
            f"Warning: the released number of users, {number:,}, is no different from none. Do --columns,"
            " --format, --catalogue and --rating-range fit the ratings?",
            err=True,
        )
    delta = billboard.privacy.budget.delta
    if billboard.privacy.private and delta * number >= 1:
        click.echo(
            f"Warning: delta = {delta:g} is not below one over the number of users, so the promise allows"
            " somebody's rows to be told outright; 1e-6 or less is usual.",
            err=True,
        )


def _growth(history: list[RunSummary]) -> str:
    """A line a run: what all runs so far cost together."""
    lines = [
        "",
        "",
        f"{'run':>4}  {'time (UTC)':25}  {'charges':>7}  {'mu so far':>9}  {'epsilon so far':>14}",
    ]
    lines += [
        f"{number:>4}  {run.time:25}  {run.charges:>7}  {run.mu:>9.4g}  {run.epsilon:>14.6g}"
        for number, run in enumerate(history, 1)
    ]
    return "\n".join(lines) if history else ""


@dataclass(frozen=True)
class _Expected:
    """Expected errors of a configuration, for a reader or for JSON."""

    budget: Budget
    n_users: int
    n_items: int
    ratings_per_user: float
    domain: Domain | None

    def _loss(self) -> ExpectedLoss:
        from hushrec.evaluation.expected_loss import expected_loss

        return expected_loss(self.budget, self.n_users, self.n_items, self.ratings_per_user)

    def _users(self, kept: float) -> int | None:
        from hushrec.evaluation.expected_loss import users_needed

        return users_needed(self.budget, self.n_items, self.ratings_per_user, kept=kept)

    def to_dict(self) -> dict[str, Any]:
        return {
            "n_users": self.n_users,
            "n_items": self.n_items,
            "ratings_per_user": self.ratings_per_user,
            "rmse_in_rating_ranges": self._loss().to_dict(),
            "users_to_keep_half_of_the_gain": self._users(0.5),
            "users_to_keep_nine_tenths": self._users(0.9),
        }

    def text(self) -> str:
        loss = self._loss()
        rows = [
            ("no privacy", loss.non_private),
            ("private-als", loss.private_als),
            ("item-bias", loss.item_bias),
            ("each user's own mean, no model", loss.user_mean),
        ]
        on = "" if self.domain is None else f"   on {self.domain.low:g} to {self.domain.high:g}"
        lines = [
            f"Expected test error with {self.n_users:,} users, {self.n_items:,} items,"
            f" {self.ratings_per_user:g} ratings a user:",
            "",
            f"{'RMSE':30}  {'% of the rating range':>23}{on}",
        ]
        for name, each in rows:
            of_range = f"{each.value:.1%} ({each.low:.1%} to {each.high:.1%})"
            units = "" if self.domain is None else f"   {2 * self.domain.half_width * each.value:.3f}"
            lines.append(f"{name:30}  {of_range:>23}{units}")
        kept = f"keeps {loss.kept.value:.0%} ({loss.kept.low:.0%} to {loss.kept.high:.0%})"
        relative = loss.private_als.value / loss.non_private.value - 1
        half, most = self._users(0.5), self._users(0.9)
        lines += [
            "",
            f"Privacy costs {loss.cost.value:.1%} of the range ({loss.cost.low:.1%} to {loss.cost.high:.1%}),"
            f" that is {relative:.0%} of the error without privacy; of what a",
            f"model gains over the users' own means private-als {kept}. For half of the gain it",
            f"takes {_count(half)} users, for nine tenths {_count(most)}.",
        ]
        if loss.item_bias.value < loss.private_als.value:
            lines.append("item-bias is expected to be the better model here: pass --model item-bias.")
        lines += [
            "In brackets: what people of fainter and of stronger tastes, and chance, would make of it"
            " (docs/how-many-users.md).",
        ]
        if not loss.inside:
            lines.append(
                "This is outside of what was simulated: the figures are those of the nearest border."
            )
        return "\n".join(lines)


def _count(number: int | None) -> str:
    if number is None:
        return "more than 1,000,000"
    return "no more than 1,000" if number <= 1000 else f"about {number:,}"


def _shares(planned: Plan) -> list[float]:
    total = planned.mu**2
    return [release.mu**2 / total if math.isfinite(total) else math.nan for release in planned.releases]


def _planned(planned: Plan) -> dict[str, Any]:
    budget = planned.budget
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": budget.unit,
        "relation": budget.relation,
        "mu": budget.mu,
        "planned_epsilon": planned.epsilon,
        "planned_mu": planned.mu,
        "releases": [
            {**release.to_dict(), "share": share}
            for release, share in zip(planned.releases, _shares(planned), strict=True)
        ],
    }


def _plan_table(planned: Plan) -> str:
    header = ("release", "mechanism", "sensitivity", "noise sd", "mu", "share")
    rows = [
        (
            release.label,
            type(release.mechanism).__name__,
            _short(release.sensitivity),
            _short(release.noise_sd),
            _short(release.mu),
            "-" if math.isnan(share) else f"{share:.1%}",
        )
        for release, share in zip(planned.releases, _shares(planned), strict=True)
    ]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths))
        )
        for row in [header, *rows]
    ]
    together = f"Together: epsilon = {_short(planned.epsilon)} at delta = {planned.budget.delta:g}"
    return "\n".join(
        [*lines, "", f"{together} (unit: {planned.budget.unit}, relation: {planned.budget.relation})"]
    )


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"


def _say_run(budget: Budget) -> Callable[[str, float, int], None]:
    def say(model: str, epsilon: float, draw: int) -> None:
        words = "without privacy" if math.isinf(epsilon) else f"under {replace(budget, epsilon=epsilon)}"
        click.echo(f"training {model} {words}, draw {draw + 1}", err=True)

    return say


def _recommend_one(
    billboard: Billboard,
    history: Ratings,
    user: str,
    n: int,
    exclude_seen: bool,
    items: list[str] | None,
    as_json: bool,
) -> None:
    known = bool(history.user_index([user])[0] >= 0)
    rows = billboard.recommend_batch(
        history.for_users([user]), n, exclude_seen=exclude_seen, items=items
    ).to_pylist()
    if as_json:
        listed = [{key: row[key] for key in ("rank", "item", "score")} for row in rows]
        _print_json({"user": user, "known": known, "items": listed})
        return
    domain = billboard.domain
    what = (
        ""
        if known
        else f", who has no ratings from {domain.low:g} to {domain.high:g} of items in the catalogue in the"
        " history: the list for newcomers"
    )
    click.echo(f"For user {user} alone{what}")
    width = max([4, *(len(str(row["item"])) for row in rows)])
    click.echo(f"rank  {'item':{width}}  score")
    for row in rows:
        click.echo(f"{row['rank']:>4}  {row['item']!s:{width}}  {row['score']:.3f}")


def _write_private_table(table: Any, out: Path) -> None:
    import pyarrow.parquet as pq

    from hushrec.modelfile import write_atomically

    buffer = io.BytesIO()
    marked = table.replace_schema_metadata({**(table.schema.metadata or {}), "hushrec": _PRIVATE_TABLE})
    pq.write_table(marked, buffer)
    write_atomically(out, [buffer.getvalue()])
    if "private" not in out.name.lower():
        click.echo(
            f"Note: {out.name} is private; a name such as {out.stem}.private.parquet says so.", err=True
        )


def _write_files(table: Any, folder: Path) -> None:
    """One CSV file per user; rows of a user stand together in the table."""
    import csv

    users, items = table["user"].to_pylist(), table["item"].to_pylist()
    ranks, scores = table["rank"].to_pylist(), table["score"].to_pylist()
    folder.mkdir(mode=0o700, exist_ok=True)
    starts = [i for i in range(len(users)) if i == 0 or users[i] != users[i - 1]]
    names = _file_names([users[start] for start in starts])
    for name, start, stop in zip(names, starts, [*starts[1:], len(users)]):
        try:
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["rank", "item", "score"])
                writer.writerows(zip(ranks[start:stop], items[start:stop], scores[start:stop]))
        except OSError as error:
            raise InputError(
                f"Cannot write {str(folder / name)!r} ({error.strerror}); free space or pass another folder."
            ) from None


def _file_names(users: list[Any]) -> list[str]:
    """A file name for each user id: readable, valid on any system, and different for different ids.

    The id is percent-encoded. A hash is added where the name would be too long, is reserved, or differs from
    another's in upper and lower case only.
    """
    encoded = [
        quote(str(user), safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
        for user in users
    ]
    folded: dict[str, int] = {}
    for name in encoded:
        folded[name.casefold()] = folded.get(name.casefold(), 0) + 1
    names = []
    for user, name in zip(users, encoded):
        if len(name) > _LONGEST_NAME or folded[name.casefold()] > 1 or name.casefold() in _RESERVED_NAMES:
            digest = hashlib.sha256(str(user).encode("utf-8", "surrogatepass")).hexdigest()[:32]
            name = f"{name[: _LONGEST_NAME - 40].rstrip('%')}~{digest}"
        names.append(f"{name}.csv")
    return names
