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
    """Whatever stands before and after it."""
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


def test_intervals_whose_ends_differ() -> None:
    said = {
        "(0, 1]": ([0.001, 1], [0, 1.001], "an integer > 0 and <= 1", "a number > 0 and <= 1"),
        "[2, 3)": ([2, 2.999], [1.999, 3], "an integer >= 2 and < 3", "a number >= 2 and < 3"),
        "(-5, -1)": ([-4.999, -1.001], [-5, -1], "an integer > -5 and < -1", "a number > -5 and < -1"),
        "[10, 12]": ([10, 12], [9, 13], "an integer from 10 to 12", "a number from 10 to 12"),
    }
    for interval, (inside, outside, whole, real) in said.items():
        for value in inside:
            checks.check_numbers(x=(value, float, interval))
        for value in outside:
            for kind, words in ((int, whole), (float, real)):
                with pytest.raises(InputError) as refused:
                    checks.check_numbers(x=(0 if interval[1] == "-" else 99, kind, interval))
                assert words in str(refused.value)
                with pytest.raises(InputError, match="x="):
                    checks.check_numbers(x=(value, kind, interval))


def test_all_that_are_given_are_checked() -> None:
    with pytest.raises(InputError, match="^second=7 is out of range"):
        checks.check_numbers(first=(1, int, "[0, 2]"), second=(7, int, "[0, 2]"))
    with pytest.raises(InputError, match="^second='c' is not known; pass one of 'a', 'b'"):
        checks.check_choice(first=("a", ("a", "b")), second=("c", ("a", "b")))


def test_kinds_and_lists() -> None:
    for kinds, words in ((dict, "dict"), ((dict, set), "dict or set")):
        checks.check_kind({}, kinds, "table", "pass one")
        for value in (5, "secret", ["secret"]):
            with pytest.raises(InputError) as refused:
                checks.check_kind(value, kinds, "table", "pass one")
            assert str(refused.value) == f"table must be {words}, not {type(value).__name__}; pass one."
            assert refused.value.parameter == "table"
    for value in ([], ["x"], ("x",), {"x": 1}, np.ones(2), iter("x")):
        checks.check_listed(value, "models", '["both"]')
    for value, said in (("both", "'both'"), (b"both", "a bytes"), (5, "5"), (None, "None")):
        with pytest.raises(InputError) as refused:
            checks.check_listed(value, "models", '["both"]')
        assert str(refused.value) == f'models={said} is no list; pass one, for example ["both"].'
        assert refused.value.parameter == "models"


def test_what_is_a_number_and_what_is_shown_of_it() -> None:
    for value in (0, -3, 1e308, np.float32(1), np.int8(1)):
        assert checks.is_number(value) is True
    for value in (True, math.nan, math.inf, "1", None, 1j, 10**400):
        assert checks.is_number(value) is False
    assert checks.is_number(2.0, (int, np.integer)) is False and checks.is_number(2, (int,)) is True
    assert checks.shown("x" * 40) == repr("x" * 40) and checks.shown("x" * 41) == repr("x" * 40 + "...")
