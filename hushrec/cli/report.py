"""``hushrec report``."""

from hushrec.cli import show
from hushrec.cli.options import Json


def report(model: str, /, *, as_json: Json = False) -> None:
    """Say what MODEL is and what it promises. Reads the model file and nothing else.

      hushrec report model.hush
      hushrec report model.hush --json

    Parameters
    ----------
    model
        A model file.
    """
    from hushrec.billboard import load

    billboard = load(model)
    first = f"Model:      {billboard.estimator.name}: {show.summary(billboard.estimator)}"
    show.result(as_json, show.described(billboard), first, show.about(billboard))
