"""Hyper-parameter checks: one sentence that says what is wrong and what to pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushrec.errors import InputError


def check_numbers(**rules: tuple[Any, type, float, float | None]) -> None:
    """Refuse hyper-parameters of the wrong kind or out of range.

    Each rule is ``name=(value, int or float, low, high)``: integers lie in [low, high], floats in
    (low, high], but those named ``*_weight``, ``*_variance``, ``*_damping`` or ``*share`` may equal
    ``low``; ``high=None`` means no upper end.
    """
    for name, (value, kind, low, high) in rules.items():
        kinds = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
        good = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
        if good:
            closed = kind is int or name.endswith(("_weight", "_variance", "_damping", "share"))
            good = (value >= low if closed else value > low) and (high is None or value <= high)
        if not good:
            noun = "an integer" if kind is int else "a finite number"
            span = f"{'>=' if kind is int else '>'} {low:g}" + ("" if high is None else f" and <= {high:g}")
            raise InputError(f"{name}={value!r} is out of range; pass {noun} {span}.")


def check_choice(**rules: tuple[Any, tuple[str, ...]]) -> None:
    """Refuse a word that is not among the choices."""
    for name, (value, choices) in rules.items():
        if value not in choices:
            raise InputError(f"{name}={value!r} is not known; pass one of {', '.join(map(repr, choices))}.")


def check_clips(**clips: float | None) -> None:
    """Refuse a bound that is neither a number > 0 nor None, which is no clip."""
    for name, bound in clips.items():
        if bound is not None:
            check_numbers(**{name: (bound, float, 0, None)})


def check_exponent(weight_exponent: float) -> None:
    """Refuse an exponent of the adaptive weights outside [-1, 0]."""
    if isinstance(weight_exponent, bool) or not -1 <= weight_exponent <= 0:
        raise InputError(f"weight_exponent={weight_exponent!r} is out of range; pass one from -1 to 0.")
