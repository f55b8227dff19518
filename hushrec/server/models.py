"""The models of a server, in memory, replaced when their files are."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hushrec.disk import content_of
from hushrec.errors import HushrecError, ModelFileError
from hushrec.privacy.statement import warning_of_publishing
from hushrec.serving.attributes import Attributes
from hushrec.serving.model import Model
from hushrec.serving.modelfile import read

log = logging.getLogger("hushrec.server")

#: Inode, size and time of a file: a replaced file differs in one.
_Stamp = tuple[int, int, int]
#: Files of attributes and of titles.
Tables = tuple[Path | None, Path | None]


@dataclass(frozen=True, eq=False)
class Served:
    """One model and the bytes of its file, which are published unchanged."""

    name: str
    content: bytes
    digest: str
    model: Model
    attributes: Attributes | None = None

    @cached_property
    def titles(self) -> tuple[bytes, str] | None:
        if self.attributes is None:
            return None
        content = self.attributes.titles_json(self.model.domain)
        return None if content is None else (content, hashlib.sha256(content).hexdigest())


class Models:
    """Models by name; the first is the default. A request keeps its model while a new file replaces it.

    ``tables`` are files of attributes and of titles by model, ``columns`` as in `Attributes.read`.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        tables: Mapping[str, Tables] | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        self._files = {name: (path, *(tables or {}).get(name, (None, None))) for name, path in paths.items()}
        self._stamps = {name: _stamp(*files) for name, files in self._files.items()}
        self._columns = columns
        self.served = {name: _read(name, *files, columns) for name, files in self._files.items()}
        self.default = next(iter(paths))
        #: Numbers of files taken and refused since the start.
        self.exchanged = self.refused = 0

    def look(self) -> None:
        """Take new files; log one that cannot be served once, and keep the old model."""
        for name, files in self._files.items():
            stamp = _stamp(*files)
            if stamp == self._stamps[name]:
                continue
            self._stamps[name] = stamp
            try:
                self.served[name] = _read(name, *files, self._columns)
            except (HushrecError, OSError, MemoryError) as error:
                self.refused += 1
                log.error("Still serving the old model %s: %s", name, _visible(str(error)))
            else:
                self.exchanged += 1
                log.warning("Model %s is now the one of digest %s.", name, self.served[name].digest)
                if warning := warning_of_publishing(self.served[name].model.privacy, str(files[0])):
                    log.warning("%s", _visible(warning))


def _visible(text: str) -> str:
    """Escape what acts on a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _stamp(*files: Path | None) -> list[_Stamp | None]:
    stamps: list[_Stamp | None] = []
    for path in files:
        try:
            state = None if path is None else path.stat()
        except OSError:
            state = None
        stamps.append(state and (state.st_ino, state.st_size, state.st_mtime_ns))
    return stamps


def _read(
    name: str,
    path: Path,
    attributes: Path | None,
    titles: Path | None,
    columns: Mapping[str, str] | None = None,
) -> Served:
    """Read a file into memory: writing into a mapped file would end the process."""
    content = content_of(path, "Model file", ModelFileError)
    try:
        digest, model = read(content).digest, Model.from_bytes(content)
        model.recommend([], 1)  # compile and unpack before the first request
        model.predict([], list(model.domain.items[:1]))
    except ModelFileError as error:
        raise ModelFileError(str(error).replace("'in memory'", repr(str(path)))) from None
    except Exception as error:  # valid arrays that do not fit together
        raise ModelFileError(
            f"Model file {str(path)!r} cannot be served ({type(error).__name__}); train it again."
        ) from None
    if attributes is None and titles is None:
        return Served(name, content, digest, model)
    items = Attributes.read(attributes, model.domain, titles, columns)
    served = Served(name, content, digest, model, items)
    served.titles  # noqa: B018 - computed here, not by the first request in the event loop
    return served
