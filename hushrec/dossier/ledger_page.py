"""All data sets of a ledger on one page: spent, reserved and free budget, and coming weeks."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from hushrec.checks import check_kind
from hushrec.dossier.page import document, moment, table, terms
from hushrec.privacy import Ledger
from hushrec.privacy.budget import guarantee
from hushrec.privacy.ledger_records import LedgerSummary
from hushrec.privacy.season import SeasonSummary

_KEY = (
    '<p class="small"><span class="key spent"></span>spent <span class="key reserved"></span>reserved by open'
    ' seasons <span class="key"></span>free; parts of mu squared, which add up, as epsilons do not. Promises'
    " hold for everybody but those who have published their ratings.</p>"
)


def overview(ledger: Ledger, delta: float = 1e-6) -> bytes:
    """Return a page on all data sets of a ledger, for planning trainings.

    Parameters
    ----------
    ledger : Ledger
    delta : float
        Delta of the epsilons of data sets without a budget.

    Privacy
    -------
    Holds charges and declared budgets: no ratings, and no path.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> book.open_dataset("shop", hushrec.Budget(5, 1e-6))
    >>> b"free 100.0%" in hushrec.dossier.overview(book)
    True
    """
    check_kind(ledger, Ledger, "ledger", "pass hushrec.Ledger(path)")
    parts = [_dataset(ledger, name, delta) for name in ledger.datasets()]
    made = moment(datetime.now(UTC).isoformat())
    head = [
        '<p class="kind">Overview of a ledger</p>',
        f"<h1>{len(parts)} data set{'s' * (len(parts) != 1)}</h1>",
        f'<p class="small">As of {made} UTC.</p>{_KEY}',
    ]
    return document("Overview of a ledger", "\n".join(head + (parts or ["<p>No data set yet.</p>"])))


def _dataset(ledger: Ledger, name: str, delta: float) -> str:
    summary = ledger.summary(name, unless_declared=delta)
    protects = summary.unit, summary.relation
    seasons, runs = ledger.seasons(name), ledger.history(name, summary.delta)
    left = ledger.left(name)
    limit = summary.budget
    facts = {
        "Budget": str(limit or ("none" if summary.closed else "none, so nothing limits what is trained")),
        "Charged": guarantee(summary.epsilon, summary.delta, *protects),
    }
    if summary.closed or left:
        facts["Left"] = "nothing: the data set is closed" if summary.closed else left or ""
    if summary.promised is not None:
        facts["With weeks to come"] = guarantee(summary.promised, summary.delta, *protects)
    parts = [f"<h2>{escape(name)}</h2>", _bar(summary), terms(facts)]
    if seasons:
        words = ("season", "state", "weeks trained", "at least apart", "a week may spend (mu)", "budget")
        parts += ["<h3>Seasons</h3>", table(words, map(_season, seasons), (4,))]
    if runs:
        lines = [(moment(run.time), str(run.charges), f"{run.mu:.4g}", f"{run.epsilon:.4g}") for run in runs]
        head = ("time (UTC)", "charges", "mu so far", f"epsilon so far, at delta = {summary.delta:g}")
        parts += [f"<h3>Trainings: {len(runs)}</h3>", table(head, lines, (1, 2, 3))]
    return "\n".join(parts)


def _bar(summary: LedgerSummary) -> str:
    shares = summary.shares
    if shares is None:
        what = (
            "NOT PRIVATE: an infinite epsilon was charged." if summary.charges else "Nothing is charged yet."
        )
        return f'<p class="none">{what}</p>'
    if summary.budget is None and not summary.reserved:
        return ""  # nothing that it would be a part of
    pieces = [(word, shares[word] or 0.0) for word in ("spent", "reserved")]
    most = max(1.0, sum(part for _, part in pieces))
    spans = "".join(f'<span class="{word}" style="width:{part / most:.2%}"></span>' for word, part in pieces)
    figures = ", ".join(f"{word} {part:.1%}" for word, part in pieces)
    free = "" if shares["free"] is None else f", free {shares['free']:.1%}"
    of = "of what is spent and reserved" if summary.budget is None else "of the budget"
    return f'<div class="bar">{spans}</div>\n<p class="small">{figures}{free} {of}</p>'


def _season(summary: SeasonSummary) -> tuple[str, ...]:
    season, state = summary.season, "closed" if summary.closed else "open"
    apart = f"{season.gap:g} days" if season.gap else ""
    return season.name, state, str(summary.begun), apart, f"{season.mu:.4g}", str(season.budget)
