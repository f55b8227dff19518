"""The reference, written from the code: public names by what they are for, and every command's own help."""

import ast
import contextlib
import io
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from numpydoc.docscrape import NumpyDocString
from sphinx.application import Sphinx

from docs._ext.pages import DOCS, ROOT, write

#: Title, introduction and names of each page; what is in none of them goes to a page of its own.
GROUPS = {
    "data": (
        "Ratings and their domain",
        "What is declared, what is read, and how ratings are held out.",
        ["Domain", "Ratings", "split_ratings", "split_by_time", "leave_k_out", "strong_generalization",
         "sample_per_user", "realistic", "paired_likes"],
    ),
    "models": (
        "Private models",
        "What a recommender is trained with. Each is a frozen dataclass: settings are its fields, ``planned``"
        " chooses them from public quantities, ``fit`` trains and returns a :class:`hushrec.Billboard`.",
        ["Both", "PrivateALS", "PrivateEigenRec", "ItemBias", "GlobalMean", "Popular", "UserLevelOneBit"],
    ),
    "references": (
        "Models without privacy",
        "References to compare with. They are stamped NOT PRIVATE.",
        ["ALS", "EASE", "FrankWolfe", "ProjectedGradient"],
    ),
    "papers": (
        "Models of papers",
        "What papers published, with the constants that do not hold corrected; to be compared with.",
        ["DPALS", "PrivateFrankWolfe", "CorrectiveFrankWolfe", "PrivateSVD", "PrivateProjectedGradient",
         "CleansedSVD", "OneBitCompletion"],
    ),
    "serving": (
        "Trained models",
        "What training returns and a ``.hush`` file holds: released values only.",
        ["Billboard", "load", "UserState"],
    ),
    "privacy": (
        "Budgets, ledgers and statements",
        "What is promised, charged and stated.",
        ["Budget", "Accountant", "Ledger", "LedgerSummary", "default_path", "PrivacyStatement", "Plan",
         "Release"],
    ),
    "evaluation": (
        "Evaluation and tuning",
        "Figures on ratings that were held out. They are computed from private ratings, and marked so.",
        ["evaluate", "Evaluation", "Estimate", "compare", "Comparison", "tune"],
    ),
    "accounting": (
        "Privacy arithmetic",
        "Between epsilon, delta and mu, the cost of a Gaussian release. Rounding is to the safe side.",
        ["mu_of", "epsilon_of", "delta_of", "mu_of_pure", "total_mu"],
    ),
    "extending": (
        "Writing an estimator",
        "What a training of your own is made of: the users' side, the gate, and mechanisms.",
        ["Estimator", "Gate", "Bounded", "Bound", "signed", "positive", "counted", "jointly", "together",
         "Mechanism", "Gaussian", "Laplace", "RandomizedResponse", "RepeatAndSelect", "NoiseSource",
         "SystemNoise", "ESTIMATORS"],
    ),
    "errors": (
        "Errors",
        "Each message is one sentence that says what is wrong and what to do.",
        ["HushrecError", "InputError", "BudgetError", "LedgerError", "ModelFileError"],
    ),
}  # fmt: skip


def public_names() -> list[str]:
    """The names of hushrec/__init__.pyi."""
    tree = ast.parse((ROOT / "hushrec" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [each for each in tree.body if isinstance(each, ast.ImportFrom)]
    return sorted(alias.asname or alias.name for each in imports for alias in each.names)


def groups() -> dict[str, tuple[str, str, list[str]]]:
    """The groups, and one of the public names that have none."""
    grouped = {name for _, _, names in GROUPS.values() for name in names}
    rest = [name for name in public_names() if name not in grouped]
    return GROUPS | ({"more": ("More names", "Public names of other kinds.", rest)} if rest else {})


def api_page(title: str, introduction: str, names: list[str]) -> str:
    """reStructuredText of one page."""
    import hushrec

    parts = [f"{title}\n{'=' * len(title)}\n\n{introduction}\n\n.. currentmodule:: hushrec\n"]
    for name in names:
        thing = getattr(hushrec, name)
        kind = "class" if isinstance(thing, type) else "function" if hasattr(thing, "__code__") else "data"
        members = "   :members:\n   :show-inheritance:\n" if kind == "class" else ""
        members += "   :inherited-members:\n" if name == "Billboard" else ""
        parts.append(f"{name}\n{'-' * len(name)}\n\n.. auto{kind}:: hushrec.{name}\n{members}")
    return "\n".join(parts)


def command_names() -> Iterator[list[str]]:
    """The words of every command."""
    from hushrec.cli import app

    for words in app._COMMANDS:
        yield words.split()


def help_of(words: list[str]) -> str:
    """What ``hushrec WORDS --help`` prints."""
    from hushrec.cli import run

    os.environ["COLUMNS"] = "96"
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        if run([*words, "--help"]) != 0:
            raise RuntimeError(f"hushrec {' '.join(words)} --help failed")
    return shown.getvalue().rstrip()


def command_section(words: list[str]) -> str:
    """Markdown of one command: usage, what it does, examples, options."""
    usage, *rest = help_of(words).split("\n\n")
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
        "# Settings of models\n\nWhat `hushrec train --model NAME` takes beside the options that all models"
        " have. *planned* means: chosen from epsilon, the catalogue, the range and the number of users. In"
        " Python they are the fields of the model's class.\n"
    ]
    for name in ESTIMATORS:
        blocks = help_of(["train", "--model", name]).split("\n\n")
        for block in blocks:
            if block.startswith("Settings of "):
                parts.append(f"## {name}\n\n{options_list(block).partition(chr(10))[2].lstrip()}\n")
    return "\n".join(parts)


def _write(app: Sphinx) -> None:
    folder: Path = DOCS / "reference"
    for page, (title, introduction, names) in groups().items():
        write(folder / "api" / f"{page}.rst", api_page(title, introduction, names))
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
