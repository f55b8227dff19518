"""A model's fields as options: name, type, default and text are those of its dataclass and its docstring."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from inspect import getdoc, signature
from typing import Annotated, Any, NamedTuple, Required, TypedDict, Unpack, get_args, get_type_hints

from cyclopts import App, Group, Parameter
from docstring_parser import DocstringParam, DocstringStyle, parse

from hushrec.checks import Settings, parts_of, settings_of
from hushrec.cli.argv_prescan import best_of, value_of
from hushrec.cli.options import listed, whole, whole_or_none
from hushrec.data import Domain
from hushrec.evaluation.compare import REFERENCES, USUAL
from hushrec.privacy import Budget
from hushrec.registry import best
from hushrec.training.estimator import Estimator
from hushrec.training.named import known

#: Integers are taken as written, 1.0 is none.
_CONVERTERS: dict[Any, Any] = {int: whole, int | None: whole_or_none}
#: The number of users has an option of its own, --users; a tuning is offered field by field.
_ELSEWHERE = {"n_users", "tuning"}
#: Numbers of users for which a model is planned, to see which fields that changes.
_TRIED = (1, 100, 10_000, 1_000_000)


def offer_fields(app: App, words: Sequence[str], whole: bool = False) -> str:
    """Give a command that takes ``**settings`` the fields of the models that its command line names.

    They are those of the model in its option ``model``, or those of each model in its option ``models``, by
    the model's name. Those of a tuning go by ``--tuning.NAME``, and until 0.4 by what 0.2 called them; the
    help lists them where the ``whole`` is asked for. Returns what the command line says of models.
    """
    command = app.default_command
    assert command is not None
    parameters = signature(command).parameters
    many = "models" in parameters
    option = "models" if many else "model"
    given = value_of(f"--{option}", words)
    taken = {name for argument in app.assemble_argument_collection() for name in argument.names}
    offered: dict[str, Any] = {}
    shown = _Shown(whole, best_of([*words, "--for", "ratings"]) == best("ratings", True))
    if many:
        models = [*(listed(given) if given else USUAL["--implicit" in words]), *REFERENCES[True]]
        for name in dict.fromkeys(models):
            options = _of_model(name, shown, "", place=3 * len(offered))
            _say_former(options, words, f"--{name}.")
            offered[name] = TypedDict(name, options, total=False)  # type: ignore[operator]
    else:
        named = given or parameters[option].default or best_of(words)
        offered = _of_model(named, shown, taken=taken)
        _say_former(offered, words)

    @wraps(command)
    def offering(*arguments: Any, **options: Any) -> Any:
        return command(*arguments, **options)

    settings = TypedDict("settings", offered, total=False)  # type: ignore[misc]
    offering.__annotations__ = {**command.__annotations__, "settings": Unpack[settings]}
    app.default_command = offering
    return f" --{option} {given}" if given else ""


class _Shown(NamedTuple):
    """The help lists the whole of a model's settings; models within others are those with privacy."""

    whole: bool
    private: bool


def _of_model(
    model: str, shown: _Shown, root: str = "--", taken: Collection[str] = (), place: int = 0
) -> dict[str, Any]:
    """Return the settings of a model, and of the models within it, as types of options.

    An option's name begins with ``root``, or is that of the model where it is ``taken``.
    """
    cls = known(model)
    tuning, planned = getattr(cls, "tuning", None), _planned(cls)
    inner = root.removeprefix("--")
    title = f"{model} ({inner}NAME)" if inner else model
    summary = _plain((getdoc(cls) or "").partition("\n\n")[0])
    if tuning is not None and not shown.whole:
        summary += f" What studies chose goes by {inner}tuning.NAME: --help-tuning lists it."
    options: dict[str, Any] = {}
    layers = [("", cls, Group(f"Settings of {title}", help=summary, sort_key=6 + 2 * place))]
    if tuning is not None:
        chosen = _plain((getdoc(tuning) or "").partition("\n\n")[0])
        layers += [
            ("tuning.", type(tuning), Group(f"Tuning of {title}", help=chosen, sort_key=7 + 2 * place))
        ]
    for layer, owner, group in layers:
        texts, kinds = _texts(owner), get_type_hints(owner)
        for field in fields(owner):
            if field.name in _ELSEWHERE or field.default_factory is not MISSING:
                continue
            default = getattr(tuning, field.name) if layer else field.default
            option = field.name.replace("_", "-")
            own = f"--{model}.{option}" if f"{root}{option}" in taken else f"{root}{option}"
            former = [own] if layer and not inner and not shown.whole else []
            must = default is MISSING and field.name not in planned
            parameter = Parameter(
                name=[f"{root}{layer}{option}", *former] if layer else own,
                group=group,
                help=_plain(texts[field.name].description or ""),
                converter=_CONVERTERS.get(kinds[field.name]),
                show_default="planned" if field.name in planned else _default_text(default),
                show=shown.whole or not layer,
                negative=None,
            )
            kind: Any = Annotated[kinds[field.name], parameter]
            options[field.name] = Required[kind] if must else kind
    for number, part in enumerate(parts_of(cls), 1):
        within = _of_model(best(part, shown.private), shown, f"{root}{part}.", place=place + number)
        options |= {f"{part}.{name}": each for name, each in within.items() if name not in options}
    return options


def _say_former(options: dict[str, Any], words: Sequence[str], root: str = "") -> None:
    """Tell what a setting is called now, where the command line has it as 0.2 called it."""
    former: dict[str, str] = {}
    for each in options.values():
        now, *then = getattr(get_args(each)[-1], "name", None) or ("",)
        former |= {root + name: root + now for name in then}
    for option in (word.partition("=")[0] for word in words):
        if now := former.get(option.replace("--no-", "--")):
            print(f"{option} is {now} now; the old spelling goes with 0.4.", file=sys.stderr)


def _texts(cls: type[Settings]) -> dict[str, DocstringParam]:
    """Return the docstrings' text of each field, those of the class before those of its bases."""
    found: dict[str, DocstringParam] = {}
    for each in cls.__mro__:
        for entry in parse(each.__doc__ or "", DocstringStyle.NUMPYDOC).params:
            if not (entry.description or "As in").startswith("As in"):
                for name in entry.arg_name.split(","):
                    found.setdefault(name.strip(), entry)
    return found


def _planned(cls: type[Estimator]) -> set[str]:
    """Fields that a model chooses by the number of users and other public figures."""
    if not cls.uses_user_count:
        return set()
    budget, domain = Budget(1.0, 1e-6), Domain(tuple(range(1000)), rating_range=(1, 5))
    plans = [settings_of(cls.planned(budget, domain, n_users)) for n_users in _TRIED]
    usual = {
        field.name: field.default for layer in (cls, getattr(cls, "tuning", cls)) for field in fields(layer)
    }
    return {name for name, value in usual.items() if any(plan.get(name, value) != value for plan in plans)}


def _default_text(default: Any) -> str | bool:
    return False if default is MISSING else str(default).lower()


def _plain(text: str) -> str:
    """A docstring's text without its markup, None as it is written on a command line."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "")
    return " ".join(re.sub(r"\bNone\b", "none", text).split())
