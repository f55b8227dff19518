"""Delimited text, one line at a time: a line is a row, and no line can change how another is read.

General CSV readers let an open quote swallow the lines below, and infer types from cells. Here a line ends
at the line break, also within quotes, and every cell is bytes. A line with the wrong
number of fields, or of more than 65,536 bytes, is skipped. A byte-order mark is dropped on any line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa

from hushrec.errors import InputError

MAX_LINE_BYTES = 1 << 16  # a longer line is not a rating, and the held bytes must be bounded
_BLOCK_BYTES = 1 << 24  # read at a time: 16 MB bound the memory in addition to the kept columns
_CELL = pa.dictionary(pa.int32(), pa.large_binary())  # of any length together
DELIMITERS = (",", "\t", ";", "|")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: The line that Excel writes or needs before the header, to state the delimiter.
_SEPARATOR = re.compile(rb'"?sep=(::|[,;\t|])"?[,;\t|]*', re.IGNORECASE)
_STAND_IN = b"\x1f"  # replaces the two characters of "::"; a line that holds it itself is made malformed


class ByteStream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def lines_of(stream: ByteStream) -> Iterator[bytes]:
    r"""Yield blocks of whole lines, line breaks made ``\n``; long lines are cut short."""
    rest = held = b""
    while chunk := stream.read(_BLOCK_BYTES):
        chunk = held + chunk
        held = b"\r" if chunk.endswith(b"\r") else b""  # its "\n" may open the next chunk
        chunk = chunk.removesuffix(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield _without_marks(rest + chunk[:cut])
            rest = chunk[cut:]
        else:  # no end in sight: keep enough of the line to know that it is too long
            rest = (rest + chunk)[: MAX_LINE_BYTES + len(_BYTE_ORDER_MARK) + 1]
    if rest or held:
        yield _without_marks(rest + b"\n")


def _without_marks(block: bytes) -> bytes:
    if _BYTE_ORDER_MARK[:1] not in block:  # one byte is found faster than three
        return block
    return block.removeprefix(_BYTE_ORDER_MARK).replace(b"\n" + _BYTE_ORDER_MARK, b"\n")


def check_utf8(content: bytes, path: str) -> None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        guess = "UTF-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "Latin-1"
        raise InputError(
            f"{path!r} is not UTF-8 text in line {line}, perhaps {guess}; save it as UTF-8."
        ) from None


def stated_delimiter(line: bytes) -> str | None:
    """Return the delimiter of a first line such as ``sep=;``."""
    match = _SEPARATOR.fullmatch(line)
    return match[1].decode() if match else None


def read_header(stream: ByteStream, delimiter: str | None) -> tuple[list[str], str, Iterator[bytes], int]:
    """Return column names, delimiter, blocks of lines below, and the number of lines above."""
    header, blocks = _first_line(lines_of(stream))
    n_lines = 1
    if stated := stated_delimiter(header):
        header, blocks = _first_line(blocks)
        delimiter, n_lines = delimiter or stated, 2
    line = header[:MAX_LINE_BYTES].decode("utf-8", "replace")
    line = " ".join(line.split()) if delimiter == " " else line
    if delimiter is None:
        delimiter = "::" if "::" in line else max(DELIMITERS, key=line.count)
    fields = line.split("::") if delimiter == "::" else next(csv.reader([line], delimiter=delimiter), [])
    return [name.strip() for name in fields], delimiter, blocks, n_lines


def _first_line(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    line, _, rest = next(blocks, b"").partition(b"\n")
    return line, chain([rest] if rest else [], blocks)


def read_fields(
    block: bytes, n_fields: int, wanted: list[int], delimiter: str, quoted: bool, at_least: bool = False
) -> tuple[list[pa.DictionaryArray], np.ndarray]:
    """Return the wanted fields of every well-formed line as bytes, and which lines are well-formed.

    A line with another number of fields is skipped, or with fewer ones where ``at_least``. Several blanks are
    one delimiter.
    """
    mark = _STAND_IN if delimiter == "::" else delimiter.encode()
    octets = np.frombuffer(block, np.uint8)
    lengths = np.diff(np.flatnonzero(octets == 10), prepend=-1)
    good = lengths <= MAX_LINE_BYTES + 1  # measured in the file, before anything is replaced
    plain: bytes | None = block if good.all() else octets[np.repeat(good, lengths)].tobytes()
    block = plain or b""
    if delimiter == " ":
        plain = block = re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", re.sub(rb"[ \t]+", b" ", block))
    if delimiter == "::":
        plain = block.replace(_STAND_IN, b"::" * 8).replace(b"::", _STAND_IN)
    elif quoted and b'"' in block:
        plain = _without_needless_quotes(block, mark)
    if plain is None:
        columns, formed = _split_each(block, n_fields, wanted, mark, at_least)
    else:
        plain, formed = _well_formed(plain, n_fields, mark, at_least)
        columns = _split_block(plain, n_fields, wanted, mark)
    good[good] = formed
    return columns, good


def _well_formed(block: bytes, n_fields: int, mark: bytes, at_least: bool) -> tuple[bytes, np.ndarray]:
    octets = np.frombuffer(block, np.uint8)
    field_ends = np.flatnonzero((octets == mark[0]) | (octets == 10))
    last_fields = np.flatnonzero(octets[field_ends] == 10)
    counts = np.diff(last_fields, prepend=-1)
    good = counts >= n_fields if at_least else counts == n_fields
    if good.all() and not at_least:
        return block, good
    lengths = np.diff(field_ends[last_fields], prepend=-1)
    kept = np.repeat(good, lengths)
    if at_least:  # drop what follows the first fields
        octets = octets.copy()
        ends = field_ends[(last_fields - counts + n_fields)[good]]
        octets[ends] = 10
        surplus = np.zeros(len(octets) + 1, np.int8)
        np.add.at(surplus, ends + 1, 1)
        np.add.at(surplus, field_ends[last_fields][good] + 1, -1)
        kept &= np.cumsum(surplus, dtype=np.int8)[:-1] == 0
    return octets[kept].tobytes(), good


def _without_needless_quotes(block: bytes, mark: bytes) -> bytes | None:
    """Return None if a quote does more than enclose a plain field."""
    octets = np.frombuffer(block, np.uint8)
    separator = (octets == mark[0]) | (octets == 10)
    quotes = np.flatnonzero(octets == 34)
    opening, closing = quotes[0::2], quotes[1::2]
    if len(opening) != len(closing):
        return None
    before = np.append(True, separator)[opening]
    after = separator[closing + 1]  # a block ends with a line break, so there is a next byte
    passed = np.cumsum(separator, dtype=np.int32)
    if before.all() and after.all() and np.array_equal(passed[opening], passed[closing]):
        return block.replace(b'"', b"")
    return None


def _split_block(block: bytes, n_fields: int, wanted: list[int], mark: bytes) -> list[pa.Array]:
    from pyarrow import csv as arrow_csv

    if not block:
        return [pa.array([], pa.large_binary()).dictionary_encode() for _ in wanted]
    names = [str(position) for position in range(n_fields)]
    kept = list(dict.fromkeys(str(position) for position in wanted))
    if block.startswith(_BYTE_ORDER_MARK):  # Arrow drops one on any line
        block = _BYTE_ORDER_MARK + block
    table = arrow_csv.read_csv(
        pa.BufferReader(block),
        read_options=arrow_csv.ReadOptions(
            column_names=names,
            block_size=len(block) + 1,
            # a process that ends while Arrow starts a thread aborts
            use_threads=len(block) > 1 << 20,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=mark.decode(),
            quote_char=False,
            escape_char=False,
            newlines_in_values=False,
            ignore_empty_lines=False,
        ),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=kept,
            column_types=dict.fromkeys(kept, _CELL),
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    columns = [table.column(str(position)).unify_dictionaries() for position in wanted]
    return [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in columns]


def _split_each(
    block: bytes, n_fields: int, wanted: list[int], mark: bytes, at_least: bool
) -> tuple[list[pa.Array], np.ndarray]:
    lines = [_split_line(line, mark) for line in block.split(b"\n")[:-1]]
    good = [len(fields) == n_fields or (at_least and len(fields) > n_fields) for fields in lines]
    rows = [fields for fields, is_good in zip(lines, good, strict=True) if is_good]
    columns = ([fields[position] for fields in rows] for position in wanted)
    return [pa.array(column, pa.large_binary()).dictionary_encode() for column in columns], np.array(good)


def _split_line(line: bytes, mark: bytes) -> list[bytes]:
    """A quote ends with its line."""
    if b'"' not in line:
        return line.split(mark)
    try:
        fields = next(csv.reader([line.decode("utf-8", "surrogateescape")], delimiter=mark.decode()), [])
    except csv.Error:
        return []
    return [field.encode("utf-8", "surrogateescape") for field in fields]
