"""Show which rows of a table training uses, and why it does not use others; private."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushrec.checks import plural, shown
from hushrec.data.arrays import typed_or_objects
from hushrec.data.columns import Columns, Several, find_columns, last_position, with_times
from hushrec.data.domain import Domain
from hushrec.data.files import (
    WITH_HEADER,
    file_format,
    open_text,
    parquet_schema,
    read_files,
    readable,
    with_keys,
)
from hushrec.data.ids import NO_TEXT, Encoded, encode_ids, is_rounded, positions_of
from hushrec.data.layouts import layout_of
from hushrec.data.ratings_builder import build, has_value, read_rows, within_range
from hushrec.data.readers import in_memory, read_columns
from hushrec.data.sources import files_at, refuse_other_content
from hushrec.data.textfiles import MAX_LINE_BYTES
from hushrec.data.times import HOW_TO_WRITE, NO_TIME, unit_of
from hushrec.errors import InputError

PRIVATE_LOOK = "PRIVATE: computed from the ratings without noise, for the curator alone; nothing was charged"
_ADVICE = (
    "Do not use these figures to declare the catalogue or the range: they come from private ratings.\n"
    "Declare the scale that your form allows and the items that your shop sells."
)
#: Scales that rating forms usually have.
_SCALES = ((0, 1), (1, 5), (0, 5), (1, 10), (0, 100))
_UNKNOWN = "the item is not in the catalogue"
_ADDED = "a purchase of an item that the user bought again; quantities are added"
_RETURNED = "the quantities add up to 0 or less"
_NAMED = 5  # rows named for each reason
_SHOWN = 21  # different ratings shown one by one; more are put in bins
_BAR = 40  # characters of the longest bar: half a terminal


@dataclass(frozen=True)
class Dropped:
    """Rows that are not used; the first are lines of a text file, else rows. ``such``: ids of the first."""

    why: str
    count: int
    first: tuple[int, ...]
    such: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    """The result of `Ratings.check`; private.

    Attributes
    ----------
    columns : dict of str to str
        The column of each role.
    not_read : tuple of str
        The other columns.
    format : str or None
        A table in memory has None.
    counted : {"line", "row"}
        Meaning of the numbers of dropped rows.
    rows, usable : int
        Rows, and ratings that a training would use.
    dropped : tuple of Dropped
    users, users_over_cap, items_unseen : int
        Users with a usable rating, those above the cap, and items without a rating.
    histogram : tuple of (low, high, count)
        Bars of the numeric ratings; low equals high where a bar is one value.
    scales : tuple of (low, high)
        The usual scales that contain all numeric ratings.
    without_time : int or None
        Usable ratings with an unreadable time, or None without a column of times.
    hints : tuple of str
        Possible faults of the file.
    tables : tuple of (str, Preview)
        The tables of a list, by name; the other fields are then of all together.
    in_all : int
        Users who are in every table of a list.
    """

    columns: dict[str, str]
    not_read: tuple[str, ...]
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
    tables: tuple[tuple[str, Preview], ...] = ()
    in_all: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"note": PRIVATE_LOOK, **asdict(self)}

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        lines = [f"{PRIVATE_LOOK}.", ""]
        for name, table in self.tables:
            lines += [name, *(f"  {line}" for line in table.lines())]
        if self.tables:
            used = f"{plural(self.usable, 'rating')} of {plural(self.users, 'user')}"
            lines.append(f"Together  {used}; {plural(self.in_all, 'user')} in every table")
        lines += [] if self.tables else self.lines()
        lines.append(f"Cap       {plural(self.users_over_cap, 'user')} with more than {self.cap:,} ratings")
        lines.append(f"Items     {self.items_unseen:,} of the {self.n_items:,} declared without a rating")
        return "\n".join([*lines, "", *(f"Hint: {hint}" for hint in self.hints), _ADVICE])

    def lines(self) -> list[str]:
        named = ", ".join(f"{role} = {name!r}" for role, name in self.columns.items())
        lines = []
        if self.format:
            lines.append(f"Format    {self.format.strip() or repr(self.format)}")
        if named:
            lines.append(f"Columns   {named}")
        if self.not_read:
            others = ", ".join(map(repr, self.not_read[:_NAMED])) + ", ..." * (len(self.not_read) > _NAMED)
            way = "; --columns quantity=NAME reads purchases and returns" * ("quantity" not in self.columns)
            lines.append(f"Not read  {others}{way}")
        lines.append(f"Rows      {self.rows:,} read, {self.usable:,} used, of {plural(self.users, 'user')}")
        for rows in self.dropped:
            numbers = ", ".join(map(str, rows.first)) + (", ..." if rows.count > len(rows.first) else "")
            at = f" ({self.counted}{'s' * (rows.count > 1)} {numbers})" if rows.first else ""
            such = f", such as {', '.join(map(shown, rows.such))}" if rows.such else ""
            what = rows.why if rows.why == _ADDED else f"not used: {rows.why}"
            lines.append(f"  {rows.count:>10,} {what}{such}{at}")
        if self.without_time is not None:
            how = f"; {HOW_TO_WRITE}" * bool(self.without_time)
            lines.append(f"Times     unreadable or missing in {self.without_time:,} of the rows{how}")
        if self.histogram:
            lines += ["Ratings", *_bars(self.histogram)]
            fitting = ", ".join(f"{low:g} to {high:g}" for low, high in self.scales)
            lines.append(f"Scales    {fitting or 'none of the usual ones'}: these hold all ratings")
        return lines


def preview(
    source: Any, domain: Domain, columns: Any = None, format: str | None = None, implicit: bool = False
) -> Preview:
    """See `hushrec.data.Ratings.check`."""
    implicit = implicit or domain.likes
    if isinstance(source, list) and len(source) == 1:
        source = source[0]
    if not isinstance(source, list):
        return _preview(source, domain, columns, format, implicit)[0]
    asked = Several(columns)
    tables, texts = zip(*(_preview(table, domain, asked, format, implicit) for table in source), strict=True)
    cap, uncapped = domain.max_ratings_per_user, replace(domain, max_ratings_per_user=domain.n_items)
    rows = read_rows(source, uncapped, columns, format, implicit)
    counts = np.diff(rows.matrix.indptr)
    paths = (
        str(table) if isinstance(table, str | Path) else f"table {k}" for k, table in enumerate(source, 1)
    )
    named = tuple(zip(paths, tables, strict=True))
    return replace(
        tables[0],
        columns={},
        not_read=(),
        rows=sum(table.rows for table in tables),
        usable=int(np.minimum(counts, cap).sum()),
        dropped=(),
        users=len(counts),
        users_over_cap=int((counts > cap).sum()),
        items_unseen=domain.n_items - len(np.unique(rows.matrix.indices)),
        histogram=(),
        scales=(),
        hints=tuple(f"{name}: {hint}" for name, table in named for hint in table.hints),
        tables=named,
        in_all=len(set.intersection(*(set(each.to_pylist()) for each in texts))),
    )


def _preview(
    source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool
) -> tuple[Preview, pa.Array]:
    """Return the preview of one table, and its users with a usable row."""
    layout = layout_of(str(source), domain) if isinstance(source, str | Path) else ""
    with _naming(layout):
        reading = _Read(source, domain, columns, format, implicit)
    table, numbers = reading.table, reading.numbers
    users, items = encode_ids(table.users), encode_ids(table.items)
    positions = positions_of(items, domain.item_texts)
    entries = table._replace(users=users, items=positions, ratings=within_range(table.ratings.copy(), domain))
    reasons = {
        "no user id, or one of over 1,024 bytes": users.codes < 0,
        "no item id, or one of over 1,024 bytes": items.codes < 0,
        _UNKNOWN: positions < 0,
        **_without_value(table.ratings, entries, domain, implicit),
    }
    dropped, used = reading.malformed(), np.ones(len(numbers), dtype=bool)
    for why, mask in reasons.items():
        codes = items.codes[mask & used][: _NAMED if why == _UNKNOWN else 0]
        such = dict.fromkeys(items.texts[int(code)].as_py() for code in codes)
        dropped += _dropped(why, numbers[mask & used], *such)
        used &= ~mask
    entries = entries.where(used)
    rows = build(domain, entries)
    pairs, again, returned = _pairs(entries, domain.n_items)
    is_bought = np.isnan(entries.ratings[again])  # with a quantity, or it would not be used
    once = "the user likes the item already" if domain.likes else "the user rated the item again"
    repeats = {_ADDED: again[is_bought], once: again[~is_bought], _RETURNED: returned}
    for why, places in repeats.items():
        dropped += _dropped(why, numbers[used][places])
    per_user = np.bincount(pairs // domain.n_items)
    if over := int((per_user - np.minimum(per_user, domain.max_ratings_per_user)).sum()):
        dropped.append(Dropped("beyond the cap", over, ()))
    ratings = table.ratings[np.isfinite(table.ratings)]
    found = Preview(
        columns=reading.names,
        not_read=tuple(name for name in reading.all_names if name not in reading.names.values()),
        format=reading.format,
        counted="line" if reading.is_text else "row",
        rows=len(reading.lines),
        usable=rows.matrix.nnz,
        dropped=tuple(dropped),
        users=rows.matrix.shape[0],
        users_over_cap=int((per_user > domain.max_ratings_per_user).sum()),
        cap=domain.max_ratings_per_user,
        items_unseen=domain.n_items - len(np.unique(pairs % domain.n_items)),
        n_items=domain.n_items,
        histogram=() if implicit else _histogram(ratings),
        scales=tuple(s for s in _SCALES if len(ratings) and s[0] <= ratings.min() and ratings.max() <= s[1]),
        without_time=None if reading.times is None else int((reading.times[used] == NO_TIME).sum()),
        hints=(
            *filter(None, [layout]),
            *reading.hints_of_fields(),
            *_hints(reading, float((positions < 0).mean()) if len(positions) else 0),
            *reading.hints_of_ids("user", users),
            *reading.hints_of_ids("item", items),
        ),
    )
    return found, rows.user_texts


@contextlib.contextmanager
def _naming(layout: str) -> Iterator[None]:
    """Name the layout of a file instead of a column that it lacks."""
    try:
        yield
    except InputError as error:
        if not layout or error.parameter != "columns":
            raise
        raise InputError(layout.replace("\n  ", " `") + "`") from None


def _without_value(
    read: np.ndarray, entries: Columns, domain: Domain, implicit: bool
) -> dict[str, np.ndarray]:
    """Return the rows that hold nothing usable, by reason."""
    is_usable = has_value(entries)
    if entries.quantities is not None:
        return {"neither a rating nor a quantity": ~is_usable}
    missing = "the entry is not above 0" if implicit else "the rating is missing or no number"
    outside = f"the rating is not from {domain.low:g} to {domain.high:g}"
    return {missing: np.isnan(read), outside: ~is_usable}


def _dropped(why: str, numbers: np.ndarray, *such: str) -> list[Dropped]:
    return [Dropped(why, len(numbers), tuple(numbers[:_NAMED].tolist()), such)] if len(numbers) else []


def _pairs(entries: Columns, n_items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return used pairs of user and item, rows replaced by a later one, and returned rows."""
    cells = entries.users.codes.astype(np.int64) * n_items + entries.items
    is_rated = ~np.isnan(entries.ratings)
    order = np.lexsort((*(key for key in (entries.times, is_rated) if key is not None), cells))
    is_last = np.append(cells[order[1:]] != cells[order[:-1]], True)[: len(order)]
    again, last = np.sort(order[~is_last]), order[is_last]
    if entries.quantities is None:
        return cells[last], again, last[:0]
    total = np.zeros(len(last), np.int64)
    np.add.at(total, np.searchsorted(cells[last], cells), entries.quantities)
    is_used = is_rated[last] | (total > 0)
    return cells[last[is_used]], again, np.sort(last[~is_used])


