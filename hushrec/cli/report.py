"""``hushrec report``."""

from typing import Annotated

from cyclopts import Parameter

from hushrec.cli import output, output_model
from hushrec.cli.items import Titled
from hushrec.cli.options import Json
from hushrec.cli.tables import Columns
from hushrec.serving.model import load


def report(
    model: str,
    /,
    *,
    releases: Annotated[bool, Parameter(help="List the noise of each release.")] = False,
    settings: Annotated[bool, Parameter(help="List the settings.")] = False,
    titled: Titled = Titled(),
    columns: Columns | None = None,
    as_json: Json = False,
) -> None:
    """Show the contents and the promise of MODEL. Reads the model file and nothing else.

      hushrec report model.hush
      hushrec report model.hush --releases --settings

    Parameters
    ----------
    model
        A model file.
    """
    trained = load(model)
    facts, baselines = output_model.held_against(trained)
    newcomer = [{"item": entry.item} for entry in trained.recommend([], 5)]
    output_model.name(newcomer, trained.domain, titled.read(trained.domain, columns))
    begins = ", ".join(
        output_model.cell(entry.get("title"), "title") or str(entry["item"]) for entry in newcomer
    )
    plain = {**output_model.described(trained), "held_against": facts, "newcomers_list": newcomer}
    text = [
        f"Model:      {trained.estimator.name}: {output_model.summary(type(trained.estimator))}",
        output_model.about(trained, releases),
        *output.paragraph(f"A new user's list begins with {begins}."),
    ]
    if releases:
        text += output.paragraph(baselines)
    if settings:
        text += ["", output_model.settings_line(trained.estimator, output_model.counted(trained))]
    if not (releases or settings):
        text.append("--releases lists the noise of each release, --settings the settings.")
    output.result(as_json, plain, *text)
