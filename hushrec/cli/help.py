"""Help in two columns, and wrong command lines as one sentence."""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING, Any

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from hushrec.checks import names_of
from hushrec.registry import ESTIMATORS

if TYPE_CHECKING:
    from cyclopts import Argument
    from cyclopts.help import HelpEntry, HelpPanel

#: Options that most users need; the help lists them first.
MAIN = Group("Options", sort_key=1)
#: Characters of a line, and where the text of an option begins.
_WIDEST = 80
_COLUMN = 30
#: The same where all names are short.
_SHORT_COLUMN = 16


class Help:
    """Plain text up to 80 characters wide; examples in a description are not wrapped."""

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        words = _text(usage).strip().removeprefix("Usage: ")
        _print(console, words, first="Usage: ", rest=" " * 9)
        print()

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        for paragraph in filter(None, _text(description).strip("\n").split("\n\n")):
            if paragraph.strip().startswith("hushrec "):
                print(_examples(paragraph))
            else:
                _print(console, paragraph)
            print()

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:
        if not panel.entries:
            return
        print(f"{_text(panel.title)}:")
        if about := _text(panel.description).strip():
            _print(console, about, first="  ", rest="  ")
        entries = sorted(panel.entries, key=lambda entry: not entry.required)
        labels = [", ".join(entry.display_labels_with_metavar) for entry in entries]
        column = min(_COLUMN, max(_SHORT_COLUMN, 4 + max(map(len, labels))))
        for entry, names in zip(entries, labels, strict=True):
            first = f"  {names}".ljust(column)
            if not first.endswith("  "):
                print(first.rstrip())
                first = " " * column
            _print(console, _about(entry), first=first, rest=" " * column)
        if (
            panel.format != "command"
        ):  # no blank line between groups of commands, so all of them fit one screen
            print()


def _examples(paragraph: str) -> str:
    """Return examples unchanged; the first line of a docstring may have lost its indent."""
    first, *others = paragraph.split("\n")
    if others and all(line.startswith("  ") for line in others):
        first = "  " + first.lstrip()
    return textwrap.indent(textwrap.dedent("\n".join([first, *others])), "  ")


def _about(entry: HelpEntry) -> str:
    parts = [
        _text(entry.description),
        f"[{' | '.join(entry.choices)}]" if entry.choices else "",
        f"[default: {entry.default}]" if entry.default is not None else "",
        "[required]" if entry.required else "",
    ]
    return " ".join(part for part in parts if part)


def _text(rendered: Any) -> str:
    """Return no text for the stand-in that cyclopts renders where Python has no docstrings."""
    rendered = getattr(rendered, "primary_renderable", rendered)
    plain = getattr(rendered, "plain", rendered)
    return plain if isinstance(plain, str) else ""


def _print(console: Any, text: str, first: str = "", rest: str = "") -> None:
    width = min(console.width, _WIDEST)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines) or first.rstrip())


def sentence(error: CycloptsError, app: App) -> str:
    command = " ".join(["hushrec", *(error.command_chain or ())])
    see = f"see {command} --help"
    argument, unused = error.argument, error.unused_tokens or []
    if isinstance(error, UnknownCommandError):
        if unused[0].startswith("-"):
            return f"{unused[0]} needs a command before it, as in hushrec train {unused[0]}; {see}"
        return f"There is no command {unused[0]!r}{_meant(unused[0], app)}; {see}"
    if isinstance(error, UnknownOptionError):
        return _unknown(error.token.keyword or error.token.value, app, command, see)
    if isinstance(error, UnusedCliTokensError):
        return f"{unused[0]!r} is one argument too many; {see}"
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given twice; give it once"
    if argument is None:
        return str(error)
    if isinstance(error, MissingArgumentError):
        count = argument.token_count()[0]
        if error.keyword or argument.tokens:
            values = argument.parameter.metavar or ("a value" if count == 1 else f"{count} values")
            return f"{argument.name} needs {values}; {see}"
        if strange := next((word for word in unused if word.startswith("-")), None):
            return _unknown(strange, app, command, see)
        about = app.assemble_argument_collection(parse_docstring=True)[argument.name].parameter.help
        return (
            f"{argument.name} is missing" + (f" ({_lower(about).rstrip('.')})" if about else "") + f"; {see}"
        )
    if isinstance(error, CoercionError | ValidationError) and argument.tokens:
        token = getattr(error, "token", None) or argument.tokens[0]
        if isinstance(error, ValidationError):
            return f"{argument.name} {token.value} is out of range: it {_lower(error.exception_message)}"
        return f"{argument.name} {token.value!r} is not understood: {_wanted(error, argument)}"
    return str(error)


def _unknown(option: str, app: App, command: str, see: str) -> str:
    setting = option.partition("=")[0].removeprefix("--").replace("-", "_").rpartition(".")[2]
    where = _meant(option, app)
    if not where and any(setting in names_of(cls) for cls in ESTIMATORS.values()):
        where = f": settings of a model are passed as --set {setting}=VALUE"
    return f"{command} has no option {option}{where}; {see}"


def _meant(word: str, app: App) -> str:
    arguments = app.assemble_argument_collection() if app.default_command else ()
    names = (name for argument in arguments for name in argument.names)
    known = [name for name in (*app, *names) if name != word]
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _wanted(error: CycloptsError, argument: Argument) -> str:
    if choices := argument.get_choices(force=True):
        return f"pass one of {', '.join(choices)}"
    if error.msg:
        return str(error.msg)
    return "pass a number" if getattr(error, "target_type", None) is float else str(error)
