"""Files of ratings that differ in one user, in every format, with the rows of a hostile user."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.hostile_cells import ITEMS, LINES, RATINGS, USERS

#: A row is three cells, or in a text file an unchanged line.
Row = tuple[Any, Any, Any] | bytes
FORMATS = {
    "csv": "ratings.csv",
    "tsv": "ratings.tsv",
    "named": "stars.csv",
    "gzip": "ratings.csv.gz",
    "movielens-100k": "u.data",
    "movielens-dat": "ratings.dat",
    "parquet": "ratings.parquet",
    "numbers": "numbers.parquet",
}
WITHOUT_HEADER = ("movielens-100k", "movielens-dat")
CHANGES = ("added", "removed", "replaced", "alone")
KINDS = ("ordinary", "everything", "cells", "lines", "first", "nothing")
#: What files of other kinds begin with.
MAGIC = (b"PAR1", b"\x1f\x8b", b"PK\x03\x04", b"\xff\xfe", b"BZh9", b"\x28\xb5\x2f\xfd", b"ARROW1", b"{")


def long(*cases: Any) -> list[Any]:
    """Parameters of a test in long runs."""
    return [pytest.param(*case, marks=pytest.mark.full) for case in cases]


def domain_words(folder: Path, kind: str, likes: bool) -> list[str]:
    """Write the catalogue there; return the words of the declaration."""
    n_items = 12
    (folder / "items.txt").write_text("".join(f"{n}\n" for n in range(1, n_items + 1)), encoding="utf-8")
    table = "item,old,loud\n" + "".join(f"{n},{n % 2},{n % 5}\n" for n in range(1, n_items + 1))
    (folder / "features.csv").write_text(table, encoding="utf-8")
    return ["--rating-range", *(("0", "1") if likes else ("1", "5")), "--catalogue", "items.txt"]


def pair(kind: str, change: str, rows: str, likes: bool, dice: random.Random) -> tuple[list[Row], list[Row]]:
    """Rows of two files that differ in one user."""
    others = [] if change == "alone" else [row for n in range(8) for row in _honest(f"u{n}", dice, likes)]
    with_her = merged(others, hers(rows, kind, dice, likes), rows == "first", dice)
    without = others
    if change == "replaced":
        without = merged(others, hers(dice.choice(KINDS), kind, dice, likes), rows == "first", dice)
    return (without, with_her) if change == "added" else (with_her, without)


def _honest(user: str, dice: random.Random, likes: bool) -> list[Row]:
    ratings = (1,) if likes else (1, 2, 2.5, 3, 4, 5)
    return [(user, item, dice.choice(ratings)) for item in dice.sample(range(1, 13), dice.randint(1, 9))]


def hers(rows: str, kind: str, dice: random.Random, likes: bool) -> list[Row]:
    """Return the rows that one user, mallory, may put into a file of some format."""
    if rows == "ordinary":
        return _honest("mallory", dice, likes)
    if rows == "everything":
        return [("mallory", item, dice.choice((1, 5))) for item in range(1, 13)] * 2
    if rows == "nothing":
        return [("mallory", "unknown", 4), ("mallory", 1, 99), ("mallory", 2, None)]
    if rows == "first":
        return [magic + line for magic in dice.sample(MAGIC, 2) for line in _lines(kind, [b"alory,1,4"])]
    if rows == "lines":
        return list(_lines(kind, dice.sample(LINES, 8)))
    cells = zip(dice.sample(USERS, 6), dice.sample(ITEMS, 6), dice.sample(RATINGS, 6))
    return [("mallory", *cell[1:]) if dice.random() < 0.5 else cell for cell in cells]


def _lines(kind: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with commas, as the format has them."""
    for line in lines:
        if kind in ("tsv", "movielens-100k"):
            line = line.replace(b",", b"\t")
        elif kind == "movielens-dat":
            line = line.replace(b",", b"::")
        yield line + {"movielens-100k": b"\t0", "movielens-dat": b"::0"}.get(kind, b"")


