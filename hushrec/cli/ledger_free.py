"""``hushrec ledger free``."""

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.options import Account, Json


def ledger_free(*, account: Account = Account(), as_json: Json = False) -> None:
    """Free the budget that ended trainings reserved, if the ledger cannot detect that they ended.

    A training reserves its whole plan until it ends. A training that still runs continues as long
    as the budget allows.

    hushrec ledger free --dataset shop
    """
    book, dataset = account.open(), account.dataset
    freed = book.free(dataset)
    result = {"ledger": str(book.path), "dataset": dataset, "freed": [one._asdict() for one in freed]}
    lines = [f"Reserved since {reserved.time} by {reserved.owner}." for reserved in freed]
    done = f'Freed what {plural(len(freed), "training")} had reserved of data set "{dataset}".'
    output.done(as_json, result, done, *lines, f"Ledger: {book.path}")
