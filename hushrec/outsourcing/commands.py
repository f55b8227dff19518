"""Commands of masked completion: ``hushrec serve-completion`` and ``hushrec node submit|fetch``."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushrec.errors import InputError

if TYPE_CHECKING:
    from hushrec.data import Domain
    from hushrec.outsourcing.transport import Connection

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
_catalogue = click.option(
    "--catalogue", metavar="FILE", required=True, help="Items of the matrix: a text file, one item id a line."
)
_server = click.option(
    "--server", required=True, metavar="URL", help="Address that serve-completion printed."
)
_ca = click.option(
    "--ca",
    metavar="FILE",
    help="Authority that signed the server's certificate, PEM.  [default: the system's]",
)
_key = click.option(
    "--key",
    "key_path",
    required=True,
    metavar="FILE",
    help="The node's secrets; made if missing, for your eyes only.",
)
_patience = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to keep trying while the server is away or not ready.",
)


@click.command("serve-completion")
@_catalogue
@click.option("--nodes", type=click.IntRange(min=2), required=True, help="Columns of the matrix at most.")
@click.option("--enough", type=click.IntRange(min=2), help="Columns that will do.  [default: all]")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Seconds of silence after which enough columns are completed without the others.",
)
@click.option(
    "--mask-rank", type=click.IntRange(min=1), default=10, show_default=True, help="Public columns."
)
@click.option(
    "--noise-sd",
    type=float,
    default=100.0,
    show_default=True,
    help="Standard deviation of mask coefficients.",
)
@click.option("--rank", type=click.IntRange(min=1), help="Rank of the ratings.  [default: estimated]")
@click.option(
    "--solver",
    type=click.Choice(["am", "nn"]),
    default="am",
    show_default=True,
    help="Alternating or nuclear-norm minimisation.",
)
@click.option("--rounds", type=click.IntRange(1, 2), default=1, show_default=True, help="Form of the scheme.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the public key.")
@click.option("--database", default="completion.sqlite", show_default=True, help="What is received, durably.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: a free one.")
@click.option("--certificate", metavar="FILE", help="Of the server and its chain, PEM: serves HTTPS.")
@click.option("--certificate-key", metavar="FILE", help="Its private key, PEM.  [default: in --certificate]")
def serve_completion(
    catalogue: str,
    nodes: int,
    enough: int | None,
    wait: float,
    mask_rank: int,
    noise_sd: float,
    rank: int | None,
    solver: str,
    rounds: int,
    seed: int,
    database: str,
    host: str,
    port: int,
    certificate: str | None,
    certificate_key: str | None,
) -> None:
    """Complete the matrix of many nodes from masked columns. Obfuscation, not privacy: epsilon is None.

    Started again with the same options and database, it goes on where it was. Give it a certificate before it
    listens on another address than the loopback one.

    \b
    hushrec serve-completion --catalogue items.txt --nodes 50 --enough 40 --rank 4
    """
    from hushrec.data import Domain
    from hushrec.outsourcing.masking import MaskingStatement
    from hushrec.outsourcing.server import CompletionServer, Settings, Store
    from hushrec.outsourcing.service import Limits, Service

    items = Domain.read_catalogue(catalogue)
    settings = Settings(
        catalogue=fingerprint(items),
        n_items=len(items),
        n_nodes=nodes,
        enough=enough or nodes,
        wait=wait,
        mask_rank=mask_rank,
        noise_sd=noise_sd,
        rank=rank,
        solver=solver,
        rounds=rounds,
        seed=seed,
    )
    server = CompletionServer(settings, Store(database, settings))
    limits = Limits(body_bytes=20 * len(items) + 10_000)  # an upload of all items
    tls = {"certificate": certificate, "key": certificate_key}
    with Service(server.answer, host=host, port=port, limits=limits, **tls) as service:
        click.echo(MaskingStatement(mask_rank, rounds).text())
        click.echo(f"Serving on {service.url}")
        while True:
            time.sleep(3600)


@click.group()
def node() -> None:
    """Take part in a masked completion: upload masked ratings, fetch and decrypt the completed column.

    \b
    hushrec node submit mine.csv --server http://127.0.0.1:8765 --catalogue items.txt --rating-range 1 5 \\
                        --name alice --key alice.key
    hushrec node fetch  --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key --out alice.csv
    """


@node.command()
@click.argument("ratings_path", metavar="RATINGS")
@_server
@_ca
@_catalogue
@click.option(
    "--rating-range", type=(float, float), required=True, metavar="LOW HIGH", help="Declared range."
)
@click.option("--user", help="Whose ratings in RATINGS.  [default: the only user's]")
@click.option("--name", help="The node's name at the server.  [default: a random one]")
@_key
@click.option(
    "--record", metavar="FILE", help="Also keep what an eavesdropper sees, for hushrec audit masked."
)
@_patience
@_json
def submit(
    ratings_path: str,
    server: str,
    ca: str | None,
    catalogue: str,
    rating_range: tuple[float, float],
    user: str | None,
    name: str | None,
    key_path: str,
    record: str | None,
    patience: float,
    as_json: bool,
) -> None:
    """Mask one user's RATINGS and upload them. The server can still compute them: epsilon is None.

    Run it again after a crash, and once more in the second round where there is one: with the same key file
    and ratings it sends the same upload, or that of the next round.

    \b
    hushrec node submit mine.csv --server http://127.0.0.1:8765 --catalogue items.txt --rating-range 1 5 \\
                        --name alice --key alice.key
    """
    import secrets

    import numpy as np

    from hushrec.outsourcing.client import PrivateKey, submit, write_private
    from hushrec.outsourcing.masking import MaskingStatement
    from hushrec.outsourcing.messages import Record

    domain = _domain(catalogue, rating_range)
    items, values = _one_user(ratings_path, domain, user)
    if Path(key_path).exists():
        key = PrivateKey.load(key_path)
        if name is not None and name != key.node:
            raise InputError(f"The key file {key_path!r} is that of node {key.node!r}; leave out --name.")
    else:
        key = PrivateKey.create(key_path, name or secrets.token_hex(8), fingerprint(domain.items))
    task, sent = submit(_connection(server, ca, patience), key, items, values)
    if record is not None:
        rows = np.hstack([public[items] for public in task.keys])
        write_private(Path(record), Record(sent.values, rows).to_json().decode())
    statement = MaskingStatement(task.keys[0].shape[1], task.rounds)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "node": sent.node,
                    "round": sent.round,
                    "rounds": task.rounds,
                    "ratings": len(items),
                    "privacy": statement.to_dict(),
                }
            )
        )
        return
    click.echo(
        f"Uploaded {len(items)} masked ratings as node {sent.node}, round {sent.round} of {task.rounds}."
    )
    click.echo(statement.text())


@node.command()
@_server
@_ca
@_catalogue
@_key
@click.option("--out", "out_path", required=True, metavar="FILE", help="CSV of items and completed ratings.")
@_patience
@_json
def fetch(
    server: str,
    ca: str | None,
    catalogue: str,
    key_path: str,
    out_path: str,
    patience: float,
    as_json: bool,
) -> None:
    """Fetch the node's completed column, decrypt it, and write it for the node's owner alone.

    \b
    hushrec node fetch --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key --out alice.csv
    """
    import csv
    import io

    from hushrec.data import Domain
    from hushrec.outsourcing.client import PrivateKey, fetch, write_private

    items = Domain.read_catalogue(catalogue)
    key = PrivateKey.load(key_path)
    if fingerprint(items) != key.catalogue:
        raise InputError("This is not the catalogue that the key file was made for; pass that one.")
    column = fetch(_connection(server, ca, patience), key)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item", "rating"])
    writer.writerows(zip(items, column.tolist(), strict=True))
    write_private(Path(out_path), text.getvalue())
    if as_json:
        click.echo(json.dumps({"node": key.node, "items": len(items), "file": out_path}))
    else:
        click.echo(f"Wrote the completed ratings of node {key.node} to {out_path}, for its owner alone.")


def fingerprint(items: Iterable[object]) -> str:
    """SHA-256 of the item ids in order: nodes and server agree on positions."""
    return hashlib.sha256(json.dumps([str(item) for item in items]).encode()).hexdigest()


def _connection(url: str, ca: str | None, patience: float) -> Connection:
    from hushrec.outsourcing.transport import Connection

    return Connection(url, patience=patience, ca=ca)


def _domain(catalogue: str, rating_range: tuple[float, float]) -> Domain:
    from hushrec.data import Domain

    return Domain(tuple(Domain.read_catalogue(catalogue)), rating_range=rating_range)


def _one_user(path: str, domain: Domain, user: str | None) -> tuple[Any, Any]:
    """Positions and ratings of one user of a file."""
    from hushrec.data import Ratings

    ratings = Ratings.read(path, domain)
    if user is not None:
        ratings = ratings.for_users([user])
    if ratings.n_users != 1:
        raise InputError(f"{path!r} does not hold one user's ratings; say whose with --user ID.")
    if ratings.n_ratings == 0:
        raise InputError(f"{path!r} holds no usable rating of this user; nothing was sent.")
    return ratings.matrix.indices, ratings.matrix.data.astype("float64")
