"""Output: everything that the commands print goes through here."""

from __future__ import annotations

import json as _json
import math
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushrec.privacy.statement import warning_of_publishing

if TYPE_CHECKING:
    from hushrec.serving.billboard import Billboard


def text(*parts: str) -> None:
    """Print for a reader, who may wait at the other end of a pipe."""
    print("\n".join(parts), flush=True)


def json(payload: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(_json.dumps(plain(payload), allow_nan=False, ensure_ascii=False))


def result(as_json: bool, payload: Mapping[str, Any], *parts: str) -> None:
    """Print what a command found, for a program or for a reader."""
    if as_json:
        json(payload)
    else:
        text(*parts)


def note(line: str) -> None:
    """Tell beside the output."""
    print(line, file=sys.stderr)


def plain(value: Any) -> Any:
    """JSON values: infinity is the string "inf", NaN is null, NumPy scalars are numbers, ids are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def width() -> int:
    """Return how wide a paragraph is: as the terminal, and at most 100 letters."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def folded(words: str) -> list[str]:
    """Return the lines of a paragraph."""
    return textwrap.wrap(words, width(), break_on_hyphens=False)  # --allow-composition is one word


def paragraph(words: str) -> list[str]:
    """A paragraph, if there is anything in it."""
    return ["", *folded(words)] if words else []


def warn_of_publishing(billboard: Billboard, path: str) -> None:
    """Say of a model that nothing protects the ratings in it, before anybody may have its file."""
    if warning := warning_of_publishing(billboard.privacy, path):
        note(warning)


def table(rows: Sequence[Sequence[str]], left: Collection[int]) -> str:
    """Columns of their own widths, under the first row; those in ``left`` begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = ["<" if at in left else ">" for at in range(len(widths))]
    cells = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)


def short(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"
