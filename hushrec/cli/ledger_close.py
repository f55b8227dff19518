"""``hushrec ledger close``."""

from hushrec.cli import show
from hushrec.cli.options import DataSet, Json, LedgerPath, open_ledger


def ledger_close(
    *, ledger: LedgerPath | None = None, dataset: DataSet = "default", as_json: Json = False
) -> None:
    """Allow no further charge to a data set, for good.

    hushrec ledger close --dataset shop
    """
    book = open_ledger(ledger, create=False)
    book.close_dataset(dataset)
    if as_json:
        show.json({"ledger": str(book.path), "dataset": dataset, "closed": True})
    else:
        show.text(
            f'Data set "{dataset}" is closed: nothing more can be charged to it.', f"Ledger: {book.path}"
        )
