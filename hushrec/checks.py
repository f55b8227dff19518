"""Checks of declared parameters. Each error is one sentence: the fault and the value to pass.

An interval is text, as ``"(0, 1]"``. :func:`check_fields` reads those of a dataclass from its fields' types::

    rank: Annotated[int, "[0, 900]"] = 8
    regularization: Positive | None = None
    dtype: Literal["float32", "float64"] = "float32"
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from hushrec.errors import InputError

#: No square of it overflows: an infinite square would pass for no clip.
CLIPS = "[1e-30, 1e30]"

Clip = Annotated[float, CLIPS]
Count = Annotated[int, "[1, inf)"]
NotNegative = Annotated[float, "[0, inf)"]
Part = Annotated[float, "(0, 1)"]
Positive = Annotated[float, "(0, inf)"]
Share = Annotated[float, "[0, 1]"]

#: Units of a guarantee, and relations between neighbours.
UNITS = ("user", "rating")
RELATIONS = ("add-remove", "replace")

_NUMBERS = (int, float, np.integer, np.floating)
_ANY = "(-inf, inf)"


class Single:
    """An object that must not be pickled or copied."""

    #: The remedy.
    _instead = ""

    def __reduce__(self) -> str:
        raise InputError(f"{type(self).__name__} cannot be pickled or copied: {self._instead}.")


class _Rule(NamedTuple):
    """The values that a field may have: Optional, a kind, an interval or words."""

    optional: bool
    kind: Any
    interval: str
    words: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Frozen fields, held to their types, and known by name as scikit-learn knows an estimator's.

    A field ``tuning`` holds settings that few people choose. Model files list them with the others.
    """

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, *layers: Mapping[str, Any], **last: Any) -> Self:
        """Return settings by the names of :func:`settings_of`; later ones override earlier ones."""
        flat: dict[str, Any] = {}
        for settings in (*layers, last):
            layer = dict(settings)
            if "tuning" in layer:
                tuning = layer.pop("tuning")
                check_kind(tuning, Settings, "tuning", f"pass {cls.__name__}.Tuning(...)")
                flat |= tuning.get_params()
            flat |= layer
        check_names(cls, flat)
        if tuned := {name: flat.pop(name) for name in behind(cls) if name in flat}:
            flat["tuning"] = replace(cls.tuning, **tuned)  # type: ignore[attr-defined]
        return cls(**flat)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields by name, those of models within as ``name__field``."""
        params = {field.name: getattr(self, field.name) for field in fields(self)}
        inside = {name: value for name, value in params.items() if deep and isinstance(value, Settings)}
        for name, model in inside.items():
            params |= {f"{name}__{key}": value for key, value in model.get_params().items()}
        return params

    def set_params(self, **settings: Any) -> Self:
        """Return a copy with these fields changed.

        Choosing them by private ratings costs budget, which :func:`hushrec.evaluation.tuning.tune` charges.
        """
        known = self.get_params()
        if unknown := sorted(set(settings) - set(known)):
            name = getattr(self, "name", type(self).__name__)
            names = [key for key in known if not key.endswith(("planned_for", "public"))]
            raise InputError(f"{name} has no setting {unknown[0]!r}; it has {', '.join(names)}.")
        direct = {name: value for name, value in settings.items() if "__" not in name}
        changed = replace(self, **direct)
        for name in sorted(set(settings) - set(direct)):
            part, _, key = name.partition("__")
            if part not in direct:  # a model that is given whole has its own settings
                inner = getattr(changed, part).set_params(**{key: settings[name]})
                changed = replace(changed, **{part: inner})
        return changed


def setting_fields(cls: Any) -> list[Field[Any]]:
    """Return the fields that are settings: those that comparisons count."""
    return [field for field in fields(cls) if field.compare]


def settings_of(model: Any) -> dict[str, Any]:
    """Return the settings of a model by name, as stored in a model file.

    Settings of an inner model are called ``name.field``, unless the outer model sets them.
    """
    values = {field.name: getattr(model, field.name) for field in setting_fields(model)}
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if name == "tuning" and isinstance(value, Settings):
            settings |= settings_of(value)
        elif isinstance(value, Settings):
            inner = {"model": getattr(value, "name", "")} | settings_of(value)
            settings |= {f"{name}.{key}": part for key, part in inner.items() if key not in values}
        else:
            settings[name] = value
    return settings


def behind(cls: Any) -> tuple[str, ...]:
    tuning = getattr(cls, "tuning", None)
    return tuple(field.name for field in setting_fields(tuning)) if isinstance(tuning, Settings) else ()


def names_of(cls: Any) -> list[str]:
    names, inner = [field.name for field in setting_fields(cls)], behind(cls)
    return [key for name in names for key in (inner if name == "tuning" and inner else (name,))]


def parts_of(cls: Any) -> list[str]:
    """Return the fields of a class that hold models."""
    return [field.name for field in fields(cls) if field.default_factory is not MISSING]


def check_names(cls: Any, used: Iterable[str]) -> None:
    names, parts = names_of(cls), parts_of(cls)
    for name in used:
        if name not in names and str(name).partition(".")[0] not in parts:
            called = getattr(cls, "name", "") or cls.__name__
            makers = {field.name: field.default_factory for field in fields(cls)}
            meant = [
                f"{part}.{name}"
                for part, make in makers.items()
                if callable(make) and name in names_of(type(make()))
            ]
            which = f"pass {' or '.join(meant)}" if meant else f"it has {', '.join(names) or 'none'}"
            raise InputError(f"{called} has no setting {name!r}; {which}.")


def check_options(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse the name of an option that a function does not have."""
    if unknown := [name for name in given if name not in known]:
        near = get_close_matches(unknown[0].lower(), known, 1)
        which = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}."
        raise InputError(f"{function} has no option {unknown[0]!r}; {which}")


