"""Progress bars. They show no number that depends on private rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

#: For rows, since their number is private.
_UNCOUNTED = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


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
        At which the bar ends.
    what : str
    unit : str
        The unit, which must be public; without it the bar shows a percentage only.
    """
    if not wanted:
        yield lambda count, now="": None
        return
    from tqdm.auto import tqdm

    options = {"unit": unit} if unit else {"bar_format": _UNCOUNTED}
    with tqdm(total=total, desc=what, **options) as bar:

        def advance(count: int, now: str = "") -> None:
            if now:
                bar.set_postfix_str(now)
            bar.update(count)

        yield advance
