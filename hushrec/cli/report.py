"""``hushrec report``."""

from hushrec.cli import show, show_model
from hushrec.cli.items import Titled
from hushrec.cli.options import Json
from hushrec.serving.billboard import load


def report(model: str, /, *, titled: Titled = Titled(), as_json: Json = False) -> None:
    """Say what MODEL is and what it promises. Reads the model file and nothing else.

      hushrec report model.hush
      hushrec report model.hush --json

    Parameters
    ----------
    model
        A model file.
    """
    billboard = load(model)
    first = f"Model:      {billboard.estimator.name}: {show_model.summary(billboard.estimator)}"
    found, beside = show_model.held_against(billboard)
    newcomer = [{"item": each.item} for each in billboard.recommend([], 5)]
    show_model.name(newcomer, billboard.domain, titled.read(billboard.domain))
    begins = ", ".join(str(each.get("title") or each["item"]) for each in newcomer)
    plain = {**show_model.described(billboard), "held_against": found, "newcomers_list": newcomer}
    show.result(
        as_json,
        plain,
        first,
        show_model.about(billboard),
        *show.paragraph(beside),
        *show.paragraph(f"A newcomer's list begins with {begins}."),
    )
