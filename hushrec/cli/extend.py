"""``hushrec extend``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import Catalogue, File, Force, Json
from hushrec.cli.tables import Columns, item_tables
from hushrec.cli.train import save
from hushrec.data import Domain
from hushrec.serving.model import load


def extend(
    model: str,
    /,
    *,
    catalogue: Catalogue,
    item_features: Annotated[list[File], Parameter(negative=())],
    columns: Columns | None = None,
    out: File,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Add new items to MODEL from a public table of all articles, without training and without cost.

      hushrec extend model.hush --catalogue items.txt --item-features features.csv --out grown.hush

    Parameters
    ----------
    model
        A model file.
    catalogue
        Text file of all items, old and new, one per line.
    item_features
        Public table of all articles, old and new: ids, titles, categories, numbers; repeatable.
    out
        File for the larger model.
    """
    trained = load(model)
    features = item_tables(item_features, columns)
    domain = replace(trained.domain, items=tuple(Domain.read_catalogue(catalogue)), item_features=features)
    target = output_file(out, (model, catalogue, *item_features), force)
    larger = trained.with_items(domain)
    save(larger, target)
    count = len(larger.new_items)
    output.done(
        as_json,
        {"path": str(target), "new_items": list(larger.new_items)},
        f"Wrote {target}: {plural(domain.n_items, 'item')}, {count:,} of them new. Nothing was charged.",
    )
