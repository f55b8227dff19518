"""The Dask cluster of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.data.store_files import is_store
from hushrec.errors import InputError

if TYPE_CHECKING:
    from hushrec.engines.dask import Dask

_HELP = "Dask cluster for a store, as tls://10.0.0.1:8786."
Scheduler = Annotated[str, Parameter(metavar="ADDRESS", help=_HELP)]
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


@contextmanager
def cluster(scheduler: str | None, *sources: str) -> Iterator[Dask | None]:
    """Return the engine, connected before any charge, or None without a scheduler."""
    if scheduler is None:
        yield None
        return
    for source in sources:
        if not is_store(source):
            raise InputError(
                f"--scheduler needs a store, and {source!r} is not one; make one with hushrec prepare."
            )
    from hushrec.engines.dask import Dask  # an extra

    if not scheduler.startswith("tls://") and urlsplit(f"//{scheduler.partition('//')[2]}").hostname not in (
        _THIS_MACHINE
    ):
        output.note(
            "Warning: private contributions travel to and from the workers unencrypted; use tls:// and Dask's"
            " certificates."
        )
    with Dask(scheduler) as engine:
        yield engine
