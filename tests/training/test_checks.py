"""Checks of declared parameters: what passes, and the one sentence for what does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import numpy as np
import pytest

from hushrec import checks
from hushrec.errors import InputError


@dataclass
class Settings:
    """A field of every kind that is checked, the last two of kinds that are not."""

    rank: Annotated[int, "[0, 9]"] = 3
    clip: checks.Clip = 1.0
    level: float = 0.0
    ridge: checks.Positive | None = None
    share: None | checks.Share = None
    rounds: Optional[checks.Count] = None  # noqa: UP045
    start: Literal["random", "spectral"] = "random"
    law: Literal["exact"] | None = None
    centered: bool = False
    either: int | str = 1
    names: tuple[str, ...] = ()


GOOD: dict[str, list[Any]] = {
    "rank": [0, 9, np.int8(4)],
    "clip": [1e-30, 1e30, 5, np.float32(2), np.int64(2)],
    "level": [-1e300, 0, 7],
    "ridge": [None, 1e-300, 1e308],
    "share": [None, 0, 1, 0.5],
    "rounds": [None, 1, 10**12],
    "start": ["random", "spectral"],
    "law": [None, "exact"],
    "centered": [True, False, np.bool_(True)],
    "either": ["any", None, math.nan],
    "names": [None, 3],
}
NUMBER = "is out of range; pass"
BAD: dict[str, tuple[list[Any], str]] = {
    "rank": ([-1, 10, 2.0, None, True, "3"], f"{NUMBER} an integer from 0 to 9."),
    "clip": ([0, 1e31, math.nan, None, False], f"{NUMBER} a number from 1e-30 to 1e+30."),
    "level": ([math.inf, math.nan, "x", 1j, None, 10**5000], f"{NUMBER} a number, for example 3.5."),
    "ridge": ([0, -1.0, math.inf, "1"], f"{NUMBER} a number > 0."),
    "share": ([-0.001, 1.001, math.nan], f"{NUMBER} a number from 0 to 1."),
    "rounds": ([0, 1.0, math.inf], f"{NUMBER} an integer >= 1."),
    "start": (["other", "", None, 1, ("random",)], "is not known; pass one of 'random', 'spectral'."),
    "law": (["", "ex", 0], "is not known; pass one of 'exact'."),
    "centered": ([None, 0, 1, "yes", math.nan], "is neither True nor False; pass one of them."),
}


@pytest.mark.parametrize("name", GOOD)
def test_each_field_is_held_to_its_type(name: str) -> None:
    """In any context."""
    for value in GOOD[name]:
        checks.check_fields(Settings(**{name: value}))
    for value in BAD.get(name, ([], ""))[0]:
        with pytest.raises(InputError) as refused:
            checks.check_fields(Settings(**{name: value}))
        said = f"a {type(value).__name__}"
        if value == 10**5000:
            said = "an integer too large for a float"
        elif isinstance(value, str | int | float | None):
            said = repr(value)
        assert str(refused.value) == f"{name}={said} {BAD[name][1]}"
        assert refused.value.parameter == name
