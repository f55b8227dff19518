"""Find an expression of a function with any layout and local names, and replace it by a bug."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Token(NamedTuple):
    """A token and its place in the text; `local` where it may be a local name."""

    text: str
    start: int
    end: int
    local: bool


@cache
def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, which may be a part of a statement."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Token] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _LAYOUT or not token.string:
                continue
            place, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            after_dot = bool(found) and found[-1].text == "."
            name = token.type == tokenize.NAME and not keyword.iskeyword(token.string) and not after_dot
            found.append(Token(token.string, place, end, name))
    except (tokenize.TokenError, IndentationError):  # its brackets or its indentation do not end
        pass
    return found


@cache
def functions(source: str) -> list[tuple[str, int, int]]:
    """Name every function of a source, methods as ``Class.method``, with its first and last character."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                if not isinstance(child, ast.ClassDef):
                    yield prefix + child.name, starts[first - 1], starts[child.end_lineno or first]
                yield from below(child, f"{prefix}{child.name}.")
            else:
                yield from below(child, prefix)

    return list(below(ast.parse(source), ""))


def span_of(source: str, function: str) -> tuple[int, int]:
    """Return the span of a function in a source, or that of the whole source."""
    found = [(begin, end) for name, begin, end in functions(source) if name == function]
    return found[0] if found else (0, len(source))


def matches(
    source: list[Token], wanted: list[Token], renamed: bool
) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Where the tokens occur: start, end, and the names there for those wanted."""
    for at in range(len(source) - len(wanted) + 1):
        names: dict[str, str] = {}
        for have, want in zip(source[at:], wanted):
            if have.text == want.text and names.setdefault(want.text, have.text) == have.text:
                continue
            if not (renamed and have.local and want.local):
                break
            if names.setdefault(want.text, have.text) != have.text:
                break
        else:
            if len(set(names.values())) == len(names):
                yield source[at].start, source[at + len(wanted) - 1].end, names


def plant(source: str, function: str, old: str, new: str) -> str:
    """Replace an expression of a function; its local names may differ from those of ``old``."""
    begin, end = span_of(source, function)
    part, wanted = source[begin:end], tokens(old)
    for renamed in (False, True):
        found = list(matches(tokens(part), wanted, renamed)) if wanted else []
        if len(found) == 1:
            ((start, stop, names),) = found
            own = {name: name_there for name, name_there in names.items() if name != name_there}
            for name, name_there in own.items():
                new = re.sub(rf"(?<![\w.]){re.escape(name)}\b", name_there, new)
            lead, trail = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
            new = new.removeprefix(lead).removesuffix(trail)
            return source[: begin + start] + new + source[begin + stop :]
    assert part.count(old) == 1, f"{function or 'the file'} holds {part.count(old)} times, not once: {old}"
    return source[:begin] + part.replace(old, new) + source[end:]