def merged(rows: Sequence[Row], more: Sequence[Row], first: bool, dice: random.Random) -> list[Row]:
    """Rows put between others at random places, or before them, each in its own order."""
    if first:
        return [*more, *rows]
    result = list(rows)
    for place, row in zip(sorted((dice.randint(0, len(rows)) for _ in more), reverse=True), reversed(more)):
        result.insert(place, row)
    return result


def write(path: Path, kind: str, rows: Sequence[Row], likes: bool) -> list[str]:
    """Write a file; the words of a command line that reads it."""
    if kind in ("parquet", "numbers"):
        _write_parquet(path, kind, [row for row in rows if isinstance(row, tuple)], likes)
    else:
        mark = {"tsv": b"\t", "named": b"|", "movielens-100k": b"\t", "movielens-dat": b"::"}.get(kind, b",")
        names = [b"who", b"what", b"stars"] if kind == "named" else [b"user", b"item", b"rating"]
        names = names[: 2 if likes else 3]
        lines = [] if kind in WITHOUT_HEADER else [mark.join(names)]
        more = [b"0"] if kind in WITHOUT_HEADER else []
        width = 3 if more else len(names)
        for row in rows:
            lines.append(
                row if isinstance(row, bytes) else mark.join([_octets(cell) for cell in row[:width]] + more)
            )
        content = b"".join(line + b"\n" for line in lines)
        path.write_bytes(gzip.compress(content) if kind == "gzip" else content)
    words = [path.name, *(["--implicit"] if likes else [])]
    if kind == "named":
        words += ["--columns", "user=who,item=what" + ("" if likes else ",rating=stars")]
    return words


def _octets(cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    try:
        return str(cell).encode("utf-8", "surrogatepass")
    except (RuntimeError, ValueError):
        return b"unprintable"


def _write_parquet(path: Path, kind: str, rows: Sequence[tuple[Any, Any, Any]], likes: bool) -> None:
    text, double = (pa.string(), pa.float64()) if kind == "parquet" else (pa.int64(), pa.float32())
    columns = {
        "user": pa.array(
            [_cell(_number(row[0]) if kind == "numbers" else row[0], text) for row in rows], text
        ),
        "item": pa.array([_cell(row[1], text) for row in rows], text),
        "rating": pa.array([_cell(row[2], double) for row in rows], double),
    }
    if likes:
        del columns["rating"]
    pq.write_table(pa.table(columns), path)


def _number(user: Any) -> Any:
    if isinstance(user, str):
        return int(user[1:]) if user[1:].isdigit() and user.isascii() else -1
    return user


def _cell(cell: Any, kind: pa.DataType) -> Any:
    """The cell as a column of this type holds it, or nothing."""
    try:
        if kind == pa.string() and not isinstance(cell, str):
            cell = None if cell is None else str(cell)
        return pa.array([cell], kind)[0].as_py()
    except Exception:  # whatever a hostile cell does
        return None


def all_pairs(factors: Mapping[str, Sequence[Any]], seed: int) -> list[dict[str, Any]]:
    """Choices in which any two values of two factors occur together at least once."""
    dice = random.Random(seed)
    values = {name: range(len(each)) for name, each in factors.items()}
    missing = {
        frozenset([(one, i), (other, j)])
        for one, other in combinations(values, 2)
        for i in values[one]
        for j in values[other]
    }
    found = []
    while missing:
        chosen = dict(min(missing, key=sorted))
        for name in dice.sample(list(values), len(values)):
            if name not in chosen:
                gains = {
                    value: sum(frozenset([(name, value), each]) in missing for each in chosen.items())
                    for value in dice.sample(values[name], len(values[name]))
                }
                chosen[name] = max(gains, key=gains.__getitem__)
        missing -= set(map(frozenset, combinations(chosen.items(), 2)))
        found.append({name: factors[name][chosen[name]] for name in factors})
    return found
