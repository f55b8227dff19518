"""A model's fields as options: name, type, default and text are those of its dataclass and its docstring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from functools import wraps
from inspect import getdoc, signature
from typing import Annotated, Any, Required, TypedDict, Unpack, get_type_hints

from cyclopts import App, Group, Parameter
from docstring_parser import DocstringParam, DocstringStyle, parse

from hushrec.cli.chosen import best_of, value_of
from hushrec.cli.options import listed, whole, whole_or_none
from hushrec.data import Domain
from hushrec.evaluation.compare import REFERENCES, USUAL
from hushrec.privacy import Budget
from hushrec.training.estimator import Estimator
from hushrec.training.run import known

#: Integers are taken as written, 1.0 is none.
_CONVERTERS: dict[Any, Any] = {int: whole, int | None: whole_or_none}
#: The number of users has an option of its own, --users.
_ELSEWHERE = {"n_users"}
#: Numbers of users for which a model is planned, to see which fields that changes.
_TRIED = (1, 100, 10_000, 1_000_000)


def offer_fields(app: App, words: Sequence[str]) -> str:
    """Give a command that takes ``**settings`` the fields of the models that its command line names.

    They are those of the model in its option ``model``, or those of each model in its option ``models``, by
    the model's name. Returns what the command line says of models.
    """
    command = app.default_command
    assert command is not None
    parameters = signature(command).parameters
    many = "models" in parameters
    option = "models" if many else "model"
    given = value_of(f"--{option}", words)
    named = given or parameters[option].default or best_of(words)
    taken = {name for argument in app.assemble_argument_collection() for name in argument.names}
    if many:
        models = dict.fromkeys(
            [*(listed(given) if given else USUAL["--implicit" in words]), *REFERENCES[True]]
        )
        offered: dict[str, Any] = {name: _of_model(name, set(), at) for at, name in enumerate(models)}
    else:
        offered = get_type_hints(_of_model(named, taken), include_extras=True)

    @wraps(command)
    def offering(*arguments: Any, **options: Any) -> Any:
        return command(*arguments, **options)

    settings = TypedDict("settings", offered, total=False)  # type: ignore[misc]
    offering.__annotations__ = {**command.__annotations__, "settings": Unpack[settings]}
    app.default_command = offering
    return f" --{option} {given}" if given else ""


def _of_model(model: str, taken: set[str], place: int = 0) -> Any:
    """The fields of a model as a typed dictionary of options."""
    cls = known(model)
    texts, kinds, planned = _texts(cls), get_type_hints(cls), _planned(cls)
    summary = _plain((getdoc(cls) or "").partition("\n\n")[0])
    group = Group(f"Settings of {model}", help=summary, sort_key=6 + place)
    options = {}
    for field in fields(cls):
        if field.name in _ELSEWHERE or field.default_factory is not MISSING:  # a part of the model
            continue
        must = field.default is MISSING and field.name not in planned
        option = f"--{field.name.replace('_', '-')}"
        parameter = Parameter(
            name=f"--{model}.{option[2:]}" if option in taken else None,
            group=group,
            help=_plain(texts[field.name].description or ""),
            converter=_CONVERTERS.get(kinds[field.name]),
            show_default="planned" if field.name in planned else _default_text(field),
            negative=None,
        )
        kind: Any = Annotated[kinds[field.name], parameter]
        options[field.name] = Required[kind] if must else kind
    return TypedDict(model, options, total=False)  # type: ignore[operator]


def _texts(cls: type[Estimator]) -> dict[str, DocstringParam]:
    """What the docstrings say of each field, those of the class before those of its bases."""
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
    plans = [cls.planned(budget, domain, n_users) for n_users in _TRIED]
    return {
        field.name
        for field in fields(cls)
        if any(getattr(plan, field.name) != field.default for plan in plans)
    }


def _default_text(field: Field[Any]) -> str | bool:
    return False if field.default is MISSING else str(field.default).lower()


def _plain(text: str) -> str:
    """A docstring's text without its markup, None as it is written on a command line."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "")
    return " ".join(re.sub(r"\bNone\b", "none", text).split())
