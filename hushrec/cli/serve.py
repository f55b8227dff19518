"""``hushrec serve``."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hushrec.cli import output
from hushrec.cli.files import page_folder, tokens as tokens_of
from hushrec.cli.items import numbers
from hushrec.cli.options import Count, File, Serving
from hushrec.cli.tables import Columns, item_columns
from hushrec.errors import InputError
from hushrec.serving.attributes import Attributes
from hushrec.serving.model import load
from hushrec.serving.rules import Rules

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")
_ORIGIN = re.compile(
    r"(https?)://(?:[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9_])?|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?"
)
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def serve(
    *models: Annotated[str, Parameter(metavar="MODEL")],
    demo: bool = False,
    attributes: Annotated[tuple[str, ...], Parameter(metavar="FILE")] = (),
    titles: Annotated[tuple[str, ...], Parameter(metavar="FILE")] = (),
    where: Annotated[str | None, Parameter(metavar="CONDITION")] = None,
    at_most: Annotated[tuple[str, ...], Parameter(metavar="COLUMN=N")] = (),
    columns: Columns | None = None,
    workers: Count = 1,
    server_name: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = (),
    origin: Annotated[tuple[str, ...], Parameter(metavar="ORIGIN")] = (),
    tokens: File | None = None,
    body_bytes: Count = 1 << 20,
    listening: Serving = Serving(),
) -> None:
    """Serve MODELs over HTTP: lists, predictions and the model files.

    Each MODEL is a file, or NAME=FILE. The server takes a replaced file within seconds, unless it is damaged.
    Requests are neither logged nor kept. SIGTERM or Ctrl-C ends it.

      hushrec serve model.hush --demo
      hushrec serve model.hush --titles titles.csv --origin https://shop.example
      hushrec serve model.hush --attributes items.csv --where in_stock --at-most brand=2
      hushrec serve films=films.hush books=books.hush --workers 2 --tokens tokens.txt

    Parameters
    ----------
    models
        Model files.
    demo
        Show a page at the root on which a visitor's ratings stay in the browser.
    attributes
        Public table of items for rules and titles, with a column of item ids: of the first model, or
        NAME=FILE.
    titles
        The same for titles alone, in a column named title.
    where
        Rule for every list, as in --where "in_stock and price < 50". A request may narrow it.
    at_most
        Most items of one value in every list, as in --at-most brand=2; repeatable. A request may lower it.
    workers
        Number of processes. Each holds the models, and the limits count for each.
    server_name
        Name by which clients reach the server.
    origin
        Site whose pages may read the answers in a browser, as https://shop.example.
    tokens
        Text file of bearer tokens, one per line. Lists and metrics then need one.
    body_bytes
        Longest request.
    """
    from hushrec.server import process  # an extra, which the help does not need

    paths = _named(models)
    settings = process.Settings(
        models=paths,
        tables=_tables(paths, attributes, titles),
        columns=item_columns(columns),
        rules=process.OwnRules(where, numbers(at_most, "--at-most", "brand=2", int)),
        tokens=() if tokens is None else tokens_of(tokens),
        names=_names(server_name),
        origins=_origins(origin),
        page=page_folder() if demo else None,
        limits=listening.limits(body_bytes=body_bytes, request_seconds=30.0),
        certificate=listening.certificate,
        key=listening.certificate_key,
    )
    for name, path in paths.items():  # refused here, in one sentence
        domain, table = load(path).domain, None
        if name in settings.tables:
            files, named = settings.tables[name]
            table = Attributes.read(files, domain, named, settings.columns)
        Rules.of(domain, table, where, settings.rules.at_most)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)

    def ready(url: str) -> None:
        for path in paths.values():
            output.warn_of_publishing(load(path), str(path))
        more = [f"Open {url}/ in a browser. Ratings stay in the browser."] if demo else []
        output.done(False, {}, f"Serving {', '.join(paths)} on {url}", *more)

    process.serve(settings, listening.host, listening.port, workers, ready)


def _named(models: tuple[str, ...]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    if not models:
        raise InputError("MODEL is missing: pass a model file, as in hushrec serve model.hush.")
    for text in models:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).stem, text
        if not path:
            raise InputError(f"{text!r} names no file; write NAME=FILE, as in films=films.hush.")
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{name!r} cannot be part of an address; write NAME=FILE with letters and digits."
            )
        if name in paths:
            raise InputError(f"Two models are named {name}; write NAME=FILE to tell them apart.")
        paths[name] = Path(path)
    return paths


def _tables(models: dict[str, Path], *named: tuple[str, ...]) -> dict[str, Any]:
    tables: dict[str, list[Path | None]] = {}
    for kind, texts in enumerate(named):
        for text in texts:
            name, equals, path = text.partition("=")
            name, path = (name, path) if equals else (next(iter(models)), text)
            if name not in models or not path:
                raise InputError(
                    f"{text!r} names no model or file; write NAME=FILE with one of {', '.join(models)}."
                )
            tables.setdefault(name, [None, None])[kind] = Path(path)
    return {name: (files[0], files[1]) for name, files in tables.items()}


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise InputError(
                f"{name!r} is not a host name; pass --server-name as in shop.example, without a port."
            )
    return names


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an origin that browsers would write in another way, since it would never match."""
    for origin in origins:
        match = _ORIGIN.fullmatch(origin)
        if match is None or match[2] == _USUAL_PORTS[match[1]]:
            raise InputError(
                f"{origin!r} is not an origin; pass --origin in small letters, without a path or the default"
                " port, as in https://shop.example or http://localhost:3000."
            )
    return origins
