"""The facts of a dossier, from a model file and its ledger, and the sentences that follow from them."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from hushrec import __version__
from hushrec.checks import check_choice, check_kind, line_of_text, settings_of, shown
from hushrec.disk import content_of
from hushrec.dossier import attacks as attacking
from hushrec.dossier.bounds import of_model, together
from hushrec.dossier.form import LANGUAGES
from hushrec.dossier.page import paged
from hushrec.dossier.wording import worded
from hushrec.errors import InputError
from hushrec.privacy import Ledger, PrivacyStatement
from hushrec.privacy.ledger_records import Row
from hushrec.privacy.season import SeasonSummary
from hushrec.privacy.statement import epsilon_of_both
from hushrec.serving.model import Model, load

#: Fields that the controller declares.
DECLARED = ("controller", "purpose", "period", "contact", "review")
#: Bytes that the key of a list of donors has at least.
_KEY_BYTES = 32
_PACKAGE = (".py", ".pyi", ".json", ".css", ".js", ".html")


def certify(
    model: str | Path,
    ledger: Ledger,
    *,
    controller: str,
    purpose: str | None = None,
    period: str | None = None,
    contact: str | None = None,
    review: str | None = None,
    consent: tuple[str | Path, str | Path, str | Path] | None = None,
    dataset: str | None = None,
    attacks: bool = True,
    limit: float = attacking.LIMIT,
    language: str = "en",
) -> dict[str, Any]:
    """Return the facts of a dossier on a model, for `sign`.

    Parameters
    ----------
    model : str or path
        A model file.
    ledger : Ledger
        The ledger of its training.
    controller, purpose, period, contact, review : str
        Declared, and printed unchanged: who is responsible, for which purpose, over which period the ratings
        were given, whom to ask, and until when the page is reviewed.
    consent : (path, path, path), optional
        For a model with donors: the text that they agreed to, the list of donors, and a secret key of at
        least 32 bytes. The dossier holds SHA-256 of the text and HMAC-SHA-256 of the list under the key.
    dataset : str, optional
        By default the one that the model names.
    attacks : bool
        Attack the same configuration on generated data.
    limit : float
        Seconds that one attack may take.
    language : {"en", "de"}

    Privacy
    -------
    Reads the model and the ledger, no ratings. The dossier holds released values, charges and declarations.

    Raises
    ------
    InputError
        The model is NOT PRIVATE, or the ledger's data set has no run with the model's releases.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.save("model.hush")
    >>> facts = hushrec.dossier.certify("model.hush", book, controller="ACME GmbH", attacks=False)
    >>> facts["promise"]["epsilon"], len(facts["ledger"]["charges"])
    (5.0, 1)
    """
    declared = dict(zip(DECLARED, (controller, purpose, period, contact, review), strict=True))
    for field, text in declared.items():
        if text is not None or field == "controller":
            line_of_text(field, text)
    check_choice(language=(language, LANGUAGES))
    check_kind(ledger, Ledger, "ledger", "pass hushrec.Ledger(path)")
    trained, octets = load(model), Path(model).read_bytes()
    statement = trained.privacy
    called = _dataset(statement, dataset)
    if ledger.summary(called, statement.budget.delta).epsilon == math.inf:
        raise InputError(
            f'Data set "{called}" was charged an infinite epsilon by a run without privacy, so nothing is'
            " promised to its users and there is nothing to certify."
        )
    runs = charged_to(statement, ledger.chain(called)[1])
    if not runs:
        raise InputError(
            f'Data set "{called}" of this ledger has no run that released what this model did; pass the'
            " ledger that its training was charged to."
        )
    book = booked(ledger, called, runs)
    dossier = {
        "language": language,
        "made": _now(book["charges"]).isoformat(),
        "declared": declared,
        "consent": None if consent is None else _consent(statement, *consent),
        "model": described(trained, octets),
        "promise": {**statement.budget.promise, "failure": statement.budget.failure},
        "ledger": book,
        "learned": [of_model(statement), *together(book, statement.budget.delta)],
        "attacks": attacking.run(trained.estimator, statement.budget, limit) if attacks else [],
        "code": code(),
    }
    dossier |= worded(dossier)
    return dossier | {"page": paged(dossier)}


def charged_to(statement: PrivacyStatement, rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the runs that a model's releases were charged to, in order; empty without any.

    A run may have other charges. The releases of a season's model are those of its own week.
    """
    week, groups = statement.week, dict[Any, list[Row]]()
    for row in (Row(*columns) for columns in rows):
        if week is None or row.season == week.season.name:
            groups.setdefault(row.run, []).append(row)
    fits: list[tuple[int, list[str]]] = []
    for charges in groups.values():
        left = iter(charges)
        used = [next((row for row in left if row.release == wanted), None) for wanted in statement.releases]
        if used and used[-1] is not None:
            fits.append((used[-1].number, list(dict.fromkeys(row.run for row in used if row is not None))))
    if not fits:
        return []
    ids = [row[0] for row in rows]
    count = len(rows) if statement.ledger is None else statement.ledger.charges
    fitting = [run for run in fits if ids.index(run[0]) < count]
    return max(fitting or fits)[1]


