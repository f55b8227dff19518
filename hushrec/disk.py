"""Files that survive a power cut, and files that are their owner's alone."""

import os
from pathlib import Path
from typing import BinaryIO


def sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to the disk too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def private_file(path: Path) -> BinaryIO:
    """A new file that nobody but its owner can read, in the place of the one that was there."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
