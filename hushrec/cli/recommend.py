"""``hushrec recommend``."""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from cyclopts import Parameter

from hushrec.cli import output, output_model
from hushrec.cli.cluster import Scheduler, cluster
from hushrec.cli.files import output_folder, table_file, write_a_file_per_user, write_private_table
from hushrec.cli.items import Ruled
from hushrec.cli.options import Count, File, Force, Json, NoProgress, progress_shown
from hushrec.cli.tables import Reading
from hushrec.data import Domain, Ratings, Store
from hushrec.data.id_list import read_id_list
from hushrec.data.ids import encode_ids, lookup, places
from hushrec.data.readers import read_columns
from hushrec.data.store_files import is_store
from hushrec.errors import InputError
from hushrec.kernels.loops import in_numpy
from hushrec.serving.batch import PRIVATE_TABLE, write_lists
from hushrec.serving.item_lists import Known
from hushrec.serving.model import Model, load

_DELIMITERS = {None: ",", "comma": ",", "semicolon": ";"}


def recommend(
    model: str,
    history: str,
    /,
    *,
    user: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    all_users: Annotated[bool, Parameter(name="--all")] = False,
    n: Annotated[Count, Parameter(name="-n")] = 10,
    items: File | None = None,
    exclude_items: File | None = None,
    next: bool = False,
    include_seen: bool = False,
    explain: bool = False,
    out_dir: Annotated[str | None, Parameter(metavar="DIR")] = None,
    out: Annotated[str | None, Parameter(metavar="FILE")] = None,
    out_parts: Annotated[str | None, Parameter(metavar="DIR")] = None,
    mailing: Literal["comma", "semicolon"] | None = None,
    reading: Reading = Reading(),
    ruled: Ruled = Ruled(),
    force: Force = False,
    scheduler: Scheduler | None = None,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Recommend items to one user or to all users of HISTORY.

    A user's list is computed from MODEL and that user's ratings. Show it to that user only.

      hushrec recommend model.hush history.parquet --user 42 -n 10
      hushrec recommend model.hush history.parquet --user 42 --explain
      hushrec recommend model.hush history.parquet --all --out-dir lists/
      hushrec recommend model.hush history.parquet --all --out lists.private.parquet
      hushrec recommend model.hush history.parquet --user 42 --attributes items.csv --where "price < 50"
      hushrec recommend model.hush STORE --all --out-parts lists.private/
      hushrec recommend model.hush history.csv --all --out mail.private.csv \\
                        --mailing semicolon --titles titles.csv

    Parameters
    ----------
    model
        A model file.
    history
        Ratings of the users: a table or a store; items that MODEL lacks are skipped.
    user
        User to serve. A user without ratings in HISTORY gets the list for newcomers.
    all_users
        Serve all users of HISTORY. Needs --out-dir, --out or --out-parts.
    n
        Items per user.
    items
        Recommend only these items: a text file of ids, one per line. Unknown ids are skipped.
    exclude_items
        Never recommend these items: a text file of ids, one per line.
    next
        List what the user may choose next: later ratings count more. HISTORY needs a time column.
    include_seen
        Allow items that the user has rated.
    explain
        Show which of the user's items changed each score most. Needs --user.
    out_dir
        Folder for one CSV file per user, and index.private.csv with their names. --force replaces
        the lists of that index.
    out
        File for all lists, Parquet or CSV.
    out_parts
        New folder for the lists of any number of users, as Parquet files. Needs little memory.
    mailing
        Write one row per user to --out, with items and titles in columns. Excel needs semicolons.
    """
    _check(user, all_users, explain, next, mailing, out_dir, out, out_parts)
    _check_scheduler(scheduler, out_parts)
    trained = load(model)
    options: dict[str, Any] = {"next": next, "exclude_seen": not include_seen}
    options |= _known(trained.domain, items=items, exclude_items=exclude_items)
    options |= ruled.options(trained.domain, reading.columns)
    folder = None if out_dir is None else output_folder(out_dir, force)
    inputs = (model, history, items, exclude_items, ruled.attributes, ruled.titles)
    file = None if out is None else table_file(out, inputs, force)
    rows_or_store = _read(history, trained.domain, reading, next, all_users)
    if out_parts is not None:
        options["progress"] = progress_shown(no_progress)
        with cluster(scheduler, history) as engine:
            write_lists(trained, rows_or_store, out_parts, n, **options, engine=engine)
        _wrote(trained, out_parts, as_json)
        return
    if isinstance(rows_or_store, Store):
        rows_or_store.verify()
    with warnings.catch_warnings(action="ignore"):  # the list says it of a new user
        rows = rows_or_store if user is None else rows_or_store.for_users([user])
    rows = rows.ratings() if isinstance(rows, Store) else rows
    bar = user is None and progress_shown(no_progress)
    with contextlib.nullcontext() if user is None else in_numpy():
        table = trained.recommend_batch(rows, n, **options, progress=bar)
    if user is not None:
        known, listed = rows.n_ratings > 0, table.to_pylist()
        if explain:
            _explain(trained, rows, listed, options["attributes"])
        skipped = _skipped(user, history, trained.domain, reading)
        output_model.recommendations(user, known, skipped, listed, trained, as_json)
        return
    if folder is not None:
        write_a_file_per_user(table, folder)
    elif file is not None:
        write_private_table(table, file, PRIVATE_TABLE, _DELIMITERS[mailing], n if mailing else None)
    _wrote(trained, str(folder or file), as_json)


def _known(domain: Domain, **paths: str | None) -> dict[str, list[Any]]:
    """Return the known items of each list, and print the number of the others."""
    lists = {}
    for name, path in paths.items():
        if path is not None:
            option = f"--{name.replace('_', '-')}"
            known = Known.of(domain, read_id_list(path, f"The list of {option}"), name)
            lists[name] = [domain.items[place] for place in known.columns]
            if known.skipped:
                output.note(f"{option}{known.skipped.removeprefix(name)}")
    return lists


def _read(history: str, domain: Domain, reading: Reading, timed: bool, all_users: bool) -> Any:
    rows = reading.read(history, domain, times=True) if timed else reading.open(history, domain)
    if all_users and not rows.n_ratings:
        raise InputError(
            f"{history!r} holds no usable rating, so there is no user to serve; `hushrec check` shows which"
            " rows are used."
        )
    return rows


def _skipped(user: str, history: str, domain: Domain, reading: Reading) -> int:
    """Return how many of the user's items the catalogue lacks; a store holds none of them."""
    if is_store(history):
        return 0
    table = read_columns(history, **{**reading.arguments(), "implicit": True})
    users, items = encode_ids(table.users), encode_ids(table.items)
    (place,) = lookup(user, users.texts)
    own = np.unique(items.codes[(users.codes == place) & (place >= 0)])
    return int((places(items.texts.take(pa.array(own[own >= 0])), domain.item_texts) < 0).sum())


def _wrote(trained: Model, path: str, as_json: bool) -> None:
    taste = output_model.taste_of(trained)
    summary = {"path": path, "note": PRIVATE_TABLE, "taste": taste.to_dict()}
    wrote = f"Wrote the lists of all users in the history to {path}"
    output.done(as_json, summary, wrote, f"{PRIVATE_TABLE}.", *output.paragraph(taste.text(advice=False)))


@in_numpy()
def _explain(trained: Model, rows: Ratings, listed: list[dict[str, Any]], titled: Any) -> None:
    matrix, ids = rows.matrix, trained.domain.items
    history = {
        ids[at]: None if math.isnan(x) else x
        for at, x in zip(matrix.indices, matrix.data.tolist(), strict=True)
    }
    for row in listed:
        why = trained.explain(history, row["item"])
        because = [reason._asdict() for reason in why.because if reason.moved]
        base = why.base
        if not math.isclose(why.score, row["score"]):  # lowered: it does not exceed the noise
            base = row["score"] - sum(reason.moved for reason in why.because)
        output_model.name(because, trained.domain, titled)
        row |= {"base": base, "because": because}


def _check_scheduler(scheduler: str | None, out_parts: str | None) -> None:
    if scheduler is not None and out_parts is None:
        raise InputError("--scheduler writes a folder of lists; pass --all --out-parts DIR.")


def _check(
    user: str | None, all_users: bool, explain: bool, next: bool, mailing: str | None, *outputs: str | None
) -> None:
    n_outputs = sum(path is not None for path in outputs)
    if user is not None and all_users:
        raise InputError("Pass --user ID or --all, not both.")
    if user is None and not all_users:
        raise InputError("Pass --user ID for one user, or --all for every user in the history.")
    if mailing and not str(outputs[1]).lower().endswith(".csv"):
        raise InputError("--mailing is for a CSV file of all users; pass --all --out mail.private.csv.")
    if explain and next:
        raise InputError("--explain explains the usual list only; leave out --next or --explain.")
    if explain and user is None:
        raise InputError("explain is for one user; pass --user ID.", parameter="explain")
    if all_users and n_outputs != 1:
        raise InputError(
            "--all needs one of --out-dir DIR (one file per user), --out FILE (one file) and"
            " --out-parts DIR (one file for many users)."
        )
    if user is not None and n_outputs:
        raise InputError("--out, --out-dir and --out-parts are for --all; one user's list is printed.")
