"""Files after a power cut: those that were synced, under names that were synced."""

import os
import stat
from pathlib import Path


class Disk:
    """Records syncs and renames, in order; writing and SQLite's own syncs are unchanged.

    Attributes
    ----------
    events : list of (str, str)
        ("named", a file's new name), ("safe", a name whose content and folder are on the disk), and events
        that a test adds.
    """

    def __init__(self, monkeypatch) -> None:
        self.events: list[tuple[str, str]] = []
        self._synced: dict[int, int] = {}  # size of a file, by its number, when it was synced
        self._waiting: dict[int, list[str]] = {}  # names of synced files in a folder that was not, yet
        fsync, replace = os.fsync, Path.replace

        def synced(handle: int) -> None:
            fsync(handle)
            status = os.fstat(handle)
            self._synced[status.st_ino] = status.st_size
            for name in self._waiting.pop(status.st_ino, ()):
                self.events.append(("safe", name))

        def named(path: Path, target: Path) -> Path:
            status = path.stat()
            found = replace(path, target)
            self.events.append(("named", Path(target).name))
            known = self._synced.get(status.st_ino)
            if known is not None and (stat.S_ISDIR(status.st_mode) or known == status.st_size):
                folder = Path(target).parent.stat().st_ino
                self._waiting.setdefault(folder, []).append(Path(target).name)
            return found

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(Path, "replace", named)

    def on_disk(self, path: Path) -> bool:
        """Return whether all that a file holds was synced."""
        status = path.stat()
        return self._synced.get(status.st_ino) == status.st_size

    def tell(self, monkeypatch, owner, name: str) -> None:
        """Add calls of a function to the events."""
        function = getattr(owner, name)

        def called(*arguments, **options):
            self.events.append((name, ""))
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, called)

    def named_in_vain(self) -> list[str]:
        """Names after which something else was done, or nothing, before they were safe."""
        following = [*self.events[1:], ("", "")]
        return [
            name for (kind, name), after in zip(self.events, following)
            if kind == "named" and after != ("safe", name)
        ]  # fmt: skip
