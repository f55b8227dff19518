"""Conditions on the columns of a public table of items, such as ``in_stock and price < 50``.

web/src/rules.ts holds the same grammar and limits; tests/vectors holds both to the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from hushrec.errors import InputError

#: Characters of a condition, and parentheses within each other.
_MOST_LETTERS, _MOST_NESTED = 2000, 50
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:(?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|`(?P<name>[^`]+)`|(?P<word>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<sign><=|>=|!=|<>|==|[=<>])|(?P<mark>[(),]))"""
)
_COMPARISONS = {
    "=": pc.equal, "==": pc.equal, "!=": pc.not_equal, "<>": pc.not_equal,
    "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class Condition:
    """A condition as tokens."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip() or len(text) > _MOST_LETTERS:
            raise InputError(
                f"A condition is a text of at most {_MOST_LETTERS} letters, such as"
                ' "in_stock and price < 50".'
            )
        self._text = text
        if surrogate := re.search("[\ud800-\udfff]", text):
            self._refuse(surrogate.start(), "has half a character (a lone surrogate)")
        self._tokens, end = [], 0
        while text[end:].strip(" \t\r\n"):
            match = _TOKEN.match(text, end)
            if match is None or match.lastgroup is None:
                hint = "; put a column such as `on sale` in backticks"
                self._refuse(end, "has something that is neither name, number, text nor sign", hint)
            self._tokens.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            end = match.end()
        self._tokens.append(_Token("end", "", len(text)))

    @property
    def operations(self) -> int:
        """Names, words and signs: each is at most one pass over the items."""
        return sum(token.kind in ("name", "word", "sign") for token in self._tokens)

    def evaluate(self, column: Callable[[str], pa.Array]) -> Any:
        """Return true, false or null for each item; a scalar where no column is named.

        ``column`` returns a column of floats or texts by its name.
        """
        self._column, self._next, self._depth, self._start = column, 0, 0, 0
        truth = self._disjunction()
        if self._token.kind != "end":
            self._refuse(self._token.start, "should go on with and, or, or end")
        return truth

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _disjunction(self) -> Any:
        return self._joined("or", pc.or_kleene, lambda: self._joined("and", pc.and_kleene, self._factor))

    def _joined(self, word: str, join: Callable[[Any, Any], Any], operand: Callable[[], Any]) -> Any:
        truth = operand()
        while self._take(word):
            truth = join(truth, operand())
        return truth

    def _factor(self) -> Any:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            self._refuse(self._token.start, f"has more than {_MOST_NESTED} parentheses in each other")
        if self._take("not"):
            truth = pc.invert(self._factor())
        elif self._take("("):
            truth = self._disjunction()
            self._expect(")")
        else:
            truth = self._comparison()
        self._depth -= 1
        return truth

    def _comparison(self) -> Any:
        kind, _, self._start = self._token
        left = self._operand()
        if self._take("is"):
            wanted = not self._take("not")
            self._expect("null")
            return pc.equal(pc.is_null(left), wanted)
        negated = self._take("not")
        if self._take("in"):
            truth = self._membership(left)
            return pc.invert(truth) if negated else truth
        if negated:
            self._refuse(self._token.start, "should go on with in")
        for sign, compare in _COMPARISONS.items():
            if self._take(sign):
                return compare(*self._comparable(left, self._operand()))
        if kind not in ("name", "word") or not pa.types.is_float64(left.type):
            self._refuse(
                self._start, "has a text or a number alone, which should be compared, as in brand = 'x'"
            )
        return pc.not_equal(left, 0.0)

    def _membership(self, left: Any) -> Any:
        self._expect("(")
        operands = [self._operand()]
        while self._take(","):
            operands.append(self._operand())
        self._expect(")")
        constants, truths = [], []
        for operand in operands:
            if isinstance(operand, pa.Scalar) and operand.type == left.type:
                constants.append(operand.as_py())
            else:
                truths.append(pc.equal(*self._comparable(left, operand)))
        if constants:
            known = pc.is_in(left, value_set=pa.array(constants, left.type))
            truths.append(pc.if_else(pc.is_valid(left), known, pa.scalar(None, pa.bool_())))
        return reduce(pc.or_kleene, truths)

    def _operand(self) -> Any:
        kind, text, start = self._token
        self._next += kind != "end"
        if kind == "number":
            return pa.scalar(float(text) + 0.0)  # -0 is 0
        if kind == "text":
            return pa.scalar(text[1:-1].replace(text[0] * 2, text[0]), pa.large_string())
        if kind == "word" and text.lower() in ("true", "false"):
            return pa.scalar(float(text.lower() == "true"))
        if kind == "name" or (kind == "word" and text.lower() not in _KEYWORDS):
            return self._column(text)
        self._refuse(start, "should go on with a column, a number or a text")

    def _comparable(self, left: Any, right: Any) -> tuple[Any, Any]:
        if left.type == right.type:
            return left, right
        if isinstance(right, pa.Array) and right.null_count == len(right):
            return left, pa.scalar(None, left.type)
        if isinstance(left, pa.Array) and left.null_count == len(left):
            return left.cast(right.type), right
        self._refuse(self._start, "compares a number with a text")

    def _take(self, word: str) -> bool:
        if self._token.kind in ("word", "sign", "mark") and self._token.text.lower() == word:
            self._next += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._refuse(self._token.start, f"should go on with {word}")

    def _refuse(self, start: int, reason: str, hint: str = "") -> NoReturn:
        rest = self._text[start : start + 30]
        where = f"at {rest!r}" if rest else "at its end"
        raise InputError(f"The condition {self._text[:100]!r} {reason}, {where}{hint}.")
