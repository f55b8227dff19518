"""A dossier held against its signature, its model, its ledger's chain and its own arithmetic.

Epsilon is recomputed from the recorded mechanisms by formulas of this file, not by those that printed it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, log_ndtr, ndtri

from hushrec.dossier.bounds import learned
from hushrec.dossier.certifying import (
    COLUMNS,
    FORMAT,
    VERSION,
    charged_to,
    code,
    described,
    season_entry,
    worded,
)
from hushrec.dossier.form import parsed
from hushrec.dossier.signing import signed
from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Ledger
from hushrec.privacy.budget import guarantee
from hushrec.privacy.schema import GENESIS
from hushrec.serving.billboard import Billboard

_BOOK = {"dataset", "unit", "relation", "closed", "head", "charges", "runs", "budget", "seasons"}
_PARTS = {
    "format", "version", "made", "controller", "model", "promise", "ledger", "learned", "attacks", "code",
    "not_covered", "deletion", "questions", "signature",
}  # fmt: skip
_HASH = re.compile("[0-9a-f]{64}")
#: What a damaged dossier can raise.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, HushrecError)


class Check(NamedTuple):
    """One line of `hushrec verify`.

    Attributes
    ----------
    what : str
    passed : bool
    words : str
        What was found, or what is wrong.
    """

    what: str
    passed: bool
    words: str


class _Wrong(ValueError):
    """A check that fails, with what is said of it."""


def check(
    content: bytes, model: str | Path, *, ledger: Ledger | None = None, public_key: str | None = None
) -> list[Check]:
    """Hold a dossier against everything that it names.

    Parameters
    ----------
    content : bytes
        Of the file.
    model : str or path
        The model file that the dossier should be about.
    ledger : Ledger, optional
        That of the training: without it, links to charges of other data sets are not followed.
    public_key : str, optional
        Whose signature it must be, 32 bytes in hexadecimal; without it, the key in the dossier is named.

    Returns
    -------
    list of Check
        One that fails proves the dossier wrong; where the form fails, nothing else is looked at.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.save("model.hush")
    >>> facts = hushrec.dossier.certify("model.hush", book, controller="ACME GmbH", attacks=False)
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> dossier = hushrec.dossier.sign(facts, Ed25519PrivateKey.generate())
    >>> content = hushrec.dossier.canonical(dossier)          # as hushrec certify writes it
    >>> [line.what for line in hushrec.dossier.check(content, "model.hush") if line.passed]
    ['form', 'signature', 'model', 'chain', 'arithmetic']
    """
    try:
        dossier = parsed(content)
        if (dossier["format"], dossier["version"]) != (FORMAT, VERSION):
            raise ValueError("it is of another format or version")
        if set(dossier) != _PARTS:
            raise ValueError("it holds more or less than certify writes")
    except _WRONG as error:
        return [Check("form", False, f"the file is no dossier, or was changed: {_said(error)}")]
    octets = _content(model)
    checks: list[tuple[str, Callable[[], str]]] = [
        ("signature", lambda: _signature(dossier, public_key)),
        ("model", lambda: _model(dossier, octets)),
        ("chain", lambda: _chain(dossier["ledger"])),
        ("arithmetic", lambda: _arithmetic(dossier)),
    ]
    if ledger is not None:
        checks.append(("ledger", lambda: _ledger(dossier["ledger"], ledger)))
    same = "the code that" if dossier.get("code") == code() else "other code than"
    found = [Check("form", True, f"made {dossier.get('made')} by {same} is installed here")]
    for what, look in checks:
        try:
            found.append(Check(what, True, look()))
        except _WRONG as error:
            found.append(Check(what, False, _said(error)))
    return found


def _said(error: Exception) -> str:
    """Words for a reader, who did not write the dossier."""
    known = isinstance(error, _Wrong | HushrecError)
    return str(error) if known else f"what it says is out of place ({type(error).__name__})"


def _content(model: str | Path) -> bytes:
    try:
        return Path(model).read_bytes()
    except OSError as error:
        raise InputError(
            f"Model file {str(model)!r} cannot be read ({error.strerror}); check the path."
        ) from None


def _signature(dossier: dict[str, Any], public_key: str | None) -> str:
    key = dossier["signature"]["public_key"]
    if not signed(dossier):
        raise _Wrong("it is not that of the key in the dossier; something was changed")
    if public_key is None:
        return f"by key {key}; whose that is, --public-key can tell"
    if key != public_key:
        raise _Wrong(f"it is by another key, {key}")
    return f"by the key that was passed, {key}"


def _model(dossier: dict[str, Any], octets: bytes) -> str:
    """The file is the one that is named, and what it promises and released is what the dossier says."""
    named, book = dossier["model"], dossier["ledger"]
    if (hashlib.sha256(octets).hexdigest(), len(octets)) != (named["sha256"], named["bytes"]):
        raise _Wrong("the model file is another one")
    board = Billboard.from_bytes(octets)
    budget, released = board.privacy.budget, board.privacy.releases
    if not board.privacy.private or {**budget.promise, "failure": budget.failure} != dossier["promise"]:
        raise _Wrong("the model's own statement promises something else")
    if (book["unit"], book["relation"]) != (budget.unit, budget.relation):
        raise _Wrong("the ledger counts another unit or relation")
    if described(board, octets) != named:
        raise _Wrong("the model is not as it is described")
    charges = [row for row in book["charges"] if row[2] in book["runs"]]
    if not charges or charged_to(board.privacy, charges) != book["runs"]:
        raise _Wrong("the model's releases are not charged as it says")
    costs = _read([(repr(each.mechanism), each.mu, each.epsilon, each.failure) for each in released])
    _equal("the model's cost", dossier["learned"][0], *_total(costs), _pure(costs))
    return f"{named['name']}, SHA-256 {named['sha256']}; its releases are in the chain"


def _chain(book: dict[str, Any]) -> str:
    """Each charge has its hash, which follows from the one before it, up to the head."""
    head, last, gaps = book["head"], (0, GENESIS), 0
    whole = type(head["count"]) is int and _HASH.fullmatch(head["hash"])
    if set(book) != _BOOK or set(head) != {"count", "hash"} or not whole:
        raise _Wrong("the ledger's part holds more or less than it should")
    for row in book["charges"]:
        if len(row) != len(COLUMNS) or row[1] != book["dataset"] or type(row[0]) is not int:
            raise _Wrong("a charge is of another data set")
        if (row[10], row[11]) != (book["unit"], book["relation"]):
            raise _Wrong("a charge is of another unit or relation")
        if row[-1] != hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest():
            raise _Wrong(f"charge {row[0]} has not its hash")
        if row[0] <= last[0] or (row[0] == last[0] + 1 and row[-2] != last[1]):
            raise _Wrong(f"charge {row[0]} does not follow the one before it")
        gaps += row[0] != last[0] + 1
        last = row[0], row[-1]
    if head["count"] < last[0] or (head["count"] == last[0] and head["hash"] != last[1]):
        raise _Wrong("the chain does not end at its head")
    gaps += head["count"] != last[0]
    between = f"; links over other data sets, for --ledger: {gaps}" if gaps else ", without a gap"
    return f"{len(book['charges'])} charges up to head {head['hash']}{between}"


def _arithmetic(dossier: dict[str, Any]) -> str:
    """Costs, epsilons and what follows from them, computed again."""
    book, levels = dossier["ledger"], dossier["learned"]
    rows = _read([(row[5], row[7], row[8], row[9]) for row in book["charges"]])
    _equal("the cost of all models", levels[1], *_total(rows), _pure(rows))
    promise, own = dossier["promise"], levels[0]
    if own["delta"] != promise["delta"] or own["epsilon"] > promise["epsilon"] * (1 + 1e-9):
        raise _Wrong("the model costs more than it promises")
    _promised(book, levels)
    if dossier["code"] == code() and any(dossier[key] != said for key, said in worded(dossier).items()):
        raise _Wrong("its sentences do not follow from its facts")
    total = guarantee(levels[1]["epsilon"], levels[1]["delta"], book["unit"], book["relation"])
    return f"mu = {levels[1]['mu']:.6g}, so {total} for all trainings so far"


def _promised(book: dict[str, Any], levels: Sequence[dict[str, Any]]) -> None:
    """Check that what may come is bounded as the budget or the open seasons say."""
    limit, still = book["budget"], [each for each in book["seasons"] if not each["closed"]]
    nothing = book["closed"] or (limit is None and not still)
    if len(levels) != (2 if nothing else 3):
        raise _Wrong("it does not bound what is to come as the ledger does")
    if nothing:
        return
    if limit is not None:
        stated = {key: levels[2][key] for key in ("epsilon", "delta", "failure")}
        if stated != limit or (levels[1]["epsilon"] > limit["epsilon"] * (1 + 1e-9)):
            raise _Wrong("it bounds what is to come by something other than the budget")
        pure = all(row[8] is not None for row in book["charges"])
        mu = None if pure else mu_of(limit["epsilon"], limit["delta"] - limit["failure"])
        _bounds("the budget", levels[2], mu)
        return
    names = {each["name"] for each in still}
    outside = [row for row in book["charges"] if row[12] not in names]
    mus = [mu_of(each["epsilon"], each["delta"] - each["failure"]) for each in still]
    mu = math.sqrt(math.fsum(each**2 for each in [*mus, *(row[7] for row in outside)]))
    failure = math.fsum([*(row[9] for row in outside), *(each["failure"] for each in still)])
    _equal("the cost of the weeks to come", levels[2], mu, failure, None)


def _ledger(book: dict[str, Any], ledger: Ledger) -> str:
    """The ledger has these charges and this head, and its limits are no wider than the dossier's."""
    head, rows = ledger.chain(book["dataset"], book["head"]["count"])
    stated = book["head"]["count"], book["head"]["hash"]
    if head != stated or [list(row) for row in rows] != book["charges"]:
        raise _Wrong("the ledger has other charges, or another chain")
    summary = ledger.summary(book["dataset"], 1e-6)
    limit, now = book["budget"], summary.budget
    if book["closed"] and not summary.closed:  # none is opened again
        raise _Wrong("the ledger's data set is not closed")
    if limit is not None and (now is None or now.epsilon > limit["epsilon"] or now.delta > limit["delta"]):
        raise _Wrong("the ledger has no such budget")
    known = {each.season.name: season_entry(each) for each in ledger.seasons(book["dataset"])}
    for each in book["seasons"]:
        entry = known.get(each["name"], {})
        closed = each["closed"] and entry.get("closed", False)
        if {**entry, "begun": each["begun"], "closed": closed} != each:
            raise _Wrong("the ledger has no such season")
    later = len(ledger.chain(book["dataset"])[1]) - len(rows)
    since = f"; charges that came later, for a newer dossier: {later}" if later else ""
    return f"the same charges and head{since}"


