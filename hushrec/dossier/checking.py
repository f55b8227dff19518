"""Compare a dossier with its signature, its model, its ledger and the recorded mechanisms.

The second verifier, examples/verify_dossier.py, has separate formulas.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from hushrec.checks import check_kind
from hushrec.disk import content_of
from hushrec.dossier.bounds import of_a_user, of_model, season_of, together
from hushrec.dossier.certifying import booked, charged_to, code, described, season_entry
from hushrec.dossier.form import PAYLOAD_TYPE, SHAPE, Wrong, facts_of, misfit, parsed
from hushrec.dossier.page import paged
from hushrec.dossier.signing import signed
from hushrec.dossier.wording import worded
from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Ledger, total_mu
from hushrec.privacy.budget import guarantee
from hushrec.privacy.ledger_records import LedgerSummary, Row
from hushrec.privacy.schema import GENESIS
from hushrec.privacy.season import SeasonSummary
from hushrec.serving.model import Model

_SENTENCES = ("not_covered", "criteria", "deletion", "law")
#: Largest difference between the clocks of the signer and of the reader.
_CLOCKS = timedelta(days=1)
_NO_DOSSIER = "not a dossier; pass the .tosign of hushrec certify, or the .json of hushrec sign"
#: Exceptions that a damaged dossier can raise.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, HushrecError)


class Check(NamedTuple):
    """One line of `hushrec verify`.

    Attributes
    ----------
    what : str
    passed : bool or None
        A part that was not compared with anything has None.
    words : str
    parts : tuple of str
        Parts of the dossier that were not compared.
    """

    what: str
    passed: bool | None
    words: str
    parts: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return {True: "ok", False: "FAILED", None: "NOT CHECKED"}[self.passed]


def check(
    content: bytes,
    model: str | Path,
    *,
    page: bytes | None = None,
    ledger: Ledger | None = None,
    public_key: str | None = None,
) -> list[Check]:
    """Compare a dossier with its model, its signature and, if given, its page and its ledger.

    Parameters
    ----------
    content : bytes
        The signed dossier, or the bytes to sign.
    model : str or path
        The model file that the dossier should be about.
    page : bytes, optional
        The HTML page that should belong to it.
    ledger : Ledger, optional
        Ledger of the training. Without it, charges, seasons and budget are not compared.
    public_key : str, optional
        The key that must have signed, 32 bytes in hexadecimal.

    Returns
    -------
    list of Check
        A check that fails proves the dossier wrong. One with ``passed=None`` was not made. If the form fails,
        nothing else is checked.

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
    >>> lines = hushrec.dossier.check(content, "model.hush", ledger=book)
    >>> [line.what for line in lines if line.passed]
    ['form', 'signature', 'model', 'chain', 'arithmetic', 'time', 'sentences', 'ledger']
    >>> [line.what for line in lines if line.passed is None]
    ['page', 'key', 'declared']
    """
    _check_is_dossier(content)
    try:
        envelope, dossier = _read(content)
    except _WRONG as error:
        return [Check("form", False, f"the dossier was changed: {_said(error)}")]
    octets = content_of(model, "Model file")
    book = dossier["ledger"]
    checks: list[tuple[str, Callable[[], str | Check]]] = [
        ("signature", lambda: _signature(envelope, public_key)),
        ("model", lambda: _model(dossier, octets)),
        ("chain", lambda: _chain(book)),
        ("arithmetic", lambda: _arithmetic(dossier)),
        ("time", lambda: _time(dossier)),
        ("sentences", lambda: _sentences(dossier)),
    ]
    if page is not None:
        checks.append(("page", lambda: _page(dossier, page)))
    if ledger is not None:
        checks.append(("ledger", lambda: _ledger(dossier, ledger)))
    done = [Check("form", True, "as certify writes it")]
    for what, look in checks:
        try:
            finding = look()
            done.append(finding if isinstance(finding, Check) else Check(what, True, finding))
        except _WRONG as error:
            done.append(Check(what, False, _said(error)))
    if page is None:
        done.append(Check("page", None, "whether a page belongs to it; pass --page", ("page",)))
    if public_key is None and envelope["signatures"]:
        done.append(Check("key", None, "whose key it is; pass --public-key", ("signature",)))
    if ledger is None:
        done.append(Check("ledger", None, "whether the ledger has all of this; pass --ledger", ("ledger",)))
    stated = ("declared", "consent", "made", "attacks", "language")
    done.append(Check("declared", None, f"as the signer states them: {', '.join(stated)}", stated))
    return done


def envelope_of(content: bytes) -> dict[str, Any]:
    """Return the envelope of a dossier, for `attach`; InputError for other content."""
    _check_is_dossier(content)
    try:
        return _read(content)[0]
    except _WRONG as error:
        raise InputError(f"The dossier was changed: {_said(error)}.", parameter="dossier") from None


def _check_is_dossier(content: bytes) -> None:
    check_kind(content, bytes, "content", "pass what Path(...).read_bytes() gives")
    if PAYLOAD_TYPE.encode() not in content:
        is_page = b"<!doctype" in content[:99].lower()
        what = "a page; pass its .tosign or .json, and the page with --page" if is_page else _NO_DOSSIER
        raise InputError(f"This is {what}.", parameter="dossier")


def _read(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    dossier = facts_of(envelope := parsed(content))
    if (place := misfit(dossier, SHAPE, "dossier")) is not None:
        raise Wrong(f"what it holds is not as certify writes it: {place}")
    return envelope, dossier


def _said(error: Exception) -> str:
    known = isinstance(error, Wrong | HushrecError)
    return str(error) if known else f"what it says is out of place ({type(error).__name__})"


def _signature(envelope: dict[str, Any], public_key: str | None) -> str | Check:
    if not envelope["signatures"]:
        if public_key is not None:
            raise Wrong("nobody has signed it")
        return Check("signature", None, "nobody has signed it yet", ("signature",))
    key = envelope["signatures"][0]["keyid"]
    if not signed(envelope):
        raise Wrong("it is not that of the key in the dossier; something was changed")
    if public_key is None:
        return f"by key {key}"
    if key != public_key:
        raise Wrong(f"it is by another key, {key}")
    return f"by the key that was passed, {key}"


def _model(dossier: dict[str, Any], octets: bytes) -> str:
    named, book = dossier["model"], dossier["ledger"]
    if (hashlib.sha256(octets).hexdigest(), len(octets)) != (named["sha256"], named["bytes"]):
        raise Wrong("the model file is another one")
    model = Model.from_bytes(octets)
    budget = model.privacy.budget
    if not model.privacy.private:
        raise Wrong("the model is NOT PRIVATE")
    if not _exactly({**budget.promise, "failure": budget.failure}, dossier["promise"]):
        raise Wrong("the model's own statement promises something else")
    if (book["unit"], book["relation"]) != (budget.unit, budget.relation):
        raise Wrong("the ledger counts another unit or relation")
    if not _exactly(described(model, octets), named):
        raise Wrong("the model is not as it is described")
    charges = [row for row in book["charges"] if row[2] in book["runs"]]
    if not charges or charged_to(model.privacy, charges) != book["runs"]:
        raise Wrong("the model's releases are not charged as it says")
    if model.privacy.ledger is None:
        raise Wrong("the model was trained without a ledger")
    _counted(book, model.privacy.ledger)
    week = model.privacy.week
    if week is not None:
        season = season_entry(SeasonSummary(week.season, week.dataset, False, 0, 0.0, 0, None))
        stated = [{**season, "begun": 0, "closed": False} for season in book["seasons"]]
        if season not in stated:
            raise Wrong("the model's season is left out, or is another one")
    if not _same(of_model(model.privacy), dossier["learned"][0]):
        raise Wrong("what is learned from the model at most does not follow from its releases")
    return f"{named['name']}, SHA-256 {named['sha256']}; its releases are in the chain"


def _chain(book: dict[str, Any]) -> str:
    head, last, gaps = book["head"], (0, GENESIS), 0
    for row in book["charges"]:
        if row[1] != book["dataset"]:
            raise Wrong("a charge is of another data set")
        if (row[10], row[11]) != (book["unit"], book["relation"]):
            raise Wrong("a charge is of another unit or relation")
        if row[-1] != hashlib.sha256(json.dumps(row[:-1]).encode()).hexdigest():
            raise Wrong(f"charge {row[0]} has not its hash")
        if row[0] <= last[0] or (row[0] == last[0] + 1 and row[-2] != last[1]):
            raise Wrong(f"charge {row[0]} does not follow the one before it")
        gaps += row[0] != last[0] + 1
        last = row[0], row[-1]
    if head["count"] < last[0] or (head["count"] == last[0] and head["hash"] != last[1]):
        raise Wrong("the chain does not end at its head")
    gaps += head["count"] != last[0]
    _seasons(book)
    between = f"; links over other data sets: {gaps}" if gaps else ", without a gap"
    return f"{len(book['charges'])} charges up to head {head['hash']}{between}"


def _seasons(book: dict[str, Any]) -> None:
    runs: dict[str, dict[str, list[Row]]] = {}
    for row in (Row(*columns) for columns in book["charges"]):
        if row.season is not None:
            runs.setdefault(row.season, {}).setdefault(row.run, []).append(row)
    names = [entry["name"] for entry in book["seasons"]]
    if len(set(names)) != len(names) or not set(runs) <= set(names):
        raise Wrong("a season of the charges is left out, or one is named twice")
    for entry in book["seasons"]:
        trainings = runs.get(entry["name"], {})
        if entry["begun"] != len(trainings):
            raise Wrong(f"season {entry['name']!r} is not as its charges show it")
        season = season_of(entry)
        summary = SeasonSummary(season, book["dataset"], entry["closed"], entry["begun"], 0.0, 0, None)
        if not _same(season_entry(summary), entry):
            raise Wrong(f"season {entry['name']!r} does not add up")
        for week, costs in enumerate(trainings.values()):
            season.check_week(week, costs)


def _arithmetic(dossier: dict[str, Any]) -> str:
    book, levels = dossier["ledger"], dossier["learned"]
    for row in (Row(*columns) for columns in book["charges"]):
        release = row.release
        costs = _same([release.mu, release.epsilon], [row.mu, row.epsilon])
        if not (costs and release.failure <= row.failure < 1):
            raise Wrong(f"charge {row.number} is not what its mechanism costs")
    promise, mine, limit = dossier["promise"], levels[0], book["budget"]
    if mine["delta"] != promise["delta"] or mine["epsilon"] > promise["epsilon"] * (1 + 1e-9):
        raise Wrong("the model costs more than it promises")
    if not _same(together(book, promise["delta"]), levels[1:]):
        raise Wrong("what is learned at most does not follow from the charges, budget and seasons")
    if limit is not None and levels[1]["epsilon"] > limit["epsilon"] * (1 + 1e-9):
        raise Wrong("all models cost more than the budget allows")
    total = guarantee(levels[1]["epsilon"], levels[1]["delta"], book["unit"], book["relation"])
    return f"mu = {levels[1]['mu']:.6g}, so {total} for all trainings so far"


def _counted(book: dict[str, Any], then: LedgerSummary) -> None:
    earlier = book["charges"][: then.charges]
    mu = total_mu(cost.mu for cost in of_a_user(book, earlier))
    if then.dataset != book["dataset"] or len(earlier) != then.charges or not _same(mu, then.mu):
        raise Wrong("charges from before the model's training are left out, or are others")
    if len({row[2] for row in earlier}) != then.runs:
        raise Wrong("the model's statement counts other runs")
    reserved = 0.0
    for season in book["seasons"]:
        spent = math.fsum(
            cost.mu**2 for cost in of_a_user(book, (row for row in earlier if row[12] == season["name"]))
        )
        reserved += max(0.0, season_of(season).budget.mu ** 2 - spent)
    if then.reserved > reserved * (1 + 1e-6) + 1e-12:
        raise Wrong("a season that was open at the model's training is left out, or is another one")
    limit = book["budget"]
    if then.budget is not None and (
        limit is None or limit["epsilon"] > then.budget.epsilon or limit["delta"] > then.budget.delta
    ):
        raise Wrong("the data set's budget is left out, or is larger than the model's statement has it")
    if then.closed and not book["closed"]:
        raise Wrong("the data set was closed at the model's training")


def _time(dossier: dict[str, Any]) -> str:
    made = datetime.fromisoformat(dossier["made"])
    last = max(datetime.fromisoformat(row[3]) for row in dossier["ledger"]["charges"])
    if made.isoformat() != dossier["made"] or made.utcoffset() != timedelta(0):
        raise Wrong("the time at which it was made is not written in UTC")
    if made <= last:
        raise Wrong("it was made before its last charge")
    if made > datetime.now(UTC) + _CLOCKS:
        raise Wrong("it was made in the future")
    return f"made {dossier['made']}, the last charge at {last.isoformat()}"


def _sentences(dossier: dict[str, Any]) -> str | Check:
    same = all(dossier[part] == text for part, text in worded(dossier).items())
    if dossier["code"] == code():
        if not same:
            raise Wrong("its sentences do not follow from its facts")
        if paged(dossier) != dossier["page"]:
            raise Wrong("the digest of its page is that of another one")
        return "they and the page follow from the facts; made by the code that is installed here"
    parts = ("code", "page") if same else ("code", "page", *_SENTENCES)
    finding = f"{', '.join(parts)}: written by other code than is installed here"
    return Check("sentences", None, finding, parts)


def _page(dossier: dict[str, Any], page: bytes) -> str:
    digest = hashlib.sha256(page).hexdigest()
    if digest != dossier["page"]:
        raise Wrong("it is not the page of this dossier; something was changed")
    return f"SHA-256 {digest}"


def _ledger(dossier: dict[str, Any], ledger: Ledger) -> str:
    book, made = dossier["ledger"], datetime.fromisoformat(dossier["made"])
    now = booked(ledger, book["dataset"], book["runs"], book["head"]["count"])
    if (now["head"], now["charges"]) != (book["head"], book["charges"]):
        raise Wrong("the ledger has other charges, or another chain")
    later = ledger.chain(book["dataset"])[1][len(now["charges"]) :]
    if any(datetime.fromisoformat(row[3]) < made for row in later):
        raise Wrong("the ledger has charges from before the dossier was made, which it leaves out")
    if not _exactly(now["budget"], book["budget"]):
        raise Wrong("the ledger has another budget for the data set; ask for a dossier of today")
    if book["closed"] and not now["closed"]:  # it cannot be opened again
        raise Wrong("the ledger's data set is not closed")
    if [season["name"] for season in now["seasons"]] != [season["name"] for season in book["seasons"]]:
        raise Wrong("the ledger has other seasons; ask for a dossier of today")
    for season, stated in zip(now["seasons"], book["seasons"], strict=True):
        closed = stated["closed"] and season["closed"]
        if not _same({**season, "begun": stated["begun"], "closed": closed}, stated):
            raise Wrong(f"season {stated['name']!r} is another one in the ledger")
    since = f"; charges that came later, for a newer dossier: {len(later)}" if later else ""
    return f"the same charges, seasons, budget and head{since}"


def _exactly(one: Any, two: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


def _same(one: Any, two: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-6)
    return type(one) is type(two) and bool(one == two)
