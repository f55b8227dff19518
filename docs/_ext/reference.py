"""The reference, written from the code: public names by what they are for, and every command's own help."""

import contextlib
import io
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from numpydoc.docscrape import NumpyDocString
from sphinx.application import Sphinx

from docs._ext.names import DATA, groups, thing
from docs._ext.pages import DOCS, write
from hushrec.training.estimator import Estimator


def api_page(title: str, introduction: str, names: list[str], tunings: set[object]) -> str:
    """reStructuredText of one page; a ``Tuning`` that models share is shown with the first of all pages."""
    parts = [f"{title}\n{'=' * len(title)}\n\n{introduction}\n\n.. currentmodule:: hushrec\n"]
    for name in names:
        public, _ = thing(name)
        heading, place = (f"hushrec.{name}", name) if "." in name else (name, DATA.get(name, name))
        kind = "data" if name in DATA else "class" if isinstance(public, type) else "function"
        members = "   :members:\n   :show-inheritance:\n" if kind == "class" else ""
        members += "   :inherited-members:\n" if name == "Model" else ""
        if isinstance(public, type) and issubclass(public, Estimator) and public is not Estimator:
            members += "   :inherited-members: Estimator\n"
            tuning = getattr(public, "Tuning", None)
            members += "   :exclude-members: Tuning\n" if tuning in tunings else ""
            tunings.add(tuning)
        members += "   :no-value:\n" if kind == "data" else ""
        parts.append(f"{heading}\n{'-' * len(heading)}\n\n.. auto{kind}:: hushrec.{place}\n{members}")
    return "\n".join(parts)


def command_names() -> Iterator[list[str]]:
    """The words of every command."""
    from hushrec.cli import app

    for words in app._COMMANDS:
        yield words.split()


def printed(*words: str) -> str:
    """What ``hushrec WORDS`` prints."""
    from hushrec.cli import run

    os.environ["COLUMNS"] = "96"
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        if run(words) != 0:
            raise RuntimeError(f"hushrec {' '.join(words)} failed")
    return shown.getvalue().rstrip()


def command_section(words: list[str]) -> str:
    """Markdown of one command: usage, what it does, examples, options."""
    usage, *rest = printed(*words, "--help").split("\n\n")
    parts = [f"## hushrec {' '.join(words)}", f"```text\n{usage}\n```"]
    for block in rest:
        if block.lstrip().startswith("hushrec "):
            parts.append(f"```bash\n{textwrap.dedent(block).strip()}\n```")
        elif re.match(r"\S.*:\n  ", block):
            parts.append(options_list(block))
        else:
            parts.append(_prose(block))
    return "\n\n".join(parts) + "\n"


def options_list(block: str) -> str:
    """A group of options as it is printed in two columns -> a definition list."""
    title, _, entries = block.partition("\n")
    parts = [f"**{title.removesuffix(':')}**"]
    for entry in re.split(r"\n(?=  \S)", entries):
        found = re.fullmatch(r"  (-{0,2}\S.*?)(?:  +|\n {20,})(.*)", entry, flags=re.S)
        parts.append(f"`{found[1]}`\n: {_prose(found[2])}" if found else _prose(entry))
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """One line, with nothing that Markdown would take for its own."""
    return re.sub(r"([*_<>\[\]`|])", r"\\\1", " ".join(text.split()))


def commands_page() -> str:
    """Markdown of all commands."""
    introduction = (
        "# Command line\n\nEvery command's own `--help`, as this version prints it. Exit codes: 0 done, 1"
        " refused by a budget or failed, 2 bad input, 130 interrupted. With `--json` a command prints one"
        " JSON object. What a model's own settings are: [settings of models](settings.md).\n"
    )
    return "\n".join([introduction, *(command_section(words) for words in command_names())])


def settings_page() -> str:
    """Markdown of the settings of every model."""
    from hushrec.registry import ESTIMATORS

    parts = [
        "# Settings of models\n\nPass a setting to `hushrec train` as `--set NAME=VALUE`. In Python a setting"
        " is a field of the model's class, or of its `Tuning`. *planned* means: chosen from epsilon, the"
        " catalogue, the range and the number of users.\n"
    ]
    for name in ESTIMATORS:
        parts.append(f"## {name}\n\n```\n{printed('settings', name, '--tuning')}\n```\n")
    return "\n".join(parts)


def _write(app: Sphinx) -> None:
    folder: Path = DOCS / "reference"
    tunings: set[object] = {None}
    for page, (title, introduction, names) in groups().items():
        write(folder / "api" / f"{page}.rst", api_page(title, introduction, names, tunings))
    write(folder / "commands.md", commands_page())
    write(folder / "settings.md", settings_page())


def _privacy_first(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Our docstrings have a section "Privacy", which numpydoc does not know: it goes before parameters."""
    text = "\n".join(lines)
    found = re.search(r"^Privacy\n-------\n(.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", text, flags=re.M | re.S)
    if found:
        rest = text.replace(found[0], "")
        first = re.search(r"^\S[^\n]*\n-{3,}$", rest, flags=re.M)
        at = first.start() if first else len(rest)
        privacy = f"\n\n**Privacy.** {found[1].strip()}\n\n"
        lines[:] = (rest[:at].rstrip() + privacy + rest[at:]).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Before pages are read: write the reference."""
    NumpyDocString.sections["Privacy"] = ""  # known, so that no signature's docstring is complained of
    app.connect("builder-inited", _write)
    app.connect("autodoc-process-docstring", _privacy_first, priority=100)
    return {"parallel_read_safe": True}
