"""The curator's own look at their table, before anything is spent: what becomes of each row, and why.

All of it is private, and never in a log, a model or a report: `Ratings.check` and ``hushrec check`` alone
show it. The rules are those of `hushrec.data.building`, whose result a test compares.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hushrec.checks import plural
from hushrec.data.building import build, within_range
from hushrec.data.columns import Columns, columns_of, find_columns, with_times
from hushrec.data.domain import Domain
from hushrec.data.files import WITH_HEADER, file_format, open_text, parquet_schema, readable, with_keys
from hushrec.data.ids import Encoded, as_arrow_or_objects, as_text, encode_ids, positions_of
from hushrec.data.readers import read_columns
from hushrec.data.sources import File, files_at
from hushrec.data.textfiles import ByteStream, read_fields
from hushrec.data.times import NO_TIME
from hushrec.errors import InputError

PRIVATE_LOOK = "PRIVATE: computed from the ratings without noise, for the curator alone; nothing was charged"
_ADVICE = (
    "Do not declare from these counts, the histogram or the unseen items: they are your users'.\n"
    "Declare the scale that your form allows and the items that your shop sells."
)
#: Scales that rating forms usually have.
_SCALES = ((0, 1), (1, 5), (0, 5), (1, 10), (0, 100))
#: So many lines of each kind are named, so many different ratings are shown before they are put in bins.
_NAMED, _SHOWN = 5, 21
_TEXTS = ("csv", "tsv", "movielens-100k", "movielens-dat")
_BAR = 40  # characters of the longest bar: half a terminal


@dataclass(frozen=True)
class Dropped:
    """Rows that are not used.

    Attributes
    ----------
    why : str
    count : int
    first : tuple of int
        Numbers of the first few: lines of a text file, from 1 with its header, else rows from 1.
    """

    why: str
    count: int
    first: tuple[int, ...]


@dataclass(frozen=True)
class Look:
    """The result of `Ratings.check`; private.

    Attributes
    ----------
    columns : dict of str to str
        The column of each role, where they have names.
    format : str or None
        Of a file.
    counted : {"line", "row"}
        What the numbers of dropped rows count.
    rows, usable : int
        Rows that were read, and ratings that a training would use.
    dropped : tuple of Dropped
    users, users_over_cap, items_unseen : int
        Users with a usable rating, those with more than the cap, and declared items that nobody rated.
    histogram : tuple of (low, high, count)
        Of the ratings that are numbers; low and high are equal where each value has a bar.
    scales : tuple of (low, high)
        The usual scales that all of these fit.
    without_time : int or None
        Usable ratings whose time cannot be read; None where no column of times is found.
    hints : tuple of str
        What may be wrong with the file, in words.
    """

    columns: dict[str, str]
    format: str | None
    counted: str
    rows: int
    usable: int
    dropped: tuple[Dropped, ...]
    users: int
    users_over_cap: int
    cap: int
    items_unseen: int
    n_items: int
    histogram: tuple[tuple[float, float, int], ...]
    scales: tuple[tuple[float, float], ...]
    without_time: int | None
    hints: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"note": PRIVATE_LOOK, **asdict(self)}

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the text for a terminal."""
        named = ", ".join(f"{role} = {name!r}" for role, name in self.columns.items())
        lines = [f"{PRIVATE_LOOK}.", ""]
        if self.format:
            lines.append(f"Format    {self.format}")
        if named:
            lines.append(f"Columns   {named}")
        lines.append(f"Rows      {self.rows:,} read, {self.usable:,} used, of {plural(self.users, 'user')}")
        for each in self.dropped:
            numbers = ", ".join(map(str, each.first)) + (", ..." if each.count > len(each.first) else "")
            at = f" ({self.counted}{'s' * (each.count > 1)} {numbers})" if each.first else ""
            lines.append(f"  {each.count:>10,} not used: {each.why}{at}")
        if self.without_time is not None:
            lines.append(f"Times     unreadable or missing in {self.without_time:,} of the used rows")
        lines.append(f"Cap       {plural(self.users_over_cap, 'user')} with more than {self.cap:,} ratings")
        lines.append(f"Items     {self.items_unseen:,} of the {self.n_items:,} declared without a rating")
        if self.histogram:
            lines += ["Ratings", *_bars(self.histogram)]
            fitting = ", ".join(f"{low:g} to {high:g}" for low, high in self.scales)
            lines.append(f"Scales    {fitting or 'none of the usual ones'} would hold all of them")
        lines += ["", *(f"Hint: {hint}" for hint in self.hints), _ADVICE]
        return "\n".join(lines)


