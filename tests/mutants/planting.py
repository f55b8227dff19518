"""Replace a text of a function by a bug."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache


@cache
def functions(source: str) -> dict[str, tuple[int, int]]:
    """Return every function of a source, methods as ``Class.method``, with its first and last character."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                if not isinstance(child, ast.ClassDef):
                    yield prefix + child.name, (starts[first - 1], starts[child.end_lineno or first])
                yield from below(child, f"{prefix}{child.name}.")
            else:
                yield from below(child, prefix)

    return dict(below(ast.parse(source), ""))


def plant(source: str, function: str, old: str, new: str) -> str:
    """Replace a text of a function, or of the whole source."""
    begin, end = functions(source)[function] if function else (0, len(source))
    part = source[begin:end]
    assert part.count(old) == 1, f"{function or 'the file'} holds {part.count(old)} times, not once: {old}"
    return source[:begin] + part.replace(old, new) + source[end:]
