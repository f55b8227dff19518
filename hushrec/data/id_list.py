"""A catalogue or a list of donors as a text file: one id a line."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence

from hushrec.data.columns import SYNONYMS, plain_name
from hushrec.data.textfiles import check_utf8, stated_delimiter
from hushrec.disk import content_of
from hushrec.errors import InputError

_BINARY = (b"PK\x03\x04", b"PAR1", b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")
_DELIMITERS = ("\t", "::", "|", ";", ",")
_HEADERS = {"item": {"title", *SYNONYMS["item"]}, "user": {"donor", *SYNONYMS["user"]}}


def read_id_list(path: str | os.PathLike[str], what: str = "The catalogue", role: str = "item") -> list[str]:
    """See `hushrec.data.Domain.read_catalogue`; ``what`` names the file in errors."""
    name, headers = f"{what} {os.fspath(path)!r}", {"id", "name", *_HEADERS[role]}
    content = content_of(path, what)
    if content.startswith(_BINARY):
        raise InputError(f"{name} is not text; write one id a line.")
    check_utf8(content, os.fspath(path))
    lines = [line.strip() for line in re.split(r"\r\n?|\n", content.decode("utf-8-sig")) if line.strip()]
    if lines and stated_delimiter(lines[0].encode()):
        lines = lines[1:]
    if not lines:
        raise InputError(f"{name} holds no id; write one a line.")
    if any("\0" in line for line in lines):
        raise InputError(f"{name} is not text; write one id a line.")
    if _is_json(lines):
        raise InputError(f"{name} is JSON; write one id a line.")
    if n_columns := _columns_of_table(lines, headers):
        raise InputError(
            f"{name} is a table of {n_columns} columns, not a list; write one id a line, and put an id"
            " that holds a comma or another delimiter in double quotes."
        )
    ids = [_unquoted(line) for line in lines]
    numbers = [text.isdecimal() for text in ids]
    if _is_header(ids[0], headers) or (len(ids) > 2 and not numbers[0] and all(numbers[1:])):
        raise InputError(
            f"{name} begins with a header; remove this line, or move it further down if it is an id."
        )
    return ids


def _unquoted(line: str) -> str:
    inner = line[1:-1].replace('""', "")
    is_quoted = len(line) > 2 and line[0] == line[-1] == '"' and '"' not in inner
    return line[1:-1].replace('""', '"').strip() if is_quoted else line


def _is_header(text: str, headers: set[str]) -> bool:
    word = plain_name(text)
    return word in headers or word.removesuffix("s") in headers or text.endswith((":token", ":token_seq"))


def _is_json(lines: Sequence[str]) -> bool:
    if lines[0][0] not in "[{":
        return False
    for text in (lines[0], "\n".join(lines)):
        try:
            return isinstance(json.loads(text), (list, dict))
        except ValueError:
            continue
    return False


def _columns_of_table(lines: Sequence[str], headers: set[str]) -> int:
    """Return the number of columns if most lines, or a header, are a table; else 0."""
    for mark in _DELIMITERS:
        first = _fields(lines[0], mark)
        divided = sum(len(_fields(line, mark)) > 1 for line in lines)
        if len(first) > 1 and (2 * divided > len(lines) or any(_is_header(name, headers) for name in first)):
            return len(first)
    return 0


def _fields(line: str, mark: str) -> list[str]:
    if mark not in line or _unquoted(line) != line:
        return [line]
    if len(mark) > 1 or '"' not in line:
        return line.split(mark)
    try:
        return next(csv.reader([line], delimiter=mark), [line])
    except csv.Error:  # longer than any id
        return [line]
