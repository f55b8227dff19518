"""Places of files of ratings."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from hushrec.errors import InputError

#: First bytes of compressed files, and the ending by which they are read.
_COMPRESSED = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}
#: First bytes of files that are not tables -> their kind, and the remedy.
_OTHER_CONTENT = {
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "unpack it, or save the sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save the sheet as CSV"),
    b"\xfd7zXZ\x00": ("compressed by xz", "unpack it"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it"),
    b"Rar!": ("a rar archive", "unpack it"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
    b"SQLite format 3": ("a database", "export the table as CSV or Parquet"),
    b"PAR1": ("a Parquet file", "end its name in .parquet"),
    b"version https://git-lfs": ("a Git LFS pointer", "fetch the file itself with git lfs pull"),
    b"/annex/objects/": ("a git-annex pointer", "fetch the file itself with git annex get"),
    **dict.fromkeys((b"<!", b"<html", b"<?xml"), ("a web page or XML", "download the file itself")),
    b"{": ("JSON", "write it as CSV or Parquet, one row per rating or item"),
    b"[": ("JSON", "write it as CSV or Parquet, one row per rating or item"),
}
_HEAD_BYTES = 64
_TABLES = (".parquet", ".pq", ".csv", ".tsv")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


class File(NamedTuple):
    """``filesystem`` None is this machine; ``keys`` come from folder names such as ``date=2024-06-30``.

    Files of this machine are opened without ``pyarrow.fs``, which takes 10 ms to import.
    """

    path: str
    filesystem: Any = None
    keys: dict[str, str] = {}

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def suffix(self) -> str:
        """In lower case, without that of compression."""
        name = self.name.lower()
        for compression in _COMPRESSED:
            name = name.removesuffix(compression)
        return Path(name).suffix

    def head(self, size: int) -> bytes:
        path = Path(self.path)
        if self.filesystem is None and path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                f"{self.path!r} is a pipe or a device, and a table is read more than once; save it as"
                " a file first."
            )
        try:
            with self.seekable() as file:
                return file.read(size)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.path!r} cannot be read: {words_of(error)}.") from None

    def size(self) -> int:
        """0 if unknown."""
        if self.filesystem is None:
            return Path(self.path).stat().st_size
        return self.filesystem.get_file_info(self.path).size or 0

    def seekable(self) -> Any:
        return (pa.OSFile if self.filesystem is None else self.filesystem.open_input_file)(self.path)

    def stream(self) -> Any:
        """Uncompressed; to be closed."""
        opened = pa.input_stream if self.filesystem is None else self.filesystem.open_input_stream
        return opened(self.path, compression="detect")


def words_of(error: Exception, *, may_hold_a_cell: bool = False) -> str:
    """Return the first line of an error's text, or the error's name if it has none."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    is_about_files = isinstance(error, (OSError, pa.ArrowNotImplementedError))
    words = "" if may_hold_a_cell and not is_about_files else str(error).partition("\n")[0].rstrip(". ")
    return words or type(error).__name__


def refuse_other_content(file: File) -> None:
    """Refuse a file that is not delimited text by its first bytes."""
    raw = file.head(_HEAD_BYTES)
    ending = next((ending for ending in _COMPRESSED if file.name.lower().endswith(ending)), "")
    if ending and raw and not raw.startswith(_COMPRESSED[ending]):
        raise InputError(f"{file.path!r} is not compressed as its name says; remove {ending} from its name.")
    for other, magic in _COMPRESSED.items():
        if not ending and raw.startswith(magic):
            raise InputError(f"{file.path!r} is compressed; end its name in {other}, as in table.csv{other}.")
    with file.stream() as stream:  # the header only: a row must not decide
        head = re.split(rb"[\r\n]", stream.read(_HEAD_BYTES), maxsplit=1)[0].strip()
    for magic, (what, advice) in _OTHER_CONTENT.items():
        if head.lower().startswith(magic.lower()):
            raise InputError(f"{file.path!r} is {what} by its first bytes; {advice}.")
    if b"\0" in head:
        raise InputError(f"{file.path!r} is not UTF-8 text by its first line; save it as CSV or Parquet.")


def files_at(path: str) -> list[File]:
    """Return the files of a path, pattern or address by name, which is the order of their rows."""
    filesystem = None
    if _URI.match(path):
        from pyarrow import fs

        try:
            filesystem, path = fs.FileSystem.from_uri(path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"{path!r} is not an address that pyarrow's file systems reach ({words_of(error)}); pass for"
                " example s3://bucket/folder, or a path of this machine."
            ) from None
    if filesystem is None and glob.has_magic(path) and not Path(path).exists():
        names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        if not names:
            raise InputError(f"No file matches {path!r}.")
        return [File(name) for name in names]
    if filesystem is None and not Path(path).is_dir():
        return [File(path)]
    from pyarrow import fs

    try:
        system = filesystem or fs.LocalFileSystem()
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise InputError(f"{path!r} cannot be read: there is no such file or folder.")
        if info.type != fs.FileType.Directory:
            return [File(path, filesystem)]
        inside = system.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{path!r} cannot be listed ({words_of(error)}); check the address and the access rights."
        ) from None
    root = path.rstrip("/") + "/"
    names = sorted(file.path for file in inside if file.type == fs.FileType.File)
    files = [File(name, filesystem, _keys(name.removeprefix(root))) for name in names]
    files = [file for file in files if not file.name.startswith((".", "_")) and file.suffix in _TABLES]
    if not files:
        raise InputError(
            f"The folder {path!r} holds no Parquet, CSV or TSV file of ratings; where it is a store, pass"
            " the tables that it was prepared from."
        )
    return files


def _keys(within: str) -> dict[str, str]:
    pairs = (folder.partition("=") for folder in PurePosixPath(within).parts[:-1])
    return {name: "" if value == _NO_VALUE else unquote(value) for name, equals, value in pairs if equals}