def settings_by_name(settings: Any, example: str) -> dict[str, Any]:
    check_kind({} if settings is None else settings, Mapping, "settings", f"pass {example}")
    return dict(settings or {})


def check_fields(settings: Any) -> None:
    """Refuse values that the types of a dataclass's fields do not allow."""
    for name, rule in _rules(settings.__class__).items():
        value = getattr(settings, name)
        if value is None and rule.optional:
            continue
        if rule.words:
            check_choice(**{name: (value, rule.words)})
        elif issubclass(rule.kind, Settings):
            check_kind(value, rule.kind, name, f"pass {type(settings).__name__}.{rule.kind.__name__}(...)")
        elif rule.kind is not bool:
            check_numbers(**{name: (value, rule.kind, rule.interval)})
        else:
            check_flags(**{name: value})


@cache
def _rules(cls: Any) -> dict[str, _Rule]:
    rules = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        optional, kinds = NoneType in kinds, tuple(kind for kind in kinds if kind is not NoneType)
        kind, interval = kinds[0], _ANY
        if get_origin(kind) is Annotated:
            kind, interval, *_ = get_args(kind)
        words = get_args(kind) if get_origin(kind) is Literal else ()
        layer = isinstance(kind, type) and issubclass(kind, Settings)
        if len(kinds) == 1 and (words or layer or kind in (int, float, bool)):
            rules[name] = _Rule(optional, kind, interval, words)
    return rules


def check_numbers(**rules: tuple[Any, type, str]) -> None:
    """Refuse a value of another kind or outside an interval: ``name=(value, int or float, interval)``."""
    for name, (value, kind, interval) in rules.items():
        low, high = (float(end) for end in interval[1:-1].split(","))
        good = is_number(value, (int, np.integer) if kind is int else _NUMBERS)
        if good and interval != _ANY:
            good = value >= low if interval[0] == "[" else value > low
            good = good and (value <= high if interval[-1] == "]" else value < high)
        if not good:
            noun = "an integer" if kind is int else "a number"
            above, below = f">= {low:g}" if interval[0] == "[" else f"> {low:g}", f"< {high:g}"
            if interval == _ANY:
                span = ", for example 3.5"
            elif high == math.inf:
                span = f" {above}"
            elif interval[0] == "[" and interval[-1] == "]":
                span = f" from {low:g} to {high:g}"
            else:
                span = f" {above} and {f'<= {high:g}' if interval[-1] == ']' else below}"
            raise InputError(f"{name}={shown(value)} is out of range; pass {noun}{span}.", parameter=name)


def check_domain(estimator: Any, domain: Any) -> None:
    """Refuse a domain that an estimator learns nothing from."""
    threshold = getattr(estimator, "like_threshold", None)
    if threshold is not None and not domain.low <= threshold <= domain.high:
        how = f"pass a rating from {domain.low:g} to {domain.high:g}"
        if domain.likes:
            how = "leave it out, since every row is a like"
        raise InputError(f"like_threshold={threshold:g} is out of range; {how}.", parameter="like_threshold")
    if domain.likes and estimator.scores == "ratings":
        raise InputError(
            f"{estimator.name} predicts ratings, and all likes are equal; pass popular or private-eigenrec.",
            parameter="model",
        )


def check_flags(**flags: Any) -> None:
    """Refuse a value such as "no", which would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise InputError(
                f"{name}={shown(value)} is neither True nor False; pass one of them.", parameter=name
            )


def check_count(name: str, value: Any) -> int:
    check_numbers(**{name: (value, int, "[1, inf)")})
    return int(value)


def check_choice(**rules: tuple[Any, tuple[Any, ...]]) -> None:
    for name, (value, choices) in rules.items():
        if not isinstance(value, str) or value not in choices:
            words = ", ".join(map(repr, choices))
            raise InputError(f"{name}={shown(value)} is not known; pass one of {words}.", parameter=name)


def check_kind(value: Any, kinds: type | tuple[type, ...], name: str, how: str) -> None:
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise InputError(f"{name} must be {wanted}, not {type(value).__name__}; {how}.", parameter=name)


def check_listed(value: Any, name: str, example: str) -> None:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(
            f"{name}={shown(value)} is not a list; pass one, for example {example}.", parameter=name
        )


def is_number(value: Any, kinds: tuple[type, ...] = _NUMBERS) -> bool:
    """A finite number of one of these kinds that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    number: Any = value
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def number(name: str, value: Any, advice: str) -> float:
    """Return `value` as a float that is not NaN; `advice` is "pass ..."."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} must be a number, not {shown(value)}; {advice}.", parameter=name)
    try:
        result = float(value)
    except OverflowError:
        raise InputError(f"{name} is too large for a float; {advice}.", parameter=name) from None
    if math.isnan(result):
        raise InputError(f"{name} must be a number, not NaN; {advice}.", parameter=name)
    return result


def is_line(value: Any) -> bool:
    """A printable line of text that is not blank."""
    return isinstance(value, str) and bool(value.strip()) and len(value) <= 200 and value.isprintable()


def line_of_text(parameter: str, value: Any) -> str:
    """Return `value` if it is a line: a label, the name of a data set."""
    if not is_line(value):
        raise InputError(
            f"{parameter} must be a line of 1 to 200 printable characters and not blank; it is"
            f" {shown(value)}.",
            parameter=parameter,
        )
    return value


def plural(number: int, noun: str) -> str:
    """``1 run``, ``2,000 runs``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shown(value: Any) -> str:
    """Name any refused value in a message, briefly."""
    if value is None:
        return "None"
    if isinstance(value, (bool, float, np.bool_, np.floating)):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 64 else "an integer too large for a float"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return f"a {type(value).__name__}"
