"""``hushrec papers node fetch``."""

import csv
import io
from pathlib import Path

from hushrec.cli import output
from hushrec.cli.options import Catalogue, File, Json
from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.papers.masked.cli.options import Key, Link
from hushrec.papers.masked.messages import fingerprint
from hushrec.serving.modelfile import write_atomically


def node_fetch(*, link: Link, catalogue: Catalogue, key: Key, out: File, as_json: Json = False) -> None:
    """Fetch the node's completed column, decrypt it, and write it for the node's owner alone.

      hushrec papers node fetch --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key \\
                                --out alice.csv

    Parameters
    ----------
    out
        CSV of items and completed ratings.
    """
    from hushrec.papers.masked.client import PrivateKey, fetch  # an extra, which the help does without

    items = Domain.read_catalogue(catalogue)
    secret = PrivateKey.load(key)
    if fingerprint(items) != secret.catalogue:
        raise InputError("This is not the catalogue that the key file was made for; pass that one.")
    column = fetch(link.connection(), secret)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item", "rating"])
    writer.writerows(zip(items, column.tolist(), strict=True))
    write_atomically(Path(out), [text.getvalue().encode()])
    wrote = f"Wrote the completed ratings of node {secret.node} to {out}, for its owner alone."
    output.done(as_json, {"node": secret.node, "items": len(items), "file": out}, wrote)