class _Read:
    """A source with the numbers of its rows."""

    def __init__(self, source: Any, domain: Domain, columns: Any, format: str | None, implicit: bool) -> None:
        self.files = files_at(str(source)) if isinstance(source, str | Path) else []
        alone = self.files[0] if len(self.files) == 1 else None
        self.format = file_format(alone, format, columns) if alone else format
        self.is_text = alone is not None and not alone.keys and self.format != "parquet"
        self.columns, self.header, self.source = columns, 0, in_memory(source)
        names = list(getattr(self.source, "column_names", getattr(self.source, "columns", ())))
        names = list(self.source) if isinstance(self.source, Mapping) else names
        if alone and self.format == "parquet":
            names = with_keys(parquet_schema(alone).names, alone)
        elif self.is_text:
            with self._opened() as (names, _, _, self.header, _):
                pass
        self.n_fields = len(names)
        self.implicit = implicit
        self._asked = with_times(names, columns)
        with readable(alone, "table") if alone else contextlib.nullcontext():
            chosen = find_columns(names, self._asked, implicit, private_look=True) if names else {}
        self.table = read_columns(self.source, self._asked, self.format, implicit, domain.item_texts)
        self.times = self.table.times
        if self._asked is not columns:  # a training does not ask for them
            self.table = self.table._replace(times=None)
        self.rating_words = self._texts(chosen.get("rating"))
        is_named = bool(self.header or not self.is_text)
        self.all_names = list(map(str, names)) if is_named else []
        self.names = {role: str(name) for role, name in chosen.items()} if is_named else {}
        lines = self.table.lines if self.is_text else None
        self.lines = np.ones(len(self.table.ratings), dtype=bool) if lines is None else lines
        self.numbers = self.header + 1 + np.flatnonzero(self.lines)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        (file,) = self.files
        with readable(file, f"{self.format} file"):
            if not last_position(self.columns):
                refuse_other_content(file)
            with file.stream() as stream:
                yield open_text(stream, str(self.format), self.columns)

    def _again(self, implicit: bool, **named: Any) -> Columns | None:
        """Read again with other columns, or return None where they cannot be read."""
        with contextlib.suppress(InputError):
            return read_columns(self.source, {**(self._asked or {}), **named}, self.format, implicit)
        return None

    def _texts(self, rating: Any) -> list[str]:
        if rating is None or not np.isnan(self.table.ratings).any():
            return []
        again = self._again(True, item=rating)
        return [] if again is None else encode_ids(again.items).texts.to_pylist()

    def malformed(self) -> list[Dropped]:
        why = f"the line has fewer than {plural(self.n_fields, 'field')}"
        if not last_position(self.columns):
            other = "the header" if self.header else f"{self.format}, which has {self.n_fields}"
            why = f"the line has another number of fields than {other}"
        return _dropped(why, self.header + 1 + np.flatnonzero(~self.lines))

    def hints_of_fields(self) -> Iterator[str]:
        n_malformed = len(self.lines) - len(self.numbers)
        if not len(self.lines):
            yield "the table has no rows below its header."
        elif n_malformed > len(self.numbers):
            with self._opened() as (_, delimiter, blocks, *_):
                lines = (line for block in blocks for line in block.split(b"\n")[:-1])
                most = Counter(_n_fields(line, delimiter.encode()) for line in lines).most_common(1)[0][0]
            fields, known = plural(most, "field"), self.n_fields
            if last_position(self.columns) or most == 1:
                yield f"most lines have {fields}: is the delimiter another one? Pass it with --format."
            elif self.format in WITH_HEADER:
                yield f"most lines have {fields} and the header has {known}; write a name for each."
            else:
                yield (
                    f"most lines have {fields} where {self.format} has {known}; write a first line such as"
                    " user,item,rating with the same delimiter, and pass --format csv."
                )

    def hints_of_ids(self, role: str, ids: Encoded) -> Iterator[str]:
        no_text = pc.starts_with(ids.texts, NO_TEXT + "x").to_numpy(zero_copy_only=False)
        if n_rows := int(np.append(no_text, False)[ids.codes].sum()):
            yield (
                f"the {role} id is not UTF-8 text in {plural(n_rows, 'row')}, perhaps Latin-1; save the file"
                " as UTF-8."
            )
        cells = self._cells_without_id(f"{role}s") if (ids.codes < 0).any() else ()
        if rounded := list(filter(is_rounded, cells)):
            how = "as text" if self.is_text else f"""with frame["{role}"].astype("string")"""
            yield (
                f"the {role} id is a number whose last digits a spreadsheet or a float has lost, such as"
                f" {_quoted(rounded[0])}, in {plural(len(rounded), 'row')}; write these ids {how} before they"
                " become floats, or read them from Parquet."
            )

    def _cells_without_id(self, role: str) -> Iterator[Any]:
        """Yield the cells as given; joined chunks of a file have ids only."""
        chunks: Iterable[Columns] = [self.table]
        if self.files:
            chunks = read_files(self.files, self._asked, self.format, self.implicit)
        for column in (getattr(chunk, role) for chunk in chunks):
            column = self.source[0] if isinstance(column, Encoded) else column  # of a matrix
            lost, cells = np.flatnonzero(encode_ids(column).codes < 0), typed_or_objects(column)
            yield from cells.take(lost).to_pylist() if isinstance(cells, pa.ChunkedArray) else cells[lost]