# ---------------------------------------------------------------------- costs, computed again


def _read(charges: Sequence[tuple[Any, ...]]) -> list[tuple[float, float | None, float]]:
    """Mu, pure epsilon and failure of charges, each held against what its mechanism costs."""
    found = []
    for mechanism, mu, epsilon, failure in charges:
        own_mu, own_epsilon, own_failure = _cost(mechanism)
        pure = epsilon is None if own_epsilon is None else _near(epsilon, own_epsilon)
        if not (pure and _near(mu, own_mu) and own_failure <= failure < 1):
            raise _Wrong("a charge is not what its mechanism costs")
        found.append((mu, epsilon, failure))
    return found


def _cost(mechanism: str) -> tuple[float, float | None, float]:
    """Mu, pure epsilon and chance of failure of a mechanism as a ledger writes it."""
    kind, values = re.fullmatch(r"(\w+)\((.*)\)", mechanism).groups()  # type: ignore[union-attr]
    numbers = [float(each.partition("=")[2]) for each in values.split(", ")]
    if kind == "Gaussian":
        return 1 / numbers[0], None, 0.0
    if kind == "RepeatAndSelect":
        epsilon = _selection(*numbers)
        return _dominating(epsilon), epsilon, numbers[1]
    epsilon = {"Laplace": 1 / numbers[0], "RandomizedResponse": numbers[0]}[kind]
    return _dominating(epsilon), epsilon, 0.0


