"""``hushrec report``."""

from hushrec.cli import output, output_model
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
    first = f"Model:      {billboard.estimator.name}: {output_model.summary(billboard.estimator)}"
    found, beside = output_model.held_against(billboard)
    newcomer = [{"item": each.item} for each in billboard.recommend([], 5)]
    output_model.name(newcomer, billboard.domain, titled.read(billboard.domain))
    begins = ", ".join(str(each.get("title") or each["item"]) for each in newcomer)
    plain = {**output_model.described(billboard), "held_against": found, "newcomers_list": newcomer}
    output.result(
        as_json,
        plain,
        first,
        output_model.about(billboard),
        *output.paragraph(beside),
        *output.paragraph(f"A newcomer's list begins with {begins}."),
    )
