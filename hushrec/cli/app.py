"""One command line: an error becomes one line on stderr and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.util import LazyLoader, find_spec, module_from_spec
from inspect import getdoc

import numpy
from cyclopts import App, CycloptsError, Group, Parameter

from hushrec import __version__
from hushrec.cli import output
from hushrec.cli.help import MAIN, Help, sentence
from hushrec.errors import HushrecError, InputError

#: Groups of commands, with a line about each.
_GROUPS = {
    "Before training": {
        "check": "Show which rows of your ratings will be used.",
        "plan": "Show the privacy cost, and results on similar public tables.",
        "settings": "List the models, or the settings of one.",
    },
    "Train and evaluate": {
        "train": "Train a model on private ratings or likes.",
        "evaluate": "Measure a model on held-out ratings.",
        "split": "Split ratings for training and test.",
        "compare": "Compare several models at several epsilons.",
        "tune": "Choose settings.",
        "prepare": "Write ratings of any number to a store on disk, to train from.",
        "season": "Open, show or close a budget for many weekly trainings.",
        "season open": "Open a budget for all weekly trainings.",
        "season show": "Show what the seasons of a data set spent and what they may spend.",
        "season close": "Close a season.",
        "retrain": "Train the next week's model from the last one.",
    },
    "Use a model": {
        "recommend": "Recommend items to one user or to all.",
        "predict": "Predict ratings of pairs of user and item.",
        "similar": "List items that the same users like.",
        "report": "Show what a model is and what it promises.",
        "extend": "Add new items to a model from their features, without training.",
        "export": "Write a smaller file, or a site for any host.",
        "serve": "Serve models, lists and a page over HTTP.",
    },
    "Train where no server sees a rating": {
        "servers": "Train over two servers of which neither sees a rating.",
        "servers init": "Write the agreement of two servers and all nodes.",
        "servers run": "Run one of the two servers.",
        "servers join": "Take part with ratings that stay on this machine.",
    },
    "Budgets, audits and dossiers": {
        "ledger": "Show the charges to data sets, or give them budgets.",
        "ledger show": "Show the charges to data sets, also as a page.",
        "ledger open": "Give a data set a budget, or lower its budget.",
        "ledger close": "Allow no further charge to a data set.",
        "audit": "Attack released values, on generated data.",
        "audit distinguish": "Try to distinguish two neighbouring data sets.",
        "audit canaries": "Bound epsilon from below in one run, with planted users.",
        "certify": "Write a dossier on a model, to be signed.",
        "sign": "Write the signed dossier.",
        "verify": "Check a dossier against its model.",
    },
    "Experiments of papers": {
        "papers": "Masked completion: obfuscation, not privacy.",
        "papers serve-completion": "Complete the matrix of many nodes from masked columns.",
        "papers node": "Take part in a masked completion.",
        "papers node submit": "Upload masked ratings.",
        "papers node fetch": "Fetch the completed column.",
        "papers audit-masked": "Reconstruct ratings from a masked upload.",
    },
}
_ABOUT = {words: about for commands in _GROUPS.values() for words, about in commands.items()}
_COMMANDS = tuple(words for words in _ABOUT if not any(other.startswith(f"{words} ") for other in _ABOUT))
_EXAMPLES = {
    "season": """
  hushrec season open --dataset shop --epsilon 5 --delta 1e-6
  hushrec season show --dataset shop
  hushrec season close --dataset shop""",
    "servers": """
  hushrec servers init agreement.json --model item-bias --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                       --catalogue items.txt
  hushrec servers run agreement.json --role first --nodes names.txt --folder first --out model.hush \\
                      --peer https://second.example:8765 --peer-token peer.txt --certificate first.pem
  hushrec servers join mine.csv agreement.json --name alice --tokens tokens.txt --folder answers \\
                       --first https://first.example:8765 --second https://second.example:8765""",
    "ledger": """
  hushrec ledger open --dataset shop --epsilon 5 --delta 1e-6
  hushrec ledger show --dataset shop
  hushrec ledger close --dataset shop""",
    "audit": """
  hushrec audit distinguish --model item-bias --epsilon 5 --delta 1e-6
  hushrec audit canaries --epsilon 1 --delta 1e-5""",
    "papers": """
  hushrec papers serve-completion --catalogue items.txt --nodes 50 --enough 40 --rank 4
  hushrec papers audit-masked upload.json --rating-range 1 5""",
    "papers node": """
  hushrec papers node submit mine.csv --server http://127.0.0.1:8765 --catalogue items.txt \\
                             --rating-range 1 5 --name alice --key alice.key
  hushrec papers node fetch  --server http://127.0.0.1:8765 --catalogue items.txt --key alice.key \\
                             --out alice.csv""",
}
#: Usage lines for which cyclopts would write [ARGS].
_USAGE = {
    "similar": "hushrec similar [OPTIONS] MODEL ITEM...",
    "serve": "hushrec serve [OPTIONS] MODELS...",
    "train": "hushrec train --out FILE --epsilon FLOAT [OPTIONS] RATINGS...",
    "check": "hushrec check [OPTIONS] RATINGS...",
    "tune": "hushrec tune --epsilon FLOAT [OPTIONS] [RATINGS]",
}

_HELP = ("--help", "-h")


