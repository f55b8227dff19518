"""``hushrec prepare``."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.options import Count, Json, NoProgress, progress_shown
from hushrec.cli.tables import Declared, Reading
from hushrec.data import Store
from hushrec.data.store_files import PRIVATE_STORE
from hushrec.errors import InputError


def prepare(
    paths: list[str],
    /,
    *,
    out: Annotated[str, Parameter(metavar="STORE")],
    times: bool = False,
    partitions: Count | None = None,
    declared: Declared = Declared(),
    reading: Reading = Reading(),
    force: bool = False,
    no_progress: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Write private ratings of any number to a STORE, cleaned and in partitions of users, to train from.

    PATHS are tables, folders of them, patterns, or addresses such as s3://bucket/folder; or one pipe that
    holds an Arrow stream (IPC), for example of a query. Training on a store needs memory for a few blocks of
    users only. A store takes 5 to 8 bytes per rating, 4 more with times, and some 20 more while it is
    written. The output and the store are PRIVATE.

      hushrec prepare ratings/*.parquet --catalogue items.txt --rating-range 1 5 --out shop.store
      hushrec train shop.store --epsilon 5 --delta 1e-6 --out model.hush

    Parameters
    ----------
    paths
        Tables with columns of users and items, and of ratings or quantities.
    out
        The store, a folder that is made.
    times
        Keep the times of ratings.
    partitions
        Number of files; 32 by default. Above 100 million rows, pass one per 2 million.
    force
        Replace an existing store.
    """
    if declared.item_features is not None:
        raise InputError("A store holds no item features; pass --item-features to train.")
    domain, arguments = declared.domain(reading.implicit), reading.arguments(times=times)
    store: Any = Store.prepare(
        paths,
        out,
        domain,
        partitions=partitions,
        force=force,
        progress=progress_shown(no_progress),
        **arguments,
    )
    parts, blocks = store.partitions(), len(store.blocks())
    payload = {"note": PRIVATE_STORE, "path": str(store.path), "users": store.n_users}
    payload |= {"ratings": store.n_ratings, "partitions": len(parts), "blocks": blocks}
    payload["bytes"] = sum(part.entry["bytes"] for part in parts)
    wrote = f"Wrote {store.path}: {plural(store.n_ratings, 'rating')} of {plural(store.n_users, 'user')}"
    if not store.n_ratings:
        wrote += " (no row can be used: hushrec check shows what became of them)"
    output.done(as_json, payload, f"{wrote}, in {plural(len(parts), 'partition')}", f"{PRIVATE_STORE}.")