@cache
def code() -> dict[str, str]:
    """Return the version, and SHA-256 of a line per file of the package, with its digest and name."""
    root = Path(__file__).parents[1]
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in _PACKAGE}
    lines = [f"{_sha256(path.read_bytes())}  {name}\n" for name, path in sorted(files.items())]
    return {"version": __version__, "sha256": _sha256("".join(lines).encode())}


def _consent(statement: PrivacyStatement, text: Any, donors: Any, key: Any) -> dict[str, str]:
    if not statement.public_ratings:
        raise InputError("This model used no donors' ratings; leave consent out.", parameter="consent")
    contents = [content_of(path, "The file", parameter="consent") for path in (text, donors, key)]
    if len(contents[2]) < _KEY_BYTES:
        raise InputError(
            f"The key {str(key)!r} has fewer than {_KEY_BYTES} bytes; make one with: openssl rand -out {key}"
            f" {_KEY_BYTES}",
            parameter="consent",
        )
    keyed = hmac.new(contents[2], contents[1], hashlib.sha256)
    return {"text": _sha256(contents[0]), "list": keyed.hexdigest()}


def _now(rows: Sequence[Sequence[Any]]) -> datetime:
    """Return the second of now, after that of every charge."""
    last = max(datetime.fromisoformat(row[3]) for row in rows) + timedelta(seconds=1)
    return max(datetime.now(UTC).replace(microsecond=0), last)


def _dataset(statement: PrivacyStatement, dataset: str | None) -> str:
    if not statement.private:
        raise InputError(
            f"This model is NOT PRIVATE ({'; '.join(statement.reasons)}), so there is nothing to certify."
        )
    if statement.ledger is None or not statement.releases:
        raise InputError(
            "This model was trained without a ledger, so other releases about its users are unknown; "
            "certify a model that was charged to a ledger."
        )
    if dataset is not None and dataset != statement.ledger.dataset:
        raise InputError(
            f"This model was charged to data set {shown(statement.ledger.dataset)}, not {shown(dataset)};"
            " pass its own.",
            parameter="dataset",
        )
    return statement.ledger.dataset


def described(model: Model, octets: bytes) -> dict[str, Any]:
    domain, statement = model.domain, model.privacy
    return {
        "name": model.estimator.name,
        "settings": json.loads(json.dumps(settings_of(model.estimator), default=str)),
        "sha256": _sha256(octets),
        "bytes": len(octets),
        "items": domain.n_items,
        "rating_range": [float(domain.low), float(domain.high)],
        "likes": bool(domain.likes),
        "ratings_per_user": domain.max_ratings_per_user,
        "trained_by": statement.version,
        "public": list(statement.public),
        "notes": list(statement.notes),
        "public_ratings": statement.public_ratings,
        "item_features": statement.item_features,
        "epsilon_of_both_servers": _of_both(statement),
        "exact_noise": statement.exact_noise,
        "exact_arithmetic": statement.exact_arithmetic,
        "week": None if statement.week is None else [statement.week.season.name, statement.week.number],
    }


def booked(ledger: Ledger, dataset: str, runs: Sequence[str], count: int | None = None) -> dict[str, Any]:
    """Return a data set's part of a ledger, with its first ``count`` charges or all of them."""
    (head, rows), summary = ledger.chain(dataset, count), ledger.summary(dataset, unless_declared=1e-6)
    limit = summary.budget
    return {
        **{key: getattr(summary, key) for key in ("dataset", "unit", "relation", "closed")},
        "head": head and {"count": head[0], "hash": head[1]},
        "charges": [list(row) for row in rows],
        "runs": list(runs),
        "budget": limit and {key: getattr(limit, key) for key in ("epsilon", "delta", "failure")},
        "seasons": [season_entry(season) for season in ledger.seasons(dataset)],
    }


def season_entry(summary: SeasonSummary) -> dict[str, Any]:
    """Return the schedule of a season, with the largest mu squared of one training, and its state."""
    season = summary.season
    now = {"begun": summary.begun, "closed": summary.closed, "training_mu_squared": season.mu**2}
    return {**season.to_dict(), **season.budget.promise, **now}


def _of_both(statement: PrivacyStatement) -> float | None:
    return epsilon_of_both(statement.budget, statement.spent_mu) if statement.two_servers else None


def _sha256(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()
