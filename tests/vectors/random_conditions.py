"""Random tables and conditions, many of them malformed, and Python's answer to each."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np

from hushrec.data import Domain
from hushrec.errors import InputError
from hushrec.serving import Attributes

_CELLS: dict[str, list[Any]] = {
    "number": [0.0, -0.0, 1.0, 2.0, 2.5, -3.0, 1e300, -1e-300, 2.0**53 + 2, None],
    "flag": [True, False, None],
    "text": ["", "a", "b", "ab", "B", "it's", "é", "e\u0301", "\U0001f600", "\uffff", "1", "true", " ", None],
    "nothing": [None, ""],
    "mostly": [None, None, None, 1],
}
_NAMES = ["price", "in_stock", "brand", "on sale", "d", "_x1", "Not", "naïve", "1st"]
_LITERALS = [
    "0", "1", "2.5", "-3", ".5", "2.", "1e300", "-1e-300", "9007199254740993", "1e999", "-0", "true", "FALSE",
    "'a'", '"b"', "'it''s'", "''", '"é"', "'\U0001f600'", "'\uffff'", "'1'", "' '",
]  # fmt: skip
_SIGNS = ["=", "==", "!=", "<>", "<", "<=", ">", ">="]
_NOISE = [
    "(",
    ")",
    ",",
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "=",
    "<",
    "'",
    "`",
    ";",
    "\ud800",
    "\u00a0",
    "--",
    "1",
]


def random_table(rng: random.Random, items: list[str]) -> dict[str, list[Any]]:
    """Columns of all kinds for some of the items, in another order, and for an item that does not exist."""
    rows = [*rng.sample(items, len(items) - 2), "no such item"]
    table: dict[str, list[Any]] = {"item": rows}
    for name in rng.sample(_NAMES, 6):
        cells = _CELLS[rng.choice(list(_CELLS))]
        table[name] = [rng.choice(cells) for _ in rows]
    return table


def random_condition(rng: random.Random, names: list[str]) -> str:
    """A condition over these columns; one in three was damaged."""

    def operand() -> str:
        if rng.random() < 0.5:
            name = rng.choice(names)
            return (
                name if re.fullmatch("[A-Za-z_][A-Za-z_0-9]*", name) and rng.random() < 0.8 else f"`{name}`"
            )
        return rng.choice(_LITERALS)

    def part(depth: int) -> str:
        kind = rng.random()
        if depth and kind < 0.35:
            return f"{part(depth - 1)} {rng.choice(['and', 'or', 'AND', 'Or'])} {part(depth - 1)}"
        if depth and kind < 0.45:
            return f"({part(depth - 1)})"
        if depth and kind < 0.55:
            return f"not {part(depth - 1)}"
        if kind < 0.65:
            return operand()
        if kind < 0.75:
            return f"{operand()} is {rng.choice(['', 'not '])}null"
        if kind < 0.87:
            listed = rng.choice([",", " , "]).join(operand() for _ in range(rng.randint(1, 5)))
            return f"{operand()} {rng.choice(['', 'not '])}in ({listed})"
        return f"{operand()}{rng.choice(['', ' '])}{rng.choice(_SIGNS)} {operand()}"

    text = part(3)
    for _ in range(rng.choice([0, 0, 1])):
        place = rng.randrange(len(text) + 1)
        text = (
            text[:place]
            + rng.choice([" ", ""])
            + rng.choice([*_NOISE, ""])
            + text[place + rng.randint(0, 2) :]
        )
    return text


def answer(attributes: Attributes, condition: str) -> list[int] | str:
    """The places of the items of which it is true, or the part of the refusal that does not repeat it."""
    try:
        return np.flatnonzero(attributes.matching(condition)).tolist()
    except InputError as error:
        words = re.search(
            r"There is no column|holds neither|A condition is a text|compares a number with a text"
            r"|a text or a number alone|(should go on with [^.]*?|has [^.]*?), at ",
            str(error),
        )
        assert words is not None, error
        return words[1] or words[0]


def random_cases(seed: int, items: list[str], tables: int, each: int) -> list[dict[str, Any]]:
    """Tables with conditions: the the answer to each."""
    rng, domain, cases = random.Random(seed), Domain(items, rating_range=(1, 5)), []
    for _ in range(tables):
        table, answers = random_table(rng, items), {}
        attributes = Attributes.read(table, domain)
        for _ in range(each):
            text = random_condition(rng, [*(name for name in table if name != "item"), "absent"])
            answers[text] = answer(attributes, text)
        cases.append({"table": table, "answers": answers})
    return cases
