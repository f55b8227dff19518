"""Lines of code of the package, without docstrings, comments, imports and blank lines: ``make lines``.

    python -m benchmarks.lines [--check]

With ``--check``, as in ``make check``, it prints only the files and functions that are too long, and exits 1
if there are any.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "hushrec"
#: Features that came after the house, with the files that each brought: none was there when the package was
#: to have 10,300 lines at most, 7,700 without the papers. What older files grew by for them is not counted.
LATER = {
    "stores on disk, training on a cluster": (
        "data/store.py data/preparing.py data/sources.py partitioned.py engines/dask.py cli/prepare.py"
        " cli/cluster.py"
    ),
    "trainings that go on where they were killed": "privacy/journal.py disk.py",
    "a season of weekly models": (
        "privacy/season.py privacy/season_accountant.py privacy/season_book.py evaluation/season_loss.py"
        " continuing.py kalman.py algorithms/weekly_als.py algorithms/weekly_eigenrec.py"
        " algorithms/likes_taste.py cli/retrain.py cli/season_open.py cli/season_show.py cli/season_close.py"
    ),
    "lists first: both jobs, pairs of items, taste, similar items": (
        "algorithms/both.py algorithms/item_matrix.py algorithms/ease.py evaluation/taste.py cli/similar.py"
    ),
    "server, site, lists and predictions by the batch, int8": (
        "server/ cli/serve.py cli/export.py cli/predict.py batch.py int8.py"
    ),
    "first use: check, split, kernels compiled ahead": (
        "data/looking.py cli/check.py cli/split.py cli/chosen.py kernels/first_use.py progress.py"
    ),
}
LONGEST_FILE, LONGEST_FUNCTION = 450, 60
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


def main() -> int:
    """Print the counts, or what is too long; 1 if anything is."""
    rooms: Counter[str] = Counter()
    later: Counter[str] = Counter()
    too_long = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code, name = code_lines(source, tree), path.relative_to(PACKAGE.parent)
        rooms["/".join(name.parts[:2]) if len(name.parts) > 2 else "hushrec/*.py"] += len(code)
        inside = "/".join(name.parts[1:])
        later.update(
            {what: len(code) for what, files in LATER.items() if inside.startswith(tuple(files.split()))}
        )
        if len(code) > LONGEST_FILE:
            too_long.append(f"{name} has {len(code)} lines of code, more than {LONGEST_FILE}")
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS) and (size := len(code & set(_lines(node)))) > LONGEST_FUNCTION:
                too_long.append(f"{name}:{node.lineno} {node.name} has {size}, more than {LONGEST_FUNCTION}")
    print(*too_long, sep="\n", end="\n" if too_long else "")
    if "--check" not in sys.argv:
        for room, count in rooms.most_common():
            print(f"{count:7,}  {room}")
        papers = rooms["hushrec/papers"]
        print(f"{rooms.total():7,}  in all; {rooms.total() - papers:,} without hushrec/papers\n")
        print("Of these, in files of features that came after the house:")
        for what, count in later.most_common():
            print(f"{count:7,}  {what}")
        rest = rooms.total() - later.total()
        print(f"{rest:7,}  without them; {rest - papers:,} without hushrec/papers (asked: 10,300 and 7,700)")
    return int(bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
