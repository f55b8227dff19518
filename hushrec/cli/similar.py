"""``hushrec similar``."""

from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import output, output_model
from hushrec.cli.items import Titled
from hushrec.cli.options import Count, Json
from hushrec.cli.tables import Columns
from hushrec.errors import InputError
from hushrec.serving.model import load


def similar(
    model: str,
    /,
    *items: Annotated[str, Parameter(metavar="ITEM", allow_leading_hyphen=True)],
    n: Annotated[Count, Parameter(name="-n")] = 10,
    titled: Titled = Titled(),
    columns: Columns | None = None,
    as_json: Json = False,
) -> None:
    """List the items that go together with ITEM, from MODEL alone. The list may be published.

    The output names its source. Several ITEMs, such as a basket, count together.

      hushrec similar model.hush matrix
      hushrec similar model.hush matrix alien -n 20 --titles titles.csv

    Parameters
    ----------
    model
        A model file.
    items
        Items of its catalogue.
    n
        How many items.
    """
    trained = load(model)
    if not items:
        raise InputError(
            "ITEM is missing: pass an item of the catalogue, as in hushrec similar model.hush matrix."
        )
    others = trained.similar_items(list(items), n)
    entries: list[dict[str, Any]] = [
        {"rank": rank, "item": entry.item, "score": entry.score} for rank, entry in enumerate(others, 1)
    ]
    output_model.name(entries, trained.domain, titled.read(trained.domain, columns))
    head = ["rank", "item", *(["title"] if entries and "title" in entries[0] else []), "score"]
    cells = [[output_model.cell(entry[key]) for key in head] for entry in entries]
    by = list(others[0].by) if others else []
    output.result(
        as_json,
        {"item": items[0] if len(items) == 1 else items, "items": entries, "by": by},
        f"Goes together with {', '.join(items)}, by {', by '.join(by)}",
        output.table([head, *cells], left=range(1, len(head) - 1)),
    )
