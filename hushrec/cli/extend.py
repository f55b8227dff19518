"""``hushrec extend``."""

from __future__ import annotations

from dataclasses import replace

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import Catalogue, File, Force, Json
from hushrec.cli.train import save
from hushrec.data import Domain
from hushrec.serving.billboard import load


def extend(
    model: str,
    /,
    *,
    catalogue: Catalogue,
    item_features: File,
    out: File,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Add the new items of a larger catalogue to MODEL, from what is publicly known of all items.

    Nothing is trained and nothing is charged: a new item gets the bias and the factors that its features let
    expect. Lists mark it as new.

      hushrec extend model.hush --catalogue items.txt --item-features features.csv --out grown.hush

    Parameters
    ----------
    model
        A model file.
    catalogue
        The items of MODEL and the new ones, one item id a line.
    item_features
        A table with a column of item ids and columns of what is known of the items, old and new.
    out
        Where the larger model goes.
    """
    board = load(model)
    domain = replace(board.domain, items=tuple(Domain.read_catalogue(catalogue)), item_features=item_features)
    target = output_file(out, (model, catalogue, item_features), force)
    larger = board.with_items(domain)
    save(larger, target)
    count = len(larger.new_items)
    output.done(
        as_json,
        {"path": str(target), "new_items": list(larger.new_items)},
        f"Wrote {target}: {plural(domain.n_items, 'item')}, {count:,} of them new. Nothing was charged.",
    )
