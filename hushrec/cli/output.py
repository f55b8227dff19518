"""Everything that the commands print.

A command that only prints fails if it cannot print. A command that has written a file or changed a ledger
writes a note to stderr instead (:func:`done`), since a repeated job would be charged again.
"""

from __future__ import annotations

import contextlib
import io
import json as _json
import math
import os
import re
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from hushrec.notebook import aligned
from hushrec.progress import width

if TYPE_CHECKING:
    from hushrec.serving.model import Model


#: Characters that move a terminal's cursor, change its colours or reorder a line.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def open_streams() -> None:
    """Open standard streams that the caller closed; else another file takes their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an id that the terminal cannot show is no error
            stream.reconfigure(errors="backslashreplace")


def close_streams() -> None:
    """Flush; Python's own flush at exit would turn a failure into exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _silence(stream)


def _silence(stream: IO[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def visible(words: str) -> str:
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), words)


def text(*parts: str) -> None:
    """Print for a reader at the other end of a pipe; sentences are folded, tables are not."""
    lines = visible("\n".join(parts)).split("\n")
    shown = [row for line in lines for row in (_sentences(line) or [line])]
    print("\n".join(shown), flush=True)


def _sentences(line: str) -> list[str]:
    """Fold a sentence, but no row of a table and no command to copy."""
    label = match[0] if (match := re.match(r"[A-Z][a-z]+: {2,}", line)) else ""
    rest = line.removeprefix(label)
    if len(line) <= width() or "  " in rest.strip() or re.match(r" |([A-Z][\w ]*: )?hushrec ", rest):
        return []
    return textwrap.wrap(
        rest,
        width(),
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )


def json(payload: Mapping[str, Any]) -> None:
    print(_json.dumps(plain(payload), allow_nan=False), flush=True)


def result(as_json: bool, payload: Mapping[str, Any], *parts: str) -> None:
    if as_json:
        json(payload)
    else:
        text(*parts)


def done(as_json: bool, payload: Mapping[str, Any], *parts: str) -> None:
    try:
        result(as_json, payload, *parts)
    except OSError as error:
        _silence(sys.stdout)
        note(f"Note: the work is done, but standard output cannot be written ({error.strerror}).")


def note(line: str, end: str = "\n") -> None:
    """Print to stderr, if that is possible."""
    try:
        print(visible(line), end=end, file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def plain(value: Any) -> Any:
    """Return JSON values: infinity is "inf", NaN is null, ids are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def paragraph(words: str) -> list[str]:
    return ["", words] if words else []


def warn_of_publishing(trained: Model, path: str) -> None:
    from hushrec.privacy.statement import warning_of_publishing

    if warning := warning_of_publishing(trained.privacy, path):
        note(warning)


def table(rows: Sequence[Sequence[str]], left: Collection[int]) -> str:
    rows = [[" ".join(visible(cell).splitlines()) for cell in row] for row in rows]
    return "\n".join(aligned(rows, left))


def short(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"
