"""``hushrec papers node submit``."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.options import Catalogue, File, Json, Range
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.papers.masked.cli.options import Key, Link
from hushrec.papers.masked.masking import MaskingStatement
from hushrec.papers.masked.messages import Record, fingerprint
from hushrec.serving.modelfile import write_atomically

if TYPE_CHECKING:
    from hushrec.papers.masked.client import PrivateKey


def node_submit(
    ratings: str,
    /,
    *,
    link: Link,
    catalogue: Catalogue,
    rating_range: Range,
    user: Annotated[str, Parameter(allow_leading_hyphen=True, show_default="the only user's")] | None = None,
    name: Annotated[str, Parameter(show_default="a random one")] | None = None,
    key: Key,
    record: File | None = None,
    as_json: Json = False,
) -> None:
    """Mask one user's RATINGS and upload them. The server can still compute them: epsilon is None.

    Run it again after a crash, and once more for a second round. The same key file and ratings give the same
    upload, or that of the next round.

      hushrec papers node submit mine.csv --server http://127.0.0.1:8765 --catalogue items.txt \\
                                 --rating-range 1 5 --name alice --key alice.key

    Parameters
    ----------
    ratings
        A table with columns of users, items and ratings.
    rating_range
        Declared lowest and highest rating.
    user
        User of these ratings in RATINGS.
    name
        The node's name at the server.
    record
        Also keep what an eavesdropper sees, for hushrec papers audit-masked.
    """
    from hushrec.papers.masked.client import submit  # an extra, which the help does without

    domain = Domain(tuple(Domain.read_catalogue(catalogue)), rating_range=rating_range)
    items, values = _one_user(ratings, domain, user)
    secret = _key(key, name, domain)
    task, sent = submit(link.connection(), secret, items, values)
    if record is not None:
        rows = np.hstack([public[items] for public in task.keys])
        write_atomically(Path(record), [Record(sent.values, rows).to_json()])
    statement = MaskingStatement(task.keys[0].shape[1], task.rounds)
    summary = {"node": sent.node, "round": sent.round, "rounds": task.rounds, "ratings": len(items)}
    output.done(
        as_json,
        {**summary, "privacy": statement.to_dict()},
        f"Uploaded {len(items)} masked ratings as node {sent.node}, round {sent.round} of {task.rounds}.",
        statement.text(),
    )


def _key(path: str, name: str | None, domain: Domain) -> PrivateKey:
    from hushrec.papers.masked.client import PrivateKey

    if not Path(path).exists():
        return PrivateKey.create(path, name or secrets.token_hex(8), fingerprint(domain.items))
    key = PrivateKey.load(path)
    if name is not None and name != key.node:
        raise InputError(f"The key file {path!r} is that of node {key.node!r}; leave out --name.")
    return key


def _one_user(path: str, domain: Domain, user: str | None) -> tuple[Any, Any]:
    ratings = Ratings.from_any(path, domain)
    if user is not None:
        ratings = ratings.for_users([user])
    if ratings.n_users != 1:
        raise InputError(f"{path!r} does not hold exactly one user's ratings; pass --user ID.")
    if ratings.n_ratings == 0:
        raise InputError(f"{path!r} holds no usable rating of this user; nothing was sent.")
    return ratings.matrix.indices, ratings.matrix.data.astype("float64")
