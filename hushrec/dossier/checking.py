"""A dossier held against its signature, its model, its ledger's chain and the recorded mechanisms.

Formulas are those of the library; a second verifier, examples/verify_dossier.py, has its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hushrec.checks import check_kind
from hushrec.dossier.bounds import own, together
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
from hushrec.privacy import Ledger, Release
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

    Raises
    ------
    InputError
        The content is that of another file, or the model or the ledger cannot be read.

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
    check_kind(content, bytes, "content", "pass what Path(...).read_bytes() gives")
    if f'"format": "{FORMAT}"'.encode() not in content:
        raise InputError(
            "This is no dossier; pass the .json that hushrec certify wrote.", parameter="dossier"
        )
    try:
        dossier = parsed(content)
        if (dossier["format"], dossier["version"]) != (FORMAT, VERSION):
            raise ValueError("it is of another format or version")
        if set(dossier) != _PARTS:
            raise ValueError("it holds more or less than certify writes")
    except _WRONG as error:
        return [Check("form", False, f"the dossier was changed: {_said(error)}")]
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
    budget = board.privacy.budget
    if not board.privacy.private or {**budget.promise, "failure": budget.failure} != dossier["promise"]:
        raise _Wrong("the model's own statement promises something else")
    if (book["unit"], book["relation"]) != (budget.unit, budget.relation):
        raise _Wrong("the ledger counts another unit or relation")
    if described(board, octets) != named:
        raise _Wrong("the model is not as it is described")
    charges = [row for row in book["charges"] if row[2] in book["runs"]]
    if not charges or charged_to(board.privacy, charges) != book["runs"]:
        raise _Wrong("the model's releases are not charged as it says")
    if not _same(own(board.privacy), dossier["learned"][0]):
        raise _Wrong("what is learned from the model at most does not follow from its releases")
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
    """Costs, epsilons and what follows from them, computed again from the recorded mechanisms."""
    book, levels = dossier["ledger"], dossier["learned"]
    for row in book["charges"]:
        release = Release.from_ledger(*(row[at] for at in (4, 5, 6, 10, 11)))
        if not (_same([release.mu, release.epsilon], row[7:9]) and release.failure <= row[9] < 1):
            raise _Wrong(f"charge {row[0]} is not what its mechanism costs")
    promise, mine, limit = dossier["promise"], levels[0], book["budget"]
    if mine["delta"] != promise["delta"] or mine["epsilon"] > promise["epsilon"] * (1 + 1e-9):
        raise _Wrong("the model costs more than it promises")
    if not _same(together(book, promise["delta"]), levels[1:]):
        raise _Wrong("what is learned at most does not follow from the charges, budget and seasons")
    if limit is not None and levels[1]["epsilon"] > limit["epsilon"] * (1 + 1e-9):
        raise _Wrong("all models cost more than the budget allows")
    if dossier["code"] == code() and any(dossier[key] != said for key, said in worded(dossier).items()):
        raise _Wrong("its sentences do not follow from its facts")
    total = guarantee(levels[1]["epsilon"], levels[1]["delta"], book["unit"], book["relation"])
    return f"mu = {levels[1]['mu']:.6g}, so {total} for all trainings so far"


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


def _same(one: Any, two: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-6)
    return type(one) is type(two) and bool(one == two)
