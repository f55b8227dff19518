"""``hushrec verify``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.options import Account, File, Json
from hushrec.disk import content_of
from hushrec.errors import HushrecError


def verify(
    dossier: str,
    model: str,
    /,
    *,
    page: Annotated[File, Parameter(show_default="not checked")] | None = None,
    ledger: Annotated[File, Parameter(show_default="not checked")] | None = None,
    public_key: Annotated[File, Parameter(show_default="the key in the dossier")] | None = None,
    as_json: Json = False,
) -> None:
    """Check DOSSIER against MODEL, its signature and, if passed, its page and ledger.

    Prints a line for each check: ok, FAILED, or NOT CHECKED with the parts that were compared with nothing.
    The exit code is 1 if a check fails.

      hushrec verify dossier.json model.hush --page dossier.html --public-key officer.pub.pem
      hushrec verify dossier.tosign model.hush --page dossier.html --ledger team.sqlite

    Parameters
    ----------
    dossier
        The .json of hushrec sign, or the .tosign of hushrec certify.
    model
        The model file that it is about.
    page
        The HTML page that should belong to it.
    ledger
        Compare charges, seasons and budget with it.
    public_key
        Key that the signature must match, from: openssl pkey -in officer.pem -pubout -out officer.pub.pem
    """
    from hushrec.dossier import check, public_key as key_of  # the help does not need it

    content = content_of(dossier, "Dossier")
    shown = None if page is None else content_of(page, "Page")
    wanted = None if public_key is None else key_of(public_key)
    book = None if ledger is None else Account(ledger=ledger).open()
    checks = check(content, model, page=shown, ledger=book, public_key=wanted)
    rows = [f"{check.status:<13}{check.what + ':':<12}{check.words}" for check in checks]
    payload = {"checks": [check._asdict() | {"status": check.status} for check in checks]}
    output.result(as_json, payload, *rows)
    if failed := [check.what for check in checks if check.passed is False]:
        raise HushrecError(f"The dossier failed these checks: {', '.join(failed)}.")
