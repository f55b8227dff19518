"""Files that survive a power cut."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to the disk too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
