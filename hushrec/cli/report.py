"""``hushrec report``."""

from hushrec.cli import show, show_model
from hushrec.cli.options import Json
from hushrec.serving.billboard import load


def report(model: str, /, *, as_json: Json = False) -> None:
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
    plain = {**show_model.described(billboard), "held_against": found}
    show.result(as_json, plain, first, show_model.about(billboard), *show.paragraph(beside))
