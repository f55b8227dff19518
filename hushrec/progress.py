"""The width of a terminal, and progress bars. They show no number that depends on private rows."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Protocol


def width() -> int:
    """Return the number of characters of a line, at most 80."""
    return min(80, shutil.get_terminal_size((80, 24)).columns)


class Advance(Protocol):
    """Advance a bar, and show the current step."""

    def __call__(self, count: int, now: str = "") -> object: ...


@contextlib.contextmanager
def progress_bar(wanted: bool, total: int, what: str, unit: str = "") -> Iterator[Advance]:
    """Yield a function that moves a bar on; one that does nothing where none is wanted.

    Parameters
    ----------
    wanted : bool
    total : int
        At which the bar ends; 0 if it is not known.
    what : str
    unit : str
        The unit of `total`, which must be public. Without a unit the bar shows a percentage only.
    """
    if not wanted:
        yield lambda count, now="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    count = f" {{task.completed}}/{{task.total}} {unit}" if unit else ""
    text = (f"{{task.description}}: {{task.percentage:3.0f}}%{count}", "{task.fields[now]}")
    before, after = (TextColumn(part, markup=False) for part in text)
    bar = Progress(
        *(before, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), after),
        console=Console(stderr=True),
        auto_refresh=False,  # no thread, and the same picture for the same steps
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(what, total=total or None, now="")

        def advance(count: int, now: str = "") -> None:
            if now:
                bar.update(task, now=now)
            bar.update(task, advance=count, refresh=True)

        yield advance
