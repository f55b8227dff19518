"""``hushrec check``."""

from __future__ import annotations

from hushrec.cli import output
from hushrec.cli.options import Json, NoProgress, progress_shown
from hushrec.cli.tables import Declared, Reading, Table, tables_of
from hushrec.data import Ratings
from hushrec.data.store_files import is_store
from hushrec.errors import InputError
from hushrec.progress import progress_bar


def check(
    *ratings: Table,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Show which rows of private RATINGS training would use, and why it would not use others.

    The output is PRIVATE: exact counts and line numbers, for the curator only. It has no privacy cost. Do not
    declare anything from it: your form defines the scale, and your shop the catalogue.

      hushrec check ratings.csv --catalogue items.txt --rating-range 1 5
      hushrec check likes.csv --catalogue items.txt --implicit
      hushrec check orders.csv reviews.csv --catalogue items.txt --rating-range 1 5
    """
    tables = tables_of(ratings)
    if is_store(tables):
        raise InputError(
            f"{tables!r} is a store, which holds usable rows only; check the tables that it was prepared "
            "from."
        )
    with progress_bar(progress_shown(no_progress), 2, "checking", "steps") as advance:
        advance(0, "the catalogue")
        domain = declared.domain(reading.implicit, columns=reading.columns)
        advance(1, "the rows")
        preview = Ratings.check(tables, domain, **reading.arguments())
        advance(1)
    uses = dict(domain.column_uses)
    described = (
        f"\nArticles: {', '.join(f'{name or repr(name)} ({use})' for name, use in uses.items())}."
        if uses
        else ""
    )
    output.result(as_json, preview.to_dict() | {"item_features": uses}, preview.text() + described)
