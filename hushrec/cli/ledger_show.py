"""``hushrec ledger show``."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import show
from hushrec.cli.options import SHOWN_DELTA, Account, Json
from hushrec.errors import InputError
from hushrec.privacy.ledger import RunSummary


def ledger_show(
    *,
    account: Account = Account(),
    delta: Annotated[float, Parameter(show_default=f"the budget's, else {SHOWN_DELTA:g}")] | None = None,
    as_json: Json = False,
) -> None:
    """Print what all runs on a data set have been charged together, and how it grew from run to run.

      hushrec ledger show
      hushrec ledger show --ledger team.sqlite --dataset shop --json

    Parameters
    ----------
    delta
        At which epsilon is given.
    """
    book, dataset = account.open(), account.dataset
    try:
        summary = book.summary(dataset, delta)
    except InputError:
        if delta is not None:
            raise
        summary = book.summary(dataset, SHOWN_DELTA)
    history = book.history(dataset, summary.delta)
    left = book.left(dataset)
    rest = f"; {left}" if left and not summary.closed else ""
    found = {"ledger": str(book.path), **summary.to_dict(), "history": [asdict(run) for run in history]}
    show.result(as_json, found, f"{summary}{rest}.", f"Ledger: {book.path}{growth(history)}")


def growth(history: list[RunSummary]) -> str:
    """A line a run: what all runs so far cost together."""
    if not history:
        return ""
    rows = [
        (str(number), str(run.time), str(run.charges), f"{run.mu:.4g}", f"{run.epsilon:.6g}")
        for number, run in enumerate(history, 1)
    ]
    return "\n\n" + show.table(
        [(" run", "time (UTC)", "charges", "mu so far", "epsilon so far"), *rows], left={1}
    )
