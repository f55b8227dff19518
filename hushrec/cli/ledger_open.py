"""``hushrec ledger open``."""

from dataclasses import replace

from hushrec.cli import show
from hushrec.cli.options import DataSet, Failure, Json, LedgerPath, Promise, open_ledger


def ledger_open(
    *,
    ledger: LedgerPath | None = None,
    dataset: DataSet = "default",
    promise: Promise,
    failure: Failure | None = None,
    as_json: Json = False,
) -> None:
    """Give a data set a budget that all its runs share; later it can be lowered, never raised.

    Only a budget with --failure allows hushrec tune on private ratings.

    hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
    """
    budget = replace(promise.budget(), failure=failure or 0.0)
    book = open_ledger(ledger)
    book.open_dataset(dataset, budget)
    if as_json:
        show.json({"ledger": str(book.path), **book.summary(dataset).to_dict()})
    else:
        show.text(f'Data set "{dataset}" has the budget {budget}.', f"Ledger: {book.path}")
