"""``hushrec ledger open``."""

from dataclasses import replace

from hushrec.cli import output
from hushrec.cli.options import Account, Failure, Json, Promise


def ledger_open(
    *, account: Account = Account(), promise: Promise, failure: Failure | None = None, as_json: Json = False
) -> None:
    """Give a data set a budget that all its runs share; later it can be lowered, never raised.

    Only a budget with --failure allows hushrec tune on private ratings.

    hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
    """
    budget = replace(promise.budget(), failure=failure or 0.0)
    book, dataset = account.open(create=True), account.dataset
    book.open_dataset(dataset, budget)
    result = {"ledger": str(book.path), **book.summary(dataset).to_dict()}
    output.done(as_json, result, f'Data set "{dataset}" has the budget {budget}.', f"Ledger: {book.path}")
