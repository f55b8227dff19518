"""Files with one name, that survive a power cut, that only their owner can read, or that a process holds."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

from hushrec.errors import HushrecError, InputError

#: The mounts that this process sees, on Linux only.
_MOUNTS = Path("/proc/self/mountinfo")


def content_of(path: Any, what: str, refusal: type[InputError] = InputError, **about: Any) -> bytes:
    """Return the bytes of a file, or refuse it in one sentence."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        sentence = f"{what} {str(path)!r} cannot be read ({error.strerror}); check the path."
        raise refusal(sentence, **about) from None


def the_path(path: Any, what: str, refusal: type[HushrecError] = InputError) -> Path:
    """Return a path without links and `~`, so that a file or folder that keeps a promise has one name."""
    try:
        if not str(path).strip():
            raise ValueError("it is blank")
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise refusal(f"{what} {str(path)!r} could not be used ({error}); check the path.") from None


def check_only_name(
    path: Path, what: str, refusal: type[HushrecError] = InputError, beside: Sequence[Path] = ()
) -> None:
    """Refuse a file or folder that processes can change under two names.

    These are links, and files mounted apart from their folder: a log, a lock or a new version would be next
    to one name only. `beside` are its logs and locks.
    """
    mounts = _mounts()
    for part in (path, *beside):
        try:
            found = part.lstat()
        except FileNotFoundError:
            continue
        alone = part != path or stat.S_ISREG(found.st_mode)  # a folder may be mounted
        apart = [
            name for name in mounts if name.startswith(f"{part}{os.sep}") or (alone and name == str(part))
        ]
        called = f"{what} {str(part)!r}"
        if stat.S_ISLNK(found.st_mode):
            raise refusal(f"{called} is a link; put the file or folder itself in its place.")
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise refusal(
                f"{called} has a second name (a hard link), under which its changes can be missed; remove the"
                " other name, and make backups by copying."
            )
        if apart:
            raise refusal(
                f"{called} is mounted apart from its folder ({apart[0]!r}), so other processes can miss its"
                " changes; mount the whole folder."
            )


def _mounts() -> list[str]:
    try:
        lines = os.fsdecode(_MOUNTS.read_bytes()).splitlines()
    except OSError:
        return []
    return [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines]


def sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to the disk too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def private_file(path: Path) -> BinaryIO:
    """Open a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


@contextmanager
def whole(draft: Path, target: Path) -> Iterator[BinaryIO]:
    """Open a private file as `draft` that gets the name `target` when it is whole on the disk."""
    try:
        with private_file(draft) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


#: Locked files of this process, which a forked child must not keep locked.
_held: "WeakSet[BinaryIO]" = WeakSet()


def hold(path: Path) -> BinaryIO | None:
    """Open and lock a file until it is closed or the process dies; return None if it is locked already.

    The kernel keeps the lock, so it is seen from other containers, and no process id is compared.
    """
    file = path.open("r+b")  # over NFS only a file that is open for writing can be locked
    try:
        import fcntl
    except ImportError:  # Windows renames no file that is open
        file.close()
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        file.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    _held.add(file)
    return file


def is_held(path: Path) -> bool:
    """Return False only where no process holds a file."""
    try:
        import fcntl
    except ImportError:
        with suppress(FileNotFoundError, PermissionError):
            path.unlink()
        return path.exists()
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _let_go() -> None:
    for file in _held:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
