"""Small tables as text, and with bars for notebooks; text escaped for Markdown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

_COLOURS = {"spent": "#c2410c", "reserved": "#d9a400", "free": "#15803d", "left": "#15803d"}
_BAR = "display:inline-block;height:0.8em;vertical-align:baseline;background:"
_WIDE = 240


def markdown(text: str) -> str:
    """Return text on one line, escaped for Markdown with or without HTML."""
    return " ".join(re.sub(r"([\\`*_{}\[\]()<>#|!~&$:@^-])", r"\\\1", text).split())


def aligned(rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """Return rows as lines of columns; those at ``left`` begin in line, the others end in line."""
    taken = [[display_width(cell) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*taken, strict=True)]
    cells = [
        [
            cell + " " * (width - used) if at in left else " " * (width - used) + cell
            for at, (cell, used, width) in enumerate(zip(row, sizes, widths, strict=True))
        ]
        for row, sizes in zip(rows, taken, strict=True)
    ]
    return ["  ".join(row).rstrip() for row in cells]


def display_width(text: str) -> int:
    """Return the columns that a text takes on a terminal: two for a wide character, none for a mark."""
    if text.isascii():
        return len(text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return len(text) - marks + sum(unicodedata.east_asian_width(character) in "WF" for character in text)


def cut(text: str, columns: int) -> str:
    """Return the beginning of a text that takes more columns, with an ellipsis."""
    if display_width(text) <= columns:
        return text
    start = text[:columns]
    while display_width(start) >= columns:
        start = start[:-1]
    return f"{start}…"


def table(heading: str, rows: Iterable[Sequence[str]], *notes: str) -> str:
    """A heading, rows of which the first is the head, and sentences below; no cell is read as HTML."""
    head, *body = rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return _page(heading, lines, notes)


def shares(heading: str, parts: Mapping[str, float | None], *notes: str) -> str:
    """A bar of parts of one whole, each named with its percentage."""
    known = {name: part for name, part in parts.items() if part is not None}
    bar = "".join(
        f'<span style="{_BAR}{_COLOURS.get(name, "#64748b")};width:{_WIDE * part:.0f}px"></span>'
        for name, part in known.items()
    )
    names = ", ".join(f"{escape(name)} {part:.1%}" for name, part in known.items())
    return _page(heading, [f"<td>{bar}</td><td>{names}</td>"], notes)


def bars(heading: str, head: Sequence[str], rows: Iterable[tuple[Sequence[str], float]], *notes: str) -> str:
    """Rows with a bar each, as long as their number is of the largest."""
    rows = list(rows)
    most = max((value for _, value in rows if value > 0), default=1.0)
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in (*head, ""))]
    for cells, value in rows:
        wide = _WIDE * value / most if value > 0 else 0.0
        bar = f'<td style="text-align:left"><span style="{_BAR}#2563eb;width:{wide:.0f}px"></span></td>'
        lines.append("".join(f"<td>{escape(cell)}</td>" for cell in cells) + bar)
    return _page(heading, lines, notes)


def _page(heading: str, lines: Iterable[str], notes: Iterable[str]) -> str:
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<p>{escape(heading)}</p><table cellpadding='4'>{body}</table>{below}"