def _quoted(cell: Any) -> str:
    return shown(cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell)


def _n_fields(line: bytes, delimiter: bytes) -> int:
    if b'"' not in line or len(delimiter) > 1:
        return line.count(delimiter) + 1
    text = line[:MAX_LINE_BYTES].decode(errors="replace")
    return len(next(csv.reader([text], delimiter=delimiter.decode())))


def _histogram(ratings: np.ndarray) -> tuple[tuple[float, float, int], ...]:
    values, counts = np.unique(ratings, return_counts=True)
    if len(values) <= _SHOWN:
        return tuple(
            (float(str(value)), float(str(value)), int(count))
            for value, count in zip(values, counts, strict=True)
        )
    counts, edges = np.histogram(ratings.astype(np.float64), bins=10)
    return tuple(
        (float(low), float(high), int(n)) for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
    )


def _bars(histogram: tuple[tuple[float, float, int], ...]) -> list[str]:
    names = [f"{low:g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high, _ in histogram]
    width, most = max(map(len, names)), max(count for *_, count in histogram)
    return [
        f"  {name:>{width}} {count:>12,} {'#' * round(_BAR * count / most)}".rstrip()
        for name, (*_, count) in zip(names, histogram, strict=True)
    ]


def _hints(reading: _Read, unknown: float) -> Iterator[str]:
    if any(re.match(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}", word) for word in reading.rating_words):
        yield "some ratings look like dates; name the column of ratings with --columns rating=NAME."
    if unknown > 0.5:
        yield "most items are not in the catalogue: are ids written the same way there?"
    if reading.times is not None and len(reading.times) and (reading.times == NO_TIME).all():
        yield f"no time can be read; {HOW_TO_WRITE}."
    elif reading.times is not None and (unit := unit_of(reading.times)) != "seconds":
        yield (
            f"the times look like {unit}, and dates are compared as seconds since 1970; divide the times or"
            " write them as dates."
        )
