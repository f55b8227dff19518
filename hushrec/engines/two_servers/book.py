"""Files that a server or a node must not lose, each with a digest, and written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hushrec.disk import check_only_name, the_path
from hushrec.errors import InputError
from hushrec.network.messages import Refusal
from hushrec.serving.modelfile import write_atomically

#: Bytes of a digest, and of a node's name among shares: half of SHA-256.
_DIGEST = 16


class Book:
    """A folder of small files for its owner alone."""

    def __init__(self, path: str | Path) -> None:
        self.path = the_path(path, "The folder")
        try:
            check_only_name(self.path, "The folder")
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot make the folder {str(path)!r} ({error.strerror}).") from None

    def get(self, name: str) -> bytes | None:
        try:
            check_only_name(self.path / name, "The file")
            raw = (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"Cannot read {str(self.path / name)!r} ({error.strerror}).") from None
        return _whole(self.path / name, name.encode(), raw)

    def put(self, name: str, content: bytes) -> None:
        write_atomically(self.path / name, [_digest(name.encode(), content), content])

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: two processes would answer twice, or count shares twice."""
        with (self.path / "lock").open("ab") as file:
            try:
                _lock(file.fileno())
            except OSError as error:
                if isinstance(error, (BlockingIOError, PermissionError)):
                    raise InputError(
                        f"Another process uses the folder {str(self.path)!r}; wait until it ends."
                    ) from None
                raise InputError(
                    f"The file system of the folder {str(self.path)!r} has no file locks ({error.strerror});"
                    " pass a folder on a local disk."
                ) from None
            yield


def _lock(handle: int) -> None:
    """Lock an open file until it is closed; raise OSError if another process holds it."""
    try:
        import fcntl
    except ImportError:
        import msvcrt  # Windows has this instead

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Shares:
    """The shares of one round, of equal length, in a file.

    They survive a kill. A power cut may lose those before :meth:`seal`; their nodes have then not answered.
    """

    def __init__(self, path: Path, share_bytes: int, names: Collection[str]) -> None:
        check_only_name(path, "The file")
        self._path, self._bytes = path, _DIGEST + share_bytes
        self._names = {hashlib.sha256(name.encode()).digest()[:_DIGEST]: name for name in names}
        self._keys = {name: key for key, name in self._names.items()}
        self._file = path.open("a+b", buffering=0)  # because a full disk must show in the write
        weakref.finalize(self, self._file.close)
        self._digests: dict[str, bytes] = {}
        self._file.truncate(self._read(lambda name, share: None))

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def nodes(self) -> list[str]:
        return sorted(self._digests)

    def take(self, node: str, share: bytes) -> bool:
        """Keep a share; return False after another one of the node."""
        content = self._keys[node] + share
        digest = _digest(b"share", content)
        if node not in self._digests:
            self._append(digest + content)
            self._digests[node] = digest
        return self._digests[node] == digest

    def _append(self, entry: bytes) -> None:
        end = self._file.seek(0, os.SEEK_END)
        with suppress(OSError):
            if self._file.write(entry) == len(entry):
                return
        self._file.truncate(end)
        raise Refusal(503, "This server's disk has no room for a share; send it again later.")

    def seal(self) -> None:
        os.fsync(self._file.fileno())

    def each(self, among: Collection[str], then: Callable[[bytes], None]) -> None:
        self._read(lambda name, share: then(share) if name in among else None)
        if not self._digests.keys() >= set(among):
            raise _damaged(self._path)

    def remove(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _read(self, then: Callable[[str, bytes], None]) -> int:
        """Read the file; return where its last whole share ends.

        A share that was cut short, or that a power cut left as zeros, was not acknowledged.
        """
        end = 0
        with self._path.open("rb") as file:
            while len(raw := file.read(_DIGEST + self._bytes)) == _DIGEST + self._bytes and any(raw):
                content = _whole(self._path, b"share", raw)
                if (name := self._names.get(content[:_DIGEST])) is not None:
                    self._digests[name] = raw[:_DIGEST]
                    then(name, content[_DIGEST:])
                end = file.tell()
        return end


def _digest(name: bytes, content: bytes) -> bytes:
    return hashlib.sha256(name + b"\0" + content).digest()[:_DIGEST]


def _whole(path: Path, name: bytes, raw: bytes) -> bytes:
    if len(raw) < _DIGEST or _digest(name, raw[_DIGEST:]) != raw[:_DIGEST]:
        raise _damaged(path)
    return raw[_DIGEST:]


def _damaged(path: Path) -> InputError:
    where = f"The file {path.name!r} in the folder {path.parent.name!r}"
    return InputError(f"{where} is damaged; begin a new training, with new folders.")
