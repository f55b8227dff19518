"""``hushrec check``."""

from __future__ import annotations

from hushrec.cli import output
from hushrec.cli.options import Json, NoProgress, progress_shown
from hushrec.cli.tables import Declared, Reading
from hushrec.data import Ratings
from hushrec.data.store_files import is_store
from hushrec.errors import InputError
from hushrec.progress import progress_bar


def check(
    ratings: str,
    /,
    *,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Look at private RATINGS before anything is spent: what would be used, what not, and why.

    What it prints is PRIVATE: exact counts and line numbers, for the curator alone. Nothing is charged, and
    nothing of it may be declared: the scale is the form's, the catalogue is the shop's.

      hushrec check ratings.csv --catalogue items.txt --rating-range 1 5
      hushrec check likes.csv --catalogue items.txt --implicit

    Parameters
    ----------
    ratings
        A table with columns of users, items and ratings.
    """
    if is_store(ratings):
        raise InputError(f"{ratings!r} is a store, whose rows were cleaned; check the tables it was made of.")
    with progress_bar(progress_shown(no_progress), 2, "checking", " steps") as advance:
        advance(0, "the catalogue")
        domain = declared.domain(reading.implicit)
        advance(1, "the rows")
        found = Ratings.check(ratings, domain, **reading.arguments())
        advance(1)
    output.result(as_json, found.to_dict(), found.text())