def _dominating(epsilon: float) -> float:
    """Mu of what is pure, by the chance of the likelier answer of randomized response."""
    return -2 * float(ndtri(expit(-epsilon)))


def _selection(run_epsilon: float, delta: float, mean_runs: float, shape: float) -> float:
    """The best of a random number of runs (Papernot and Steinke 2022, theorem 2), by its best orders."""
    square = mu_of(run_epsilon, delta) ** 2

    def mean(log_gamma: float) -> float:
        odds = math.expm1(-log_gamma)
        return odds / -log_gamma if shape == 0 else shape * odds / -math.expm1(shape * log_gamma)

    log_gamma = -brentq(lambda at: math.log(mean(at) / mean_runs), -60.0, -1e-9, xtol=1e-14)
    second = max(1.0, math.sqrt(2 * log_gamma / square))
    constant = (1 + shape) * ((second - 1) * square / 2 + log_gamma / second)

    def epsilon(power: float) -> float:
        order = 1 + math.exp(power)
        renyi = order * square / 2 + constant + math.log(mean_runs) / (order - 1)
        return renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    best = minimize_scalar(epsilon, bounds=(-7, 11.5), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(best.fun))


def _total(costs: Sequence[tuple[float, float | None, float]]) -> tuple[float, float]:
    """Mu of all together, and their chance of failure."""
    return math.sqrt(math.fsum(mu * mu for mu, _, _ in costs)), math.fsum(cost[2] for cost in costs)


