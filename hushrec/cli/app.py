"""One command line: read, carried out, and every error turned into one line on stderr and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec
from inspect import getdoc, iscode, signature
from typing import cast

from cyclopts import App, CycloptsError, Group, Parameter

from hushrec import __version__
from hushrec.cli.chosen import begin_compiling
from hushrec.cli.help import Help, sentence
from hushrec.errors import HushrecError, InputError

#: Words of a command -> its file and function have the same name, with underscores.
_COMMANDS = (
    "check", "prepare", "split", "train", "retrain", "evaluate",
    "recommend", "predict", "similar", "report", "plan", "compare", "tune",
    "export", "serve", "serve-completion",
    "ledger show", "ledger open", "ledger close",
    "season open", "season show", "season close",
    "node submit", "node fetch",
    "audit masked", "audit distinguish", "audit canaries", "audit membership",
)  # fmt: skip

#: Where the commands of papers are; all others are in this folder.
_OF_PAPERS = dict.fromkeys(
    ("serve-completion", "node submit", "node fetch", "audit masked"), "hushrec.papers.masked.cli"
)

#: How the commands whose positional arguments may be left out are called: cyclopts writes [ARGS].
_USAGE = {
    "serve": "hushrec serve [OPTIONS] MODELS...",
    "tune": "hushrec tune --epsilon FLOAT [OPTIONS] [RATINGS]",
}

_OPTIONS = Group("Options", sort_key=1)
_HELP = ("--help", "-h")


def hushrec() -> None:
    """Train, judge and use recommenders under user-level differential privacy.

    A model file holds only values that were released with noise, so it may be published. Every user is served
    by folding her own ratings in.

      hushrec plan  --epsilon 5 --delta 1e-6 --rating-range 1 5 --catalogue items.txt --users 6000
      hushrec train ratings.parquet --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush
      hushrec report model.hush
      hushrec recommend model.hush history.parquet --user 42
      hushrec predict model.hush history.parquet pairs.csv --out predictions.private.csv
      hushrec similar model.hush matrix

    Exit codes: 0 done, 1 refused by a budget or failed, 2 bad input, 130 interrupted.
    """


def ledger() -> None:
    """Look at what was charged to a data set, or give it a budget.

    hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
    hushrec ledger show --dataset shop
    hushrec ledger close --dataset shop
    """


def season() -> None:
    """Spend one budget on a training a week: open a season, then hushrec train --season and hushrec retrain.

    hushrec season open --dataset shop --epsilon 5 --delta 1e-6 --weeks 52
    hushrec season show --dataset shop
    hushrec season close --dataset shop
    """


def node() -> None:
    """Take part in a masked completion: upload masked ratings, fetch the completed column.

      hushrec node submit mine.csv --server http://127.0.0.1:8765 --catalogue items.txt --rating-range 1 5 \\
                          --name alice --key alice.key
      hushrec node fetch  --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key --out alice.csv
    """


def audit() -> None:
    """Attack or test what was sent or released.

    hushrec audit distinguish --model item-bias --epsilon 5 --delta 1e-6
    hushrec audit canaries --epsilon 1 --delta 1e-5
    hushrec audit membership --epsilons 1,5,20 --delta 1e-6
    hushrec audit masked upload.json --rating-range 1 5
    """


def main() -> None:
    """Entry point of the ``hushrec`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an id that the terminal cannot show is no error
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Carry out one command line; its exit code. A traceback never reaches the user."""
    asked = [word for word in words if word not in _HELP]
    spoken = " ".join(asked) + " "
    app = _application(listed=not any(spoken.startswith(f"{each} ") for each in _COMMANDS))
    command, model = app, ""
    try:
        if asked[1:] and len(asked) == len(words):  # no help is asked for
            begin_compiling(asked[0], asked[1:])
        _, apps, rest = app.parse_commands(asked)
        command = apps[-1]
        model = offer_fields(command, rest)
        app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("HUSHREC_DEBUG") and not isinstance(error, _EXPECTED):
            raise
        message, code = _said(error, command, model)
        message = " ".join(message.split())
        print(f"Error: {message}" + ("" if message.endswith((".", "?", "?)")) else "."), file=sys.stderr)
        return code


def offer_fields(command: App, words: Sequence[str]) -> str:
    """Give a command that takes a model's settings those of the models that its command line names."""
    if command.default_command is None or "settings" not in signature(command.default_command).parameters:
        return ""
    from hushrec.cli import fields  # loads the models, which no other command waits for

    return fields.offer_fields(command, words)


_EXPECTED = (HushrecError, CycloptsError, KeyboardInterrupt, OSError, MemoryError)


def _said(error: BaseException, command: App, model: str) -> tuple[str, int]:
    """One sentence for an error, and the exit code."""
    if isinstance(error, CycloptsError):
        return sentence(error, command, model), 2
    if isinstance(error, InputError):
        return _of_input(error, command), 2
    if isinstance(error, HushrecError):
        return str(error), 1
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted; what was charged before stays charged.", 130
    if isinstance(error, OSError):
        what = error.filename or "standard output"
        return f"The system refused: {error.strerror or type(error).__name__} ({what}).", 1
    if isinstance(error, MemoryError):
        return "Out of memory; what was charged before stays charged.", 1
    # the words of an unexpected error may hold private rows
    return (
        f"Unexpected {type(error).__name__}; this is a fault of hushrec, set HUSHREC_DEBUG=1 to see where it"
        " happened.",
        1,
    )


def _of_input(error: InputError, command: App) -> str:
    """The message, with the option's name for the parameter's."""
    arguments = command.assemble_argument_collection(parse_docstring=False)
    wanted = (error.parameter, f"{error.parameter}s")  # one of a list, as in --models
    options = [each.names for each in arguments if each.field_info.name in wanted and each.parse]
    if error.parameter is None or not options:
        return str(error)
    option, opposite = options[0][0], options[0][-1]
    message = error.message
    if message.startswith(error.parameter):
        message = option + message.removeprefix(error.parameter)
    elif error.value is None:
        message = f"{option}: {message}"
    if error.value is None:
        return message
    if isinstance(error.value, dict):
        return f"{message}; pass {option} " + ",".join(f"{key}={value}" for key, value in error.value.items())
    if isinstance(error.value, bool):
        return f"{message}; pass {option if error.value else opposite}"
    return f"{message}; pass {option} {error.value}"


def _default(value: object) -> str | None:
    """A default worth showing: not that a flag is off."""
    return None if value is None or value is False or value == () else str(value)


def _application(listed: bool = False) -> App:
    """All commands, each imported when it is called; with their summaries where they are to be listed."""
    app = App(
        name="hushrec",
        help=getdoc(hushrec),
        version=f"hushrec {__version__}",
        help_flags=_HELP,
        help_format="plaintext",
        help_formatter=Help(),
        default_parameter=Parameter(negative=(), show_default=_default, json_dict=False, json_list=False),
        group_parameters=_OPTIONS,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    groups = {
        each.__name__: App(name=each.__name__, help=getdoc(each), group_parameters=_OPTIONS)
        for each in (ledger, season, node, audit)
    }
    for words in _COMMANDS:
        function = words.replace(" ", "_").replace("-", "_")
        module = f"{_OF_PAPERS.get(words, 'hushrec.cli')}.{function}"
        group, _, name = words.rpartition(" ")
        about = _summary(module, function) if listed else None
        usage = _USAGE.get(words)
        (groups[group] if group else app).command(f"{module}:{function}", name=name, help=about, usage=usage)
    for each in groups.values():
        app.command(each)
    return app


def _summary(module: str, function: str) -> str:
    """A command's docstring, read from its compiled file: what the command needs is not imported."""
    spec = find_spec(module)
    code = cast(InspectLoader, spec and spec.loader).get_code(module)
    found = code.co_consts if code else ()
    return next(str(each.co_consts[0]) for each in found if iscode(each) and each.co_name == function)
