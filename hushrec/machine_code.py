"""Compile functions with numba; keep the machine code on disk if a folder is writable.

numba is loaded when the first of them is called. Only this module chooses the folder of the machine code.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("hushrec.machine_code")
_lock = threading.RLock()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called; it runs without Python's lock."""

    @cache
    def kernel() -> Any:
        with _lock:
            return _dispatcher(function)

    def call(*arguments: Any) -> Any:
        return kernel()(*arguments)

    return call


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function into the compiled ones that call it."""
    return _jit(function, None, no_cpython_wrapper=True)


def _dispatcher(function: Callable[..., Any]) -> Any:
    source = Path(function.__code__.co_filename)
    folder = _folder() if source.is_file() else None
    dispatcher = _jit(function, folder, cache=folder is not None)
    if folder is not None:
        kept = dispatcher._cache  # noqa: SLF001
        kept._cache_file = _files()(kept._cache_file)  # noqa: SLF001
        kept.load_overload = partial(_loaded, kept)
    return dispatcher


def _loaded(kept: Any, signature: Any, context: Any) -> Any:
    """Load a function's machine code; numba would first load all that it can compile, in 0.2 s."""
    from numba.core.runtime import rtsys

    rtsys.initialize(context)
    return kept._load_overload(signature, context)  # noqa: SLF001


@cache
def _files() -> Any:
    from numba.core.caching import IndexDataCacheFile

    class Files(IndexDataCacheFile):
        """A function's files, each with a digest; those that cannot be read or written do not exist."""

        def __init__(self, of_numba: Any) -> None:
            vars(self).update(vars(of_numba))
            # numba numbers the files: two processes that compile at once would write the same ones
            self._data_name_pattern = f"{uuid.uuid4().hex[:8]}-{self._data_name_pattern}"

        def load(self, key: Any) -> Any:
            try:
                return super().load(key)
            except Exception:  # a power cut leaves anything
                with suppress(OSError):
                    self.flush()
                return None

        def save(self, key: Any, data: Any) -> None:
            with suppress(OSError):  # the disk is full; the machine code is in memory
                super().save(key, data)

        @contextmanager
        def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
            with super()._open_for_write(path) as file:
                yield (written := io.BytesIO())
                file.write(_with_digest(written.getvalue()))

        def _load_index(self) -> Any:
            _check(self._index_path)
            return super()._load_index()

        def _load_data(self, name: str) -> Any:
            _check(self._data_path(name))
            return super()._load_data(name)

    return Files


def _with_digest(content: bytes) -> bytes:
    """Append a digest, which unpickling does not read."""
    return content + hashlib.sha256(content).digest()


def _check(path: str) -> None:
    with suppress(FileNotFoundError):
        raw = Path(path).read_bytes()
        if raw != _with_digest(raw[: -hashlib.sha256().digest_size]):
            raise ValueError("a file of machine code is damaged")


def _jit(function: Callable[..., Any], folder: Path | None, **options: Any) -> Any:
    # numba compiles some of its functions when it is loaded
    if os.environ.pop("NUMBA_DISABLE_JIT", "0") != "0":
        _LOG.warning("NUMBA_DISABLE_JIT is ignored in this process: the kernels exist as machine code only.")
    import numba

    config: Any = numba.config
    config.DISABLE_JIT = 0
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        njit: Any = numba.njit
        return njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    finally:
        config.CACHE_DIR = before


@cache
def _folder() -> Path | None:
    name = f"hushrec-{_digest()}"
    folder = next((parent / name for parent in _parents() if _holds(parent / name)), None)
    if folder is None:
        _LOG.info(
            "Compiling kernels in memory, at every start: no folder for them is writable;"
            " set NUMBA_CACHE_DIR to one."
        )
    elif next(folder.rglob("*.nbi"), None) is None:
        _LOG.info("Compiling kernels, once after installation; this takes a few seconds.")
    return folder


def _digest() -> str:
    """Return a digest of all kernels: machine code contains inlined functions of other files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).with_name("kernels").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _parents() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named)
    yield Path(__file__).with_name("__pycache__")
    with suppress(RuntimeError):  # this user has no home
        windows = sys.platform == "win32"
        cache_folder = os.environ.get("LOCALAPPDATA" if windows else "XDG_CACHE_HOME")
        yield Path(cache_folder or Path.home() / ("AppData/Local" if windows else ".cache"))


def _holds(folder: Path) -> bool:
    """Check that only this user can write there, because machine code is loaded unchecked."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return os.name != "posix" or folder.stat().st_uid == os.getuid()
    except OSError:
        return False
