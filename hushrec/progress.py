"""Bars that say how far something is, to whoever may see it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(wanted: bool, total: int, what: str, unit: str) -> Iterator[Callable[[int], object]]:
    """A function that moves a bar on; one that does nothing where none is wanted."""
    if not wanted:
        yield lambda count: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=what, unit=unit, unit_scale=True) as bar:
        yield bar.update