def _pure(costs: Sequence[tuple[float, float | None, float]]) -> float | None:
    parts = [epsilon for _, epsilon, _ in costs if epsilon is not None]
    return math.fsum(parts) if len(parts) == len(costs) else None


def delta_of(mu: float, epsilon: float) -> float:
    """Delta of mu at epsilon, by logarithms."""
    first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(math.exp(first) * -math.expm1(second - first))


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon of mu at delta."""
    if not 0 < delta < 1 or delta_of(mu, 0.0) <= delta:
        return 0.0 if delta > 0 else math.inf
    high = mu * (mu + 2 * math.sqrt(-2 * math.log(delta))) + 1
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, high, xtol=1e-13, rtol=1e-14))


def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu of epsilon at delta; 0 where nothing of delta is left."""
    if delta <= 0:
        return 0.0
    return float(brentq(lambda mu: epsilon_of(mu, delta) - epsilon, 1e-9, 1e3, xtol=1e-15, rtol=1e-14))


def _near(stated: float, computed: float) -> bool:
    """Equal but for rounding, which may be to the safe side by more."""
    return computed * (1 - 1e-6) - 1e-12 <= stated <= computed * (1 + 1e-4) + 1e-12


def _equal(what: str, level: dict[str, Any], mu: float, failure: float, pure: float | None) -> None:
    """Hold a level against a mu, a chance of failure and a sum of pure epsilons."""
    epsilon = epsilon_of(mu, level["delta"] - failure) if failure < level["delta"] else math.inf
    if pure is not None and failure <= level["delta"]:
        epsilon = min(epsilon, pure)
    if not (_near(level["epsilon"], epsilon) and _near(level["failure"], failure)):
        raise _Wrong(f"{what} is epsilon = {epsilon:.6g}, not {level['epsilon']:.6g}")
    _bounds(what, level, mu)


def _bounds(what: str, level: dict[str, Any], mu: float | None) -> None:
    """Odds, beliefs and rates follow from the level's cost."""
    if (mu is None) != (level["mu"] is None) or (mu is not None and not _near(level["mu"], mu)):
        raise _Wrong(f"{what} has another mu")
    cost = [level[key] for key in ("of", "epsilon", "delta", "failure", "mu")]
    if not _same(learned(*cost), level):
        raise _Wrong(f"what is learned from {what} does not follow from its epsilon")


def _same(one: Any, two: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9)
    return type(one) is type(two) and bool(one == two)
