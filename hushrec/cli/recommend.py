"""``hushrec recommend``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import show
from hushrec.cli.files import (
    output_folder,
    private_table_file,
    write_a_file_per_user,
    write_private_table,
)
from hushrec.cli.options import Count, File, Force, Json, Reading
from hushrec.errors import InputError

PRIVATE_TABLE = "PRIVATE: each user's rows are for that user alone; publish none of them together"


def recommend(
    model: str,
    history: str,
    /,
    *,
    user: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    all_users: bool = False,
    n: Annotated[Count, Parameter(name="-n")] = 10,
    items: File | None = None,
    include_seen: bool = False,
    out_dir: Annotated[str | None, Parameter(metavar="DIR")] = None,
    out: Annotated[str | None, Parameter(metavar="FILE")] = None,
    reading: Reading = Reading(),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Recommend items to one user or to all, from MODEL and the users' own ratings in HISTORY.

    A user's list is computed from her own ratings: show it to her alone. For many users there is one file
    per user, or one file marked private.

      hushrec recommend model.hush history.parquet --user 42 -n 10
      hushrec recommend model.hush history.parquet --all-users --out-dir lists/
      hushrec recommend model.hush history.parquet --all-users --out lists.private.parquet

    Parameters
    ----------
    model
        A model file.
    history
        Ratings of the users to serve.
    user
        Serve this user; one without ratings in HISTORY gets the list for newcomers.
    all_users
        Serve every user in HISTORY; needs --out-dir or --out.
    n
        Items per user.
    items
        Recommend among these only: one item id a line.
    include_seen
        Allow items that the user has rated.
    out_dir
        One CSV file per user, named by her percent-encoded id.
    out
        One file for all users: Parquet, marked private inside, or CSV where its name ends so.
    """
    from hushrec.billboard import load
    from hushrec.data import Domain

    _check(user, all_users, out_dir, out)
    billboard = load(model)
    allowed = None if items is None else Domain.read_catalogue(items)
    folder = None if out_dir is None else output_folder(out_dir, force)
    file = None if out is None else private_table_file(out, (model, history, items), force)
    rows = reading.read(history, billboard.domain)
    known = user is not None and bool(rows.user_index([user])[0] >= 0)
    if user is not None:
        rows = rows.for_users([user])
    table = billboard.recommend_batch(rows, n, exclude_seen=not include_seen, items=allowed)
    if user is not None:
        show.recommendations(user, known, table.to_pylist(), billboard, as_json)
        return
    if folder is not None:
        write_a_file_per_user(table, folder)
    else:
        assert file is not None
        write_private_table(table, file, PRIVATE_TABLE)
    taste = show.taste_of(billboard)
    found = {"path": str(folder or file), "note": PRIVATE_TABLE, "taste": taste.to_dict()}
    wrote = f"Wrote the lists of all users in the history to {folder or file}"
    show.result(as_json, found, wrote, f"{PRIVATE_TABLE}.", *show.paragraph(taste.text()))


def _check(user: str | None, all_users: bool, out_dir: str | None, out: str | None) -> None:
    if user is not None and all_users:
        raise InputError("Pass --user ID or --all-users, not both.")
    if user is None and not all_users:
        raise InputError("Pass --user ID for one user, or --all-users for every user in the history.")
    if all_users and (out_dir is None) == (out is None):
        raise InputError("--all-users needs --out-dir DIR (one file per user) or --out FILE (one file).")
    if user is not None and (out_dir or out):
        raise InputError("--out and --out-dir are for --all-users; one user's list is printed.")
