"""The models that a server has, each whole in memory, exchanged when their files are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hushrec.errors import HushrecError, ModelFileError
from hushrec.privacy.statement import warning_of_publishing
from hushrec.serving.billboard import Billboard
from hushrec.serving.modelfile import read

log = logging.getLogger("hushrec.server")

#: What tells a file from the one that was there before: its inode, size and time.
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Served:
    """One model: the bytes of its file, which are published as they are, and what they say."""

    name: str
    content: bytes
    digest: str
    billboard: Billboard


class Models:
    """Models by name; a reader keeps the one that it was given, whatever is exchanged meanwhile.

    Parameters
    ----------
    paths : mapping of str to Path
        The first one is the model that is meant where no name is given.

    Raises
    ------
    ModelFileError
        If one of the files cannot be served.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)
        self._stamps = {name: _stamp(path) for name, path in paths.items()}
        self._served = {name: _read(name, path) for name, path in paths.items()}
        self.default = next(iter(paths))
        #: How many files were taken, and how many refused, since the start.
        self.exchanged = self.refused = 0

    def __getitem__(self, name: str) -> Served:
        return self._served[name]

    def __contains__(self, name: object) -> bool:
        return name in self._served

    def all(self) -> list[Served]:
        """Every model, in the order of the command line."""
        return list(self._served.values())

    def look(self) -> None:
        """Take the files that are new; what cannot be served is logged once, and the old model stays."""
        for name, path in self._paths.items():
            stamp = _stamp(path)
            if stamp == self._stamps[name]:
                continue
            self._stamps[name] = stamp
            try:
                self._served[name] = _read(name, path)
            except (HushrecError, OSError, MemoryError) as error:
                self.refused += 1
                log.error("The old model %s goes on being served: %s", name, error)
            else:
                self.exchanged += 1
                log.warning("Model %s is now the one of digest %s.", name, self._served[name].digest)
                if warning := warning_of_publishing(self._served[name].billboard.privacy, str(path)):
                    log.warning("%s", warning)


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _read(name: str, path: Path) -> Served:
    """Read into memory, since a mapped file that somebody writes into would end the process."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(
            f"Model file {str(path)!r} cannot be read ({error.strerror}); check the path."
        ) from None
    try:
        digest, billboard = read(content).digest, Billboard.from_bytes(content)
        billboard.recommend([], 1)  # what is compiled and unpacked is there before anybody waits for it,
        billboard.predict([], list(billboard.domain.items[:1]))  # and what is looked up
    except ModelFileError as error:
        raise ModelFileError(str(error).replace("'in memory'", repr(str(path)))) from None
    except Exception as error:  # whole, but what it holds does not go together
        raise ModelFileError(
            f"Model file {str(path)!r} cannot be served ({type(error).__name__}); train it again."
        ) from None
    return Served(name, content, digest, billboard)
