"""``hushrec similar``."""

from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import output, output_model
from hushrec.cli.files import table_file, write_table
from hushrec.cli.items import Ruled
from hushrec.cli.options import Count, File, Force, Json
from hushrec.cli.tables import Columns
from hushrec.errors import InputError
from hushrec.serving.model import load


def similar(
    model: str,
    /,
    *items: Annotated[str, Parameter(metavar="ITEM", allow_leading_hyphen=True)],
    n: Annotated[Count, Parameter(name="-n")] = 10,
    all_items: Annotated[bool, Parameter(name="--all")] = False,
    out: File | None = None,
    ruled: Ruled = Ruled(),
    columns: Columns | None = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List the items that go together with ITEM, from MODEL alone. The list may be published.

    The output names its source. Several ITEMs, such as a basket, count together.

      hushrec similar model.hush matrix
      hushrec similar model.hush matrix alien -n 20 --titles titles.csv
      hushrec similar model.hush matrix --attributes items.csv --where in_stock --at-most brand=2
      hushrec similar model.hush --all --out similar.csv

    Parameters
    ----------
    model
        A model file.
    items
        Items of its catalogue.
    n
        How many items.
    all_items
        Write the lists of all items that MODEL knows to --out.
    out
        A Parquet or CSV file for --all.
    """
    if all_items != (out is not None) or all_items == bool(items):
        raise InputError(
            "Pass ITEM for one list, as in hushrec similar model.hush matrix, or --all --out FILE for those"
            " of all items."
        )
    target = None if out is None else table_file(out, (model, ruled.attributes, ruled.titles), force)
    trained = load(model)
    domain, rules = trained.domain, ruled.options(trained.domain, columns)
    if target is not None:
        table = trained.similar_batch(n, **rules)
        write_table(table, target)
        known = len(set(table["item"].to_pylist()))
        summary = {"path": str(target), "items": known, "catalogue": domain.n_items}
        rest = " The model knows nothing of the others." * (known < domain.n_items)
        output.done(
            as_json, summary, f"Wrote the lists of {known:,} of {domain.n_items:,} items to {out}.{rest}"
        )
        return
    if mistyped := [item for item in items if item.startswith("-") and domain.position(item) < 0]:
        raise InputError(f"There is no option or item {mistyped[0]!r}; see hushrec similar --help.")
    others = trained.similar_items(list(items), n, **rules)
    entries: list[dict[str, Any]] = [
        {"rank": rank, "item": entry.item, "score": entry.score} for rank, entry in enumerate(others, 1)
    ]
    output_model.name(entries, domain, rules["attributes"])
    head = ["rank", "item", *(["title"] if entries and "title" in entries[0] else []), "score"]
    cells = [[output_model.cell(entry[key], key) for key in head] for entry in entries]
    by = list(others[0].by) if others else []
    what = f"Goes together with {', '.join(items)}, by {', by '.join(by)}"
    output.result(
        as_json,
        {"item": items[0] if len(items) == 1 else items, "items": entries, "by": by},
        what if entries else "No item that goes together with these meets the rules.",
        *([output.table([head, *cells], left=range(1, len(head) - 1))] if entries else []),
    )
