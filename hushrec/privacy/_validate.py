"""Checks of declared parameters: one clear sentence each, before anything is spent or read."""

import math
from typing import Any

import numpy as np

from hushrec.errors import InputError

UNITS = ("user", "rating")
RELATIONS = ("add-remove", "replace")


class Single:
    """What must not exist twice: pickling and copying are refused in a sentence."""

    #: What to do instead.
    _instead = ""

    def __reduce__(self) -> str:
        raise InputError(f"{type(self).__name__} cannot be pickled or copied: {self._instead}.")


def shown(value: Any) -> str:
    """Name a refused parameter in a message, briefly and without failing on any object."""
    if value is None:
        return "None"
    if isinstance(value, (bool, float, np.bool_, np.floating)):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < 64 else "an integer too large for a float"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return f"a {type(value).__name__}"


def number(name: str, value: Any, advice: str) -> float:
    """Return `value` as a float that is not NaN; `advice` says what to pass ("pass ...")."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} must be a number, not {shown(value)}; {advice}.", parameter=name)
    try:
        result = float(value)
    except OverflowError:
        raise InputError(f"{name} is too large for a float; {advice}.", parameter=name) from None
    if math.isnan(result):
        raise InputError(f"{name} must be a number, not NaN; {advice}.", parameter=name)
    return result


def positive_number(name: str, value: Any, advice: str) -> float:
    """Return `value` as a finite float greater than 0."""
    result = number(name, value, advice)
    if not 0 < result < math.inf:
        raise InputError(
            f"{name} must be greater than 0 and finite, not {shown(value)}; {advice}.", parameter=name
        )
    return result


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """Return `value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        words = " or ".join(f'"{option}"' for option in options)
        raise InputError(f"{name} must be {words}, not {shown(value)}.", parameter=name)
    return value


def name(parameter: str, value: Any) -> str:
    """Return `value` if it is a printable line of text: a label, the name of a data set."""
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        raise InputError(
            f"{parameter} must be a line of 1 to 200 printable characters, not {shown(value)}.",
            parameter=parameter,
        )
    return value
