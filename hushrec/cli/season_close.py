"""``hushrec season close``."""

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.options import Account, Json
from hushrec.errors import InputError


def season_close(
    *,
    account: Account = Account(),
    name: Annotated[str, Parameter(show_default="the only open one")] | None = None,
    as_json: Json = False,
) -> None:
    """Allow no further week of a season. The promise stays.

      hushrec season close --dataset shop

    Parameters
    ----------
    name
        Name of the season.
    """
    book, dataset = account.open(), account.dataset
    still = [summary.season.name for summary in book.seasons(dataset) if not summary.closed]
    if name is None:
        if len(still) != 1:
            how = "several open seasons; pass --name" if still else "no open season"
            raise InputError(f'Data set "{dataset}" has {how}.')
        name = still[0]
    freed = book.season(dataset, name)
    part = freed.reserved / (freed.season.budget.mu**2 or 1.0)
    book.close_season(dataset, name)
    result = {"ledger": str(book.path), **book.season(dataset, name).to_dict(), "freed": freed.reserved}
    freed_part = f"It frees {part:.1%} of mu squared of its budget, which it did not spend."
    output.done(as_json, result, f"{book.season(dataset, name)}.", freed_part, f"Ledger: {book.path}")
