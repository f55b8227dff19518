"""``hushrec overview``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import Account, File, Force, Json
from hushrec.dossier.ledger_page import overview as page
from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically


def overview(
    *,
    out: File,
    ledger: Annotated[File, Parameter(show_default="one ledger for this account")] | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page on all data sets of a ledger: spent, reserved and free budget, trainings, weeks to come.

      hushrec overview --out overview.html
      hushrec overview --ledger team.sqlite --out overview.html --force

    Parameters
    ----------
    out
        HTML file for the page, which loads nothing else.
    ledger
        File in which charges are recorded.
    """
    target = output_file(out, (ledger,), force)
    if not out.lower().endswith((".html", ".htm")):
        raise InputError(f"--out {out!r} must end in .html.")
    book = Account(ledger=ledger).open()
    write_atomically(target, [page(book)])
    output.done(as_json, {"file": out, "datasets": book.datasets()}, f"Wrote {out}")
