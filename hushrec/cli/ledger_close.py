"""``hushrec ledger close``."""

from hushrec.cli import output
from hushrec.cli.options import Account, Json


def ledger_close(*, account: Account = Account(), as_json: Json = False) -> None:
    """Allow no further charge to a data set, permanently.

    hushrec ledger close --dataset shop
    """
    book, dataset = account.open(), account.dataset
    book.close_dataset(dataset)
    result = {"ledger": str(book.path), "dataset": dataset, "closed": True}
    closed = f'Data set "{dataset}" is closed: nothing more can be charged to it.'
    output.done(as_json, result, closed, f"Ledger: {book.path}")
