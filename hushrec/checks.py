"""Hyper-parameter checks: one sentence that says what is wrong and what to pass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hushrec.errors import InputError

if TYPE_CHECKING:
    from hushrec.data import Ratings, Store
    from hushrec.privacy import Accountant

#: In there no square of a bound, in whatever units, overflows: an infinite one would pass for no clip.
CLIPS = (1e-30, 1e30)

_NUMBERS = (int, float, np.integer, np.floating)


def check_numbers(**rules: tuple[Any, type, float, float | None]) -> None:
    """Refuse hyper-parameters of the wrong kind or out of range.

    Each rule is ``name=(value, int or float, low, high)``: integers lie in [low, high], floats in
    (low, high], but those named ``*_weight``, ``*_variance``, ``*_damping`` or ``*share`` may equal
    ``low``; ``high=None`` means no upper end.
    """
    for name, (value, kind, low, high) in rules.items():
        good = is_number(value, (int, np.integer) if kind is int else _NUMBERS)
        if good:
            closed = kind is int or name.endswith(("_weight", "_variance", "_damping", "share"))
            good = (value >= low if closed else value > low) and (high is None or value <= high)
        if not good:
            noun = "an integer" if kind is int else "a finite number"
            span = f"{'>=' if kind is int else '>'} {low:g}" + ("" if high is None else f" and <= {high:g}")
            raise InputError(f"{name}={shown(value)} is out of range; pass {noun} {span}.", parameter=name)


def check_choice(**rules: tuple[Any, tuple[str, ...]]) -> None:
    """Refuse a word that is not among the choices."""
    for name, (value, choices) in rules.items():
        if not isinstance(value, str) or value not in choices:
            words = ", ".join(map(repr, choices))
            raise InputError(f"{name}={shown(value)} is not known; pass one of {words}.", parameter=name)


def check_kind(value: Any, kinds: type | tuple[type, ...], name: str, how: str) -> None:
    """Refuse what is of another kind than a parameter takes, with how to make one."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise InputError(f"{name} must be {wanted}, not {type(value).__name__}; {how}.", parameter=name)


def check_listed(value: Any, name: str, example: str) -> None:
    """Refuse one text, or one of anything else, where several are listed."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(
            f"{name}={shown(value)} is no list; pass one, for example {example}.", parameter=name
        )


def check_truths(**settings: bool) -> None:
    """Refuse what is neither True nor False."""
    for name, value in settings.items():
        if not isinstance(value, bool | np.bool_):
            raise InputError(
                f"{name}={shown(value)} is neither True nor False; pass one of them.", parameter=name
            )


def check_clips(**clips: float | None) -> None:
    """Refuse a bound that is neither a number in `CLIPS` nor None, which is no clip."""
    for name, bound in clips.items():
        if bound is not None:
            check_within(**{name: (bound, *CLIPS)})


def check_within(**rules: tuple[float, float, float]) -> None:
    """Refuse what is no number in a closed range: ``name=(value, low, high)``."""
    for name, (value, low, high) in rules.items():
        if not is_number(value) or not low <= value <= high:
            raise InputError(
                f"{name}={shown(value)} is out of range; pass a number from {low:g} to {high:g}.",
                parameter=name,
            )


def check_threshold(threshold: float | None, name: str = "threshold") -> None:
    """Refuse what is neither a number nor None."""
    if threshold is not None and not is_number(threshold):
        raise InputError(
            f"{name}={shown(threshold)} is not a number; declare the rating that tells what a user likes, for"
            f" example {name}=3.5.",
            parameter=name,
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


def shown(value: Any) -> str:
    """What was passed, cut short."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = "a huge integer"
    return text if len(text) <= 60 else text[:60] + "..."


def check_users(ratings: Ratings | Store, accountant: Accountant) -> None:
    """Refuse ratings in which a user is not one row of her own, chosen without regard to the others."""
    if not ratings.users_differ:
        raise InputError("A user has several rows in these ratings; pass ratings with one row for each user.")
    if ratings.hand_picked and accountant.budget.private and not accountant.data_is_public:
        raise InputError(
            "These users or ratings were chosen by a rule of your own (where, rows, for_users), in which"
            " one user may decide what others have; train on all, on parts by split_ratings, leave_k_out or"
            " strong_generalization, say keyed=True there if each user was chosen by herself alone, or"
            " declare public data with Accountant(..., data_is_public=True)."
        )
