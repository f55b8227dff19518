"""Notes that a server or a device must not lose: files in a folder, each written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically

#: Bytes before a share in the file of a round: a digest of what follows, and the length of the device's name.
_HEAD, _DIGEST = 18, 16


class Book:
    """A folder of small files, its owner's alone; what was put there survives a power cut.

    Parameters
    ----------
    path : path
        Made where it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot make the folder {str(path)!r} ({error.strerror}).") from None

    def get(self, name: str) -> bytes | None:
        """Return what is kept under a name; None where nothing is."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"Cannot read {str(self.path / name)!r} ({error.strerror}).") from None

    def put(self, name: str, content: bytes) -> None:
        """Keep something, in the place of what was there."""
        write_atomically(self.path / name, [content])

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder: two processes on one would answer twice, or count shares twice."""
        with (self.path / "lock").open("ab") as file:
            try:
                _lock(file.fileno())
            except OSError:
                raise InputError(
                    f"Another process is at work in the folder {str(self.path)!r}; let it end first."
                ) from None
            yield

    def drop(self, name: str) -> None:
        """Keep something no longer."""
        (self.path / name).unlink(missing_ok=True)


def _lock(handle: int) -> None:
    """Hold an open file until it is closed, also by a kill; OSError where somebody else does."""
    try:
        import fcntl
    except ImportError:
        import msvcrt  # Windows has this instead

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Shares:
    """The shares of one round, one after the other in a file.

    They are there after a kill of the process. After a power cut some may not be, and their devices are as if
    they had not answered, until :meth:`seal` has brought all to the disk.

    Parameters
    ----------
    path : path
    share_bytes : int
        Of each.
    """

    def __init__(self, path: Path, share_bytes: int) -> None:
        self._path, self._bytes = path, share_bytes
        self._file = path.open("a+b")
        self._digests: dict[str, bytes] = {}
        end = self._read(lambda name, share: None)
        self._file.truncate(end)  # a share that was cut short was not acknowledged

    def __len__(self) -> int:
        return len(self._digests)

    @property
    def devices(self) -> list[str]:
        """Whose shares are there."""
        return sorted(self._digests)

    def take(self, device: str, share: bytes) -> bool:
        """Keep a device's share; False where there is another one of it."""
        name = device.encode()
        digest = _digest(name, share)
        if device not in self._digests:
            self._file.write(b"".join([digest, len(name).to_bytes(2, "little"), name, share]))
            self._file.flush()
            self._digests[device] = digest
        return self._digests[device] == digest

    def seal(self) -> None:
        """Bring all of them to the disk."""
        os.fsync(self._file.fileno())

    def each(self, among: Collection[str], then: Callable[[bytes], None]) -> None:
        """Hand the shares of some devices to a function, one after the other."""
        self._read(lambda name, share: then(share) if name in among else None)

    def remove(self) -> None:
        """Forget all shares."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _read(self, then: Callable[[str, bytes], None]) -> int:
        """Go through the file; where its last whole share ends."""
        end = 0
        with self._path.open("rb") as file:
            while len(head := file.read(_HEAD)) == _HEAD:
                name = file.read(int.from_bytes(head[_DIGEST:], "little"))
                share = file.read(self._bytes)
                if len(share) != self._bytes or _digest(name, share) != head[:_DIGEST]:
                    break
                self._digests[name.decode()] = head[:_DIGEST]
                then(name.decode(), share)
                end = file.tell()
        return end


def _digest(name: bytes, share: bytes) -> bytes:
    return hashlib.sha256(name + share).digest()[:_DIGEST]
