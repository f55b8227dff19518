"""The models of a server, in memory, replaced when their files are."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hushrec.disk import content_of
from hushrec.errors import HushrecError, ModelFileError
from hushrec.privacy.statement import warning_of_publishing
from hushrec.serving.attributes import Attributes
from hushrec.serving.model import Model
from hushrec.serving.modelfile import read
from hushrec.serving.rules import Rules

log = logging.getLogger("hushrec.server")

#: Inode, size and time of a file: a replaced file differs in one.
_Stamp = tuple[int, int, int]
#: Files of attributes and of titles.
Tables = tuple[Path | None, Path | None]


@dataclass(frozen=True)
class OwnRules:
    """The server's rules for all lists; a request can narrow them, and never widen them."""

    where: str | None = None
    at_most: Mapping[str, int] = field(default_factory=dict)

    def narrowed(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rules ``where``, ``at_most`` and ``boost`` of a request together with these."""
        most = asked["at_most"] or {}
        if isinstance(most, dict):  # else it is refused later
            own = {
                name: min(limit, most[name]) if type(most.get(name)) is int else most.get(name, limit)
                for name, limit in self.at_most.items()
            }
            most = most | own
        conditions = [text for text in (self.where, asked["where"]) if text is not None]
        return {"where": conditions, "at_most": most, "boost": asked["boost"]}


@dataclass(frozen=True, eq=False)
class Served:
    """One model and the bytes of its file, which are published unchanged."""

    name: str
    content: bytes
    digest: str
    model: Model
    attributes: Attributes | None = None
    rules: OwnRules = OwnRules()

    @cached_property
    def titles(self) -> tuple[bytes, str] | None:
        if self.attributes is None:
            return None
        content = self.attributes.titles_json(self.model.domain)
        return None if content is None else (content, hashlib.sha256(content).hexdigest())

    @cached_property
    def page_rules(self) -> tuple[bytes, str]:
        """The server's rules for the page, evaluated for every item, as options of the browser's client."""
        own, domain = self.rules, self.model.domain
        found = Rules.of(domain, self.attributes, own.where, own.at_most)
        columns: dict[str, Any] = {"item": domain.text_list}
        options: dict[str, Any] = {"attributes": columns}
        if found.allowed is not None:
            columns["allowed"], options["where"] = found.allowed.tolist(), "allowed"
        options["atMost"] = {f"limit {number}": most for number, (_, most) in enumerate(found.limits)}
        for name, (codes, _) in zip(options["atMost"], found.limits, strict=True):
            columns[name] = [None if code < 0 else code for code in codes.tolist()]
        content = json.dumps(options).encode()
        return content, hashlib.sha256(content).hexdigest()


class Models:
    """Models by name; the first is the default. A request keeps its model while a new file replaces it.

    ``tables`` are files of attributes and of titles by model, ``columns`` as in `Attributes.read`. ``rules``
    are for the lists of all models.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        tables: Mapping[str, Tables] | None = None,
        columns: Mapping[str, str] | None = None,
        rules: OwnRules = OwnRules(),
    ) -> None:
        self._files = {name: (path, *(tables or {}).get(name, (None, None))) for name, path in paths.items()}
        self._stamps = {name: _stamp(*files) for name, files in self._files.items()}
        self._options = columns, rules
        self.served = {name: _read(name, *files, *self._options) for name, files in self._files.items()}
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
                self.served[name] = _read(name, *files, *self._options)
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
    columns: Mapping[str, str] | None,
    rules: OwnRules,
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
    tables = attributes is not None or titles is not None
    items = Attributes.read(attributes, model.domain, titles, columns) if tables else None
    served = Served(name, content, digest, model, items, rules)
    served.titles  # noqa: B018 - computed here, not by the first request in the event loop
    if rules != OwnRules():
        served.page_rules  # noqa: B018 - which refuses rules that the table does not fit
    return served
