"""The models that a server has, each whole in memory, exchanged when their files are."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hushrec.errors import HushrecError, ModelFileError
from hushrec.privacy.statement import warning_of_publishing
from hushrec.serving.attributes import Attributes
from hushrec.serving.billboard import Billboard
from hushrec.serving.modelfile import read

log = logging.getLogger("hushrec.server")

#: What tells a file from the one that was there before: its inode, size and time.
_Stamp = tuple[int, int, int]
#: Files of attributes and of titles.
Tables = tuple[Path | None, Path | None]


@dataclass(frozen=True, eq=False)
class Served:
    """One model: the bytes of its file, which are published as they are, and what they say."""

    name: str
    content: bytes
    digest: str
    billboard: Billboard
    attributes: Attributes | None = None

    @cached_property
    def titles(self) -> tuple[bytes, str] | None:
        """Titles by item as JSON for the page, with their digest."""
        if self.attributes is None:
            return None
        content = self.attributes.titles_json(self.billboard.domain)
        return None if content is None else (content, hashlib.sha256(content).hexdigest())


class Models:
    """Models by name; a reader keeps the one that it was given, whatever is exchanged meanwhile.

    Parameters
    ----------
    paths : mapping of str to Path
        The first one is the model that is meant where no name is given.
    tables : mapping of str to a pair of Path or None, optional
        Attributes of the items and their titles, which are read with the model of that name.

    Raises
    ------
    ModelFileError
        If one of the files cannot be served.
    """

    def __init__(self, paths: Mapping[str, Path], tables: Mapping[str, Tables] | None = None) -> None:
        self._files = {name: (path, *(tables or {}).get(name, (None, None))) for name, path in paths.items()}
        self._stamps = {name: _stamp(*files) for name, files in self._files.items()}
        self._served = {name: _read(name, *files) for name, files in self._files.items()}
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
        for name, files in self._files.items():
            stamp = _stamp(*files)
            if stamp == self._stamps[name]:
                continue
            self._stamps[name] = stamp
            try:
                self._served[name] = _read(name, *files)
            except (HushrecError, OSError, MemoryError) as error:
                self.refused += 1
                log.error("The old model %s goes on being served: %s", name, error)
            else:
                self.exchanged += 1
                log.warning("Model %s is now the one of digest %s.", name, self._served[name].digest)
                if warning := warning_of_publishing(self._served[name].billboard.privacy, str(files[0])):
                    log.warning("%s", warning)


def _stamp(*files: Path | None) -> list[_Stamp | None]:
    stamps: list[_Stamp | None] = []
    for path in files:
        try:
            found = None if path is None else path.stat()
        except OSError:
            found = None
        stamps.append(found and (found.st_ino, found.st_size, found.st_mtime_ns))
    return stamps


def _read(name: str, path: Path, attributes: Path | None, titles: Path | None) -> Served:
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
    if attributes is None and titles is None:
        return Served(name, content, digest, billboard)
    return Served(name, content, digest, billboard, Attributes.read(attributes, billboard.domain, titles))
