"""``hushrec ledger show``."""

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import SHOWN_DELTA, Account, File, Force, Json, LedgerFile
from hushrec.errors import InputError
from hushrec.privacy import Ledger
from hushrec.privacy.ledger_records import LedgerSummary, RunSummary
from hushrec.serving.modelfile import write_atomically

#: Runs that are listed unless all are asked for.
_LAST = 8


def ledger_show(
    *,
    ledger: LedgerFile | None = None,
    dataset: Annotated[str, Parameter(metavar="NAME", show_default="all")] | None = None,
    delta: Annotated[float, Parameter(show_default=f"the budget's or the season's, else {SHOWN_DELTA:g}")]
    | None = None,
    runs: bool = False,
    html: File | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Print the charged, reserved and free budget of a data set, or list all data sets.

      hushrec ledger show
      hushrec ledger show --ledger team.sqlite --dataset shop --json
      hushrec ledger show --html overview.html

    Parameters
    ----------
    dataset
        Name of the users in the ledger.
    delta
        Delta of the printed epsilon.
    runs
        List all runs, not only the last ones.
    html
        Write a page on all data sets to this file.
    """
    if html is not None:
        _write_page(html, ledger, dataset, force, as_json)
        return
    book = Account(ledger=ledger).open()
    if dataset is None:
        names = book.datasets()
        summaries = [summary_of(book, name, delta) for name in names]
        result: dict[str, Any] = {"datasets": [_described(summary) for summary in summaries]}
        lines = [_line(book, summary) for summary in summaries] or ["The ledger has no data set yet."]
        output.result(as_json, {"ledger": str(book.path), **result}, *lines, f"Ledger: {book.path}")
        return
    summary = summary_of(book, dataset, delta)
    history = book.history(dataset, summary.delta)
    shared = shares(book, dataset)
    result = {"ledger": str(book.path), **_described(summary), **shared[0]}
    result["history"] = [asdict(run) for run in history]
    shown = growth(history, len(history) if runs else _LAST)
    output.result(as_json, result, _line(book, summary), *shared[1], f"\nLedger: {book.path}{shown}")


def _write_page(out: str, ledger: str | None, dataset: str | None, force: bool, as_json: bool) -> None:
    from hushrec.dossier.ledger_page import overview

    target = output_file(out, (ledger,), force)
    if dataset is not None or not out.lower().endswith((".html", ".htm")):
        raise InputError(f"--html {out!r} must end in .html, and shows all data sets: leave --dataset out.")
    book = Account(ledger=ledger).open()
    write_atomically(target, [overview(book)])
    output.done(as_json, {"file": out, "datasets": book.datasets()}, f"Wrote {out}")


def summary_of(book: Ledger, dataset: str, delta: float | None = None) -> LedgerSummary:
    declared = [SHOWN_DELTA, *(summary.season.budget.delta for summary in book.seasons(dataset))]
    return book.summary(dataset, delta, unless_declared=declared[-1])


def _described(summary: LedgerSummary) -> dict[str, Any]:
    return {**summary.to_dict(), "shares": summary.shares}


def _line(book: Ledger, summary: LedgerSummary) -> str:
    left = book.left(summary.dataset)
    rest = f"; {left}" if left and not summary.closed else ""
    if summary.budget is None and summary.delta == SHOWN_DELTA and not book.seasons(summary.dataset):
        rest += "; delta is the default, and --delta changes it"
    return f"{summary}{rest}."


def shares(book: Ledger, dataset: str) -> tuple[dict[str, Any], list[str]]:
    summary, rows = summary_of(book, dataset), book.shares(dataset)
    together = summary.shares
    result = {"models": [share._asdict() for share in rows], "shares": together}
    if together is None:
        return result, []
    held = summary.reserved + summary.running
    whole = summary.mu**2 + held if summary.budget is None else summary.budget.mu**2
    of = "the spent and reserved budget" if summary.budget is None else "the budget"
    cells = [(share.what, f"{share.spent / whole:.2%}", f"{share.reserved / whole:.2%}") for share in rows]
    cells += [("all", f"{together['spent']:.2%}", f"{together['reserved']:.2%}")]
    table = output.table([("", "spent", "reserved"), *cells], left={0})
    free = together["free"]
    last = "free: unknown, because no budget is set" if free is None else f"free: {free:.2%}"
    last = "free: none, because the data set is closed" if summary.closed else last
    lines = [f"\nFractions of {of}, by mu squared, which adds up (epsilon does not):", table, last]
    return result, lines


def growth(history: list[RunSummary], count: int) -> str:
    if not history:
        return ""
    rows = [
        (str(number), str(run.time), str(run.charges), f"{run.mu:.4g}", f"{run.epsilon:.6g}")
        for number, run in enumerate(history, 1)
    ]
    earlier = f"\n{len(history) - count:,} earlier runs: --runs" if len(history) > count else ""
    head = (" run", "time (UTC)", "charges", "mu so far", "epsilon so far")
    return f"\n\n{output.table([head, *rows[-count:]], left={1})}{earlier}"
