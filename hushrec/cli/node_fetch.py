"""``hushrec node fetch``."""

import csv
import io
from pathlib import Path

from hushrec.cli import show
from hushrec.cli.options import Authority, Catalogue, File, Json, Key, Patience, Server
from hushrec.errors import InputError


def node_fetch(
    *,
    server: Server,
    ca: Authority | None = None,
    catalogue: Catalogue,
    key: Key,
    out: File,
    patience: Patience = 30.0,
    as_json: Json = False,
) -> None:
    """Fetch the node's completed column, decrypt it, and write it for the node's owner alone.

      hushrec node fetch --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key --out alice.csv

    Parameters
    ----------
    out
        CSV of items and completed ratings.
    """
    from hushrec.data import Domain
    from hushrec.outsourcing.client import PrivateKey, fetch, write_private
    from hushrec.outsourcing.messages import fingerprint
    from hushrec.outsourcing.transport import Connection

    items = Domain.read_catalogue(catalogue)
    secret = PrivateKey.load(key)
    if fingerprint(items) != secret.catalogue:
        raise InputError("This is not the catalogue that the key file was made for; pass that one.")
    column = fetch(Connection(server, patience=patience, ca=ca), secret)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item", "rating"])
    writer.writerows(zip(items, column.tolist(), strict=True))
    write_private(Path(out), text.getvalue())
    if as_json:
        show.json({"node": secret.node, "items": len(items), "file": out})
    else:
        show.text(f"Wrote the completed ratings of node {secret.node} to {out}, for its owner alone.")