def look(
    source: Any, domain: Domain, columns: Any = None, format: str | None = None, implicit: bool = False
) -> Look:
    """Look what becomes of each row of a source; see `hushrec.data.Ratings.check`."""
    found = _Read(source, domain, columns, format, implicit or domain.likes)
    table, numbers = found.table, found.numbers
    users, items = encode_ids(table.users), encode_ids(table.items)
    positions = positions_of(items, domain.item_texts)
    numeric, within = ~np.isnan(table.ratings), within_range(table.ratings.copy(), domain)
    reasons = {
        "no user id": users.codes < 0,
        "no item id": items.codes < 0,
        "the item is not in the catalogue": positions < 0,
        "the rating is missing or no number": ~numeric,
        f"the rating is not from {domain.low:g} to {domain.high:g}": np.isnan(within),
    }
    dropped, used = [found.malformed] if found.malformed.count else [], np.ones(len(numbers), dtype=bool)
    for why, mask in reasons.items():
        new = mask & used
        used &= ~mask
        if new.any():
            dropped.append(Dropped(why, int(new.sum()), tuple(numbers[new][:_NAMED].tolist())))
    rows = build(domain, users, positions, table.ratings.copy(), table.times)
    cells = users.codes[used].astype(np.int64) * domain.n_items + positions[used]
    pairs = np.unique(cells)
    again = _rated_again(cells, None if table.times is None else table.times[used])
    if len(again):
        first = tuple(numbers[used][again[:_NAMED]].tolist())
        dropped.append(Dropped("the user rated the item again", len(again), first))
    per_user = np.bincount(pairs // domain.n_items)
    if over := int((per_user - np.minimum(per_user, domain.max_ratings_per_user)).sum()):
        dropped.append(Dropped("beyond the cap", over, ()))
    ratings = table.ratings[numeric & np.isfinite(table.ratings)]
    return Look(
        columns=found.names,
        format=found.format,
        counted="line" if found.is_text else "row",
        rows=len(numbers) + found.malformed.count,
        usable=rows.matrix.nnz,
        dropped=tuple(dropped),
        users=rows.matrix.shape[0],
        users_over_cap=int((per_user > domain.max_ratings_per_user).sum()),
        cap=domain.max_ratings_per_user,
        items_unseen=domain.n_items - len(np.unique(positions[used])),
        n_items=domain.n_items,
        histogram=() if implicit or domain.likes else _histogram(ratings),
        scales=tuple(s for s in _SCALES if len(ratings) and s[0] <= ratings.min() and ratings.max() <= s[1]),
        without_time=None if found.times is None else int((found.times[used] == NO_TIME).sum()),
        hints=(
            *["the table has no rows below its header."] * (not len(numbers)),
            *_hints(found.rating_words),
            *(_hints_of_ids(table.users, users.codes) or _hints_of_ids(table.items, items.codes)),
            *_hints_of_catalogue(domain, float((positions < 0).sum()) / max(len(positions), 1)),
        ),
    )


def _rated_again(cells: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Positions of the entries that a later one of the same user and item stands for, as `build` has it."""
    order = np.lexsort((np.zeros(len(cells)) if times is None else times, cells))
    return np.sort(order[:-1][cells[order[:-1]] == cells[order[1:]]])


class _Read:
    """A source as columns, with the number of each row and what the file says of itself."""

    def __init__(self, source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool) -> None:
        self.table: Columns
        self.names: dict[str, str] = {}
        self.rating_words: list[Any] = []
        self.malformed = Dropped("the line has another number of fields than the first", 0, ())
        files = files_at(str(source)) if isinstance(source, str | Path) else []
        alone = files[0] if len(files) == 1 else None
        self.format = file_format(alone, format) if alone else format
        self.is_text = alone is not None and not alone.keys and self.format in _TEXTS
        if alone and self.is_text:
            with readable(alone, str(self.format)):
                _refuse_other_kinds(alone)
                with alone.stream() as stream:
                    asked = self._read_lines(stream, columns, implicit)
        else:
            names = list(getattr(source, "column_names", getattr(source, "columns", ())))
            if alone and self.format == "parquet":
                names = with_keys(parquet_schema(alone).names, alone)
            asked = with_times(names, columns)
            self.table = read_columns(source, asked, format, implicit, domain.item_texts)
            self.numbers = np.arange(1, len(self.table.ratings) + 1)
            if names:
                self.names = {role: str(name) for role, name in find_columns(names, asked, implicit).items()}
        self.times = self.table.times
        if asked is not columns:  # a training does not ask for them
            self.table = self.table._replace(times=None)

    def _read_lines(self, stream: ByteStream, columns: Any, implicit: bool) -> Any:
        """Read as `hushrec.data.files` does, with a number before each line; return the columns asked for."""
        names, delimiter, blocks = open_text(stream, str(self.format))
        header = int(self.format in WITH_HEADER)
        columns = with_times(names, columns)
        chosen = find_columns(names, columns, implicit)
        self.names = {role: str(name) for role, name in chosen.items()} if header else {}
        count = itertools.count(header + 1)
        wanted = [0, *(1 + names.index(name) for name in chosen.values())]
        number, *fields = read_fields(
            _numbered(blocks, count, delimiter.encode()), len(names) + 1, wanted, delimiter, bool(header)
        )
        cells = dict(zip(chosen, fields))
        if "rating" in cells:
            self.rating_words = cells["rating"].unify_dictionaries().combine_chunks().dictionary.to_pylist()
        cells |= {role: as_text(cells[role]) for role in ("user", "item")}
        self.table = columns_of(**cells, implicit=implicit)
        self.numbers = np.array([int(text) for text in number.cast(pa.large_binary()).to_pylist()], int)
        missing = np.setdiff1d(np.arange(header + 1, next(count)), self.numbers)
        self.malformed = Dropped(self.malformed.why, len(missing), tuple(missing[:_NAMED].tolist()))
        return columns


def _numbered(blocks: Iterable[bytes], count: Iterator[int], delimiter: bytes) -> Iterator[bytes]:
    """Yield blocks of lines, each line with its number before it."""
    for block in blocks:  # each line ends with a line break
        lines = block.split(b"\n")[:-1]
        yield b"".join(b"%d%s%s\n" % (number, delimiter, line) for line, number in zip(lines, count))


def _histogram(ratings: np.ndarray) -> tuple[tuple[float, float, int], ...]:
    values, counts = np.unique(ratings, return_counts=True)
    if len(values) <= _SHOWN:
        return tuple(
            (float(str(value)), float(str(value)), int(count)) for value, count in zip(values, counts)
        )
    counts, edges = np.histogram(ratings.astype(np.float64), bins=10)
    return tuple((float(low), float(high), int(n)) for low, high, n in zip(edges, edges[1:], counts))


def _bars(histogram: tuple[tuple[float, float, int], ...]) -> list[str]:
    names = [f"{low:g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high, _ in histogram]
    width, most = max(map(len, names)), max(count for *_, count in histogram)
    return [
        f"  {name:>{width}} {count:>12,} {'#' * round(_BAR * count / most)}".rstrip()
        for name, (*_, count) in zip(names, histogram)
    ]


def _hints(words: list[Any]) -> Iterator[str]:
    texts = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in words]
    if any(re.fullmatch(r"\s*-?\d+,\d+\s*", text) for text in texts):
        yield "some ratings have a decimal comma; write 3.5, not 3,5."
    if any(re.fullmatch(r"\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.*", text) for text in texts):
        yield "some ratings look like dates; name the column of ratings with --columns rating=NAME."


def _hints_of_ids(column: Any, codes: np.ndarray) -> list[str]:
    """Whole numbers that are no ids, as one hole in the column would have rounded them."""
    if isinstance(column, Encoded):  # of a matrix or of several files, where it kept ids alone
        return []
    lost = np.flatnonzero(codes < 0)[:1000]
    column = as_arrow_or_objects(column)
    cells = column.take(lost).to_pylist() if isinstance(column, pa.ChunkedArray) else column[lost]
    texts = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
    if not any(re.fullmatch(r"-?(\d{16,}(\.0*)?|\d(\.\d+)?e\+?\d\d)", text.strip()) for text in texts):
        return []
    return ["some ids are numbers of 16 digits or more, which pandas and NumPy may round; have them as text."]


def _hints_of_catalogue(domain: Domain, unknown: float) -> Iterator[str]:
    if unknown > 0.5:
        yield "most items are not in the catalogue: are ids written the same way there?"
    texts = domain.item_texts.slice(0, 1000).to_pylist()
    for mark in (",", ";", "\t", "|"):
        if sum(mark in text for text in texts) > len(texts) / 2:
            yield f"most ids of the catalogue hold {mark!r}: it is to be a list of ids, one a line, no table."
            return


def _refuse_other_kinds(file: File) -> None:
    """Files that no column names will make a table of, by how they begin: say what they are."""
    with file.stream() as stream:
        head = stream.read(4096)
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise InputError(f"{file.path!r} looks like a spreadsheet (Excel); save it as CSV or Parquet.")
    if head.lstrip().startswith(b"{"):
        raise InputError(f"{file.path!r} looks like JSON; write it as CSV or Parquet, a row a rating.")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the head may end within a letter
    except UnicodeDecodeError:
        if not head.startswith(b"\x1f\x8b"):
            raise InputError(f"{file.path!r} is not UTF-8 text, perhaps Latin-1; save it as UTF-8.") from None
