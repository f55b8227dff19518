"""``hushrec similar``."""

from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import show, show_model
from hushrec.cli.items import Titled
from hushrec.cli.options import Count, Json
from hushrec.serving.billboard import load


def similar(
    model: str,
    item: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    n: Annotated[Count, Parameter(name="-n")] = 10,
    titled: Titled = Titled(),
    as_json: Json = False,
) -> None:
    """Name the items that the same people like as ITEM, from MODEL alone. The list may be published.

    Only what the model surely learned of people's tastes counts; one that learned nothing has no answer.

      hushrec similar model.hush matrix
      hushrec similar model.hush matrix -n 20 --json

    Parameters
    ----------
    model
        A model file.
    item
        An item of its catalogue.
    n
        How many items.
    """
    billboard = load(model)
    found = billboard.similar_items(item, n)
    items: list[dict[str, Any]] = [
        {"rank": rank, "item": each, "score": score} for rank, (each, score) in enumerate(found, 1)
    ]
    show_model.name(items, billboard.domain, titled.read(billboard.domain))
    head = ["rank", "item", *(["title"] if "title" in items[0] else []), "score"]
    cells = [[show_model.cell(each[key]) for key in head] for each in items]
    taste = show_model.taste_of(billboard)
    show.result(
        as_json,
        {"item": item, "items": items, "taste": taste.to_dict()},
        f"Liked by the same people as {item}",
        show.table([head, *cells], left=range(1, len(head) - 1)),
        *show.paragraph(taste.text()),
    )