def hushrec() -> None:
    """Train, evaluate and use recommenders under user-level differential privacy.

      hushrec train ratings.parquet --epsilon 5 --delta 1e-6 --rating-range 1 5 \\
                    --catalogue items.txt --out model.hush
      hushrec recommend model.hush history.parquet --user 42

    Exit codes: 0 done, 1 refused or failed, 2 bad input, 130 interrupted.
    """


def main() -> None:
    # looking for garbage among imported objects took 0.2 to 0.5 s
    gc.set_threshold(200_000)
    # pyarrow imports pandas when it makes an array: 0.2 to 0.5 s, and no command reads a data frame
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    for name in ("f2py", "testing"):  # scipy names all modules of NumPy: 0.05 s
        _load_later(f"numpy.{name}")
    output.open_streams()
    code = run(sys.argv[1:])
    output.close_streams()
    sys.exit(code)


def _load_later(name: str) -> None:
    """Load a module when an attribute of it is first read."""
    spec = find_spec(name)
    if spec is not None and spec.loader is not None and name not in sys.modules:
        spec.loader = LazyLoader(spec.loader)
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        setattr(numpy, name.removeprefix("numpy."), module)


def run(words: Sequence[str]) -> int:
    """Return the exit code; a traceback never reaches the user."""
    asked = [word for word in words if word not in _HELP]
    spoken = " ".join(asked) + " "
    app = _application(listed=not any(spoken.startswith(f"{name} ") for name in _COMMANDS))
    command = app
    try:
        check_words(words)
        if asked[1:] and len(asked) == len(words):  # no help is asked for
            note_compilation()
        command = app.parse_commands(asked)[1][-1]
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: output.note(f"Warning: {message}")
            app(words, exit_on_error=False, print_error=False)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:  # the reader has seen enough
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("HUSHREC_DEBUG") and not isinstance(error, _EXPECTED):
            raise
        message, code = _said(error, command)
        message = " ".join(message.split())
        output.note(f"Error: {message}" + ("" if message.endswith((".", "?", "?)")) else "."))
        return code


def check_words(words: Sequence[str]) -> None:
    """Refuse empty and blank words, as of a shell's variable that is not set, and words that are not UTF-8.

    A blank may be the delimiter of a table. Python decodes as ASCII in the C locale with PYTHONUTF8=0.
    """
    for before, word in zip(("hushrec", *words), words, strict=False):
        option, equals, value = word.partition("=")
        place, text = (option, value) if option.startswith("--") and equals else (before, word)
        if not text.strip() and not (text and place == "--format"):
            place = place if place.startswith("-") else f"The argument after {place!r}"
            how = "blank" if text else "empty"
            raise InputError(f"{place} is {how}; pass a value, or leave it out.")
        if word.encode(errors="ignore").decode() != word:
            raise InputError(
                f"{word!r} is not UTF-8 text; pass UTF-8, and set PYTHONUTF8=1 where Python reads ASCII."
            )


def note_compilation() -> None:
    import logging

    log = logging.getLogger("hushrec.machine_code")
    log.setLevel(logging.INFO)
    log.handlers[:] = [logging.StreamHandler()]
    log.propagate = False  # hushrec serve logs too, and would print it twice


_EXPECTED = (HushrecError, CycloptsError, KeyboardInterrupt, OSError, MemoryError)


def _said(error: BaseException, command: App) -> tuple[str, int]:
    if isinstance(error, CycloptsError):
        return sentence(error, command), 2
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
    if error.parameter is None:
        return str(error)
    arguments = command.assemble_argument_collection(parse_docstring=False)
    wanted = (error.parameter, f"{error.parameter}s")  # one of a list, as in --models
    options = [
        argument.names for argument in arguments if argument.field_info.name in wanted and argument.parse
    ]
    if not options:
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
    """Hide flags that are off."""
    return None if value is None or value is False or value == () else str(value)


def place(words: str) -> tuple[str, str]:
    function = words.removeprefix("papers ").replace(" ", "_").replace("-", "_")
    room = "hushrec.papers.masked.cli" if words.startswith("papers ") else "hushrec.cli"
    return f"{room}.{function}", function


def _application(listed: bool = False) -> App:
    """Return all commands, each imported when it is called."""
    app = App(
        name="hushrec",
        help=getdoc(hushrec),
        version=f"hushrec {__version__}",
        help_flags=_HELP,
        help_format="plaintext",
        help_formatter=Help(),
        default_parameter=Parameter(negative=(), show_default=_default, json_dict=False, json_list=False),
        group_parameters=MAIN,
        group_commands=Group("Options", sort_key=len(_GROUPS) + 1),  # of hushrec itself: help and version
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    begun = {"": app}
    for place_of, (title, commands) in enumerate(_GROUPS.items(), 1):
        titled = Group(title, sort_key=place_of)
        for words, about in commands.items():
            before, _, name = words.rpartition(" ")
            group = None if before else titled
            if words in _COMMANDS:
                module, function = place(words)
                begun[before].command(
                    f"{module}:{function}",
                    name=name,
                    help=about if listed else None,
                    usage=_USAGE.get(words),
                    group=group,
                )
            else:
                text = f"{about}\n\n{_EXAMPLES[words].strip(chr(10))}"
                begun[words] = App(
                    name=name, help=text, group=group, group_parameters=MAIN, group_commands=Group("Commands")
                )
                begun[before].command(begun[words])
    return app
