"""Lines of code of the package and its tests, but for docstrings, comments, imports, blanks: ``make check``.

    python -m benchmarks.lines [--check]

With ``--check``, as in ``make check``, it prints only files and functions that are too long, and exits 1 if
any is.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST_FILE, LONGEST_FUNCTION = 600, 60
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str, tree: ast.Module) -> set[int]:
    """Numbers of the lines that hold code."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _FUNCTIONS[0] | _FUNCTIONS[1]):
            if ast.get_docstring(node, clean=False) is not None:
                code.difference_update(_lines(node.body[0]))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            code.difference_update(_lines(node))
    return code


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def measured(folder: str) -> tuple[Counter[str], list[str]]:
    """Return lines of code by room below a folder, and everything that is too long."""
    rooms: Counter[str] = Counter()
    too_long = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code, name = code_lines(source, tree), path.relative_to(ROOT)
        rooms["/".join(name.parts[:2]) if len(name.parts) > 2 else f"{folder}/*.py"] += len(code)
        if len(code) > LONGEST_FILE:
            too_long.append(f"{name} has {len(code)} lines of code, more than {LONGEST_FILE}")
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS) and (size := len(code & set(_lines(node)))) > LONGEST_FUNCTION:
                too_long.append(f"{name}:{node.lineno} {node.name} has {size}, more than {LONGEST_FUNCTION}")
    return rooms, too_long


def main() -> int:
    """Print the counts, or everything that is too long; 1 if anything is."""
    package, too_long = measured("hushrec")
    tests, _ = measured("tests")
    print(*too_long, sep="\n", end="\n" if too_long else "")
    if "--check" not in sys.argv:
        for rooms in (package, tests):
            for room, count in rooms.most_common():
                print(f"{count:7,}  {room}")
            print(f"{rooms.total():7,}  in all\n")
    return int(bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
