"""A catalogue or a list of donors as a text file: one id a line."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence

from hushrec.data.columns import SYNONYMS, plain_name
from hushrec.data.textfiles import MAX_LINE_BYTES, check_utf8, stated_delimiter
from hushrec.disk import content_of
from hushrec.errors import InputError

_BINARY = (b"PK\x03\x04", b"PAR1", b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")
_DELIMITERS = ("\t", "::", "|", ";", ",")
_ITSELF, _ALONE = "download the file itself", "write the column of ids alone, one id a line"
_RULE = r"[-+=|: \u2500-\u257f]*([-=]{3}|[\u2500-\u257f]{3})[-+=|: \u2500-\u257f]*$"
_REFUSED = "(not found|forbidden|denied|server error)"
#: The kind of a text that is no list, its form, and the remedy. The form is that of its lines 1, 2, 3 and
#: the last one, in lower case.
_OTHER_TEXTS = (
    ("a pointer to a file", r"version https://git-lfs|/annex/objects/", f"{_ITSELF}, as with git lfs pull"),
    ("a web page or XML", r"<[!?a-z](.|\n)*>$", _ITSELF),
    ("a server's refusal", rf"(http\S+ )?([45]\d\d)?\W*[\w ]*{_REFUSED}\W*$", _ITSELF),
    ("a printed list", r"\w*\(?[\[{]'", _ALONE),
    ("a printed table", r"(.|\n)*(dtype[:=].*|\[\d+ rows x \d+ columns\]|\(\d+ rows?\))$", _ALONE),
    ("a printed table", rf"(?m)(.*\n){{0,2}}{_RULE}", _ALONE),
)
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
    if what_else := _other_text(lines):
        raise InputError(f"{name} is {what_else[0]}, not a list of ids; {what_else[1]}.")
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


def _other_text(lines: Sequence[str]) -> tuple[str, str] | None:
    numbered = (re.match(r"(\d+)\s+\S", line) for line in lines)
    places = [int(match[1]) for match in numbered if match]
    if len(lines) > 1 and len(places) >= len(lines) - 1 and places == list(range(len(places))):
        return "a printed table", _ALONE
    ends = "\n".join([*lines[:3], *lines[3:][-1:]]).lower()[:MAX_LINE_BYTES]
    return next(((what, remedy) for what, form, remedy in _OTHER_TEXTS if re.match(form, ends)), None)


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
