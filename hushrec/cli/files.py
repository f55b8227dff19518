"""Places of results: checked before anything is spent, written whole."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from hushrec.checks import plural
from hushrec.cli import output
from hushrec.disk import private_file
from hushrec.errors import InputError
from hushrec.network.messages import SHORTEST_TOKEN
from hushrec.serving.modelfile import write_atomically

#: Characters of a file's name, below the 143 that encrypted file systems leave.
_LONGEST_NAME = 120
_TABLES = (".parquet", ".pq", ".csv")
#: The index of the users' files. Its second dot keeps it apart from their names.
INDEX = "index.private.csv"
_UNFINISHED = f"{INDEX}.unfinished"
_RESERVED_NAMES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


def output_file(path: str, inputs: Iterable[str | None], replace: bool) -> Path:
    """Return a writable path that is not an input and, without replace, does not exist."""
    target = Path(path)
    if target.is_symlink():  # written through, not replaced
        target = target.resolve()
    if target.exists() and not target.is_file() and not target.is_dir():
        raise InputError(f"{path!r} is not a regular file and would be replaced; pass another name.")
    if target.is_dir():
        raise InputError(f"{path!r} is a folder; pass the name of a file in it.")
    others = [Path(other) for other in inputs if other]
    if any(
        target.absolute() == other.absolute()
        or (target.exists() and other.exists() and target.samefile(other))
        for other in others
    ):
        raise InputError(f"{path!r} is one of the inputs and would be overwritten; pass another name.")
    if target.exists() and not replace:
        raise InputError(f"{path!r} exists already; pass another name, or --force to replace it.")
    _check_writable(target.parent)
    return target


def check_room(target: Path, size: int) -> None:
    if not hasattr(os, "posix_fallocate"):
        return
    with tempfile.TemporaryFile(dir=target.parent) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size + size // 4)
        except OSError as error:
            raise InputError(
                f"There is no room for {str(target)!r} ({error.strerror}); free space or pass another path."
                " Nothing was charged."
            ) from None


def output_folder(path: str, replace: bool = True, names: Sequence[str] = ()) -> Path:
    """Return a folder that can be written to; without replace it has none of these files."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{path!r} is a file; pass a folder.")
    if folder.exists() and not replace:
        there = [name for name in names if (folder / name).exists()]
        if there or (not names and any(folder.iterdir())):
            what = f"{str(folder / there[0])!r} is there already" if there else f"{path!r} is not empty"
            raise InputError(f"{what}; pass another folder, or --force to write into this one.")
    _check_writable(folder if folder.exists() else folder.parent)
    return folder


def text_lines(path: str, what: str) -> list[str]:
    try:
        return [line.strip() for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path!r} cannot be read ({why}); pass a text file, one {what} a line.") from None


def tokens(path: str, count: int | None = None) -> list[str]:
    lines = text_lines(path, "token")
    if any(len(token) < SHORTEST_TOKEN or not token.isascii() for token in lines) or (
        len(lines) != count if count else not lines
    ):
        what = f"{plural(count, 'token')}" if count else "bearer tokens"
        raise InputError(
            f"{path!r} must hold {what} of {SHORTEST_TOKEN} ASCII characters or more, one a line."
        )
    return lines


def page_folder() -> Path:
    folder = Path(__file__).parents[1] / "web"
    if not (folder / "index.html").is_file():
        raise InputError("This installation of hushrec has no page; install a released package.")
    return folder


def _check_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"Cannot write to {str(folder)!r} ({error.strerror});"
            " pass a path in a folder that exists and is writable."
        ) from None


def table_file(path: str, inputs: Iterable[str | None], replace: bool) -> Path:
    if Path(path).suffix.lower() not in _TABLES:
        raise InputError(
            f"{path!r} is not a table; give it a name that ends in .parquet or .csv.", parameter="out"
        )
    return output_file(path, inputs, replace)


def write_table(table: Any, out: Path, delimiter: str = ",") -> None:
    """Write a table in the format of the file's ending. A mark before semicolons tells Excel of UTF-8."""
    from pyarrow import csv as arrow_csv, parquet

    buffer = io.BytesIO(b"\xef\xbb\xbf" if delimiter == ";" else b"")
    buffer.seek(0, io.SEEK_END)
    if out.suffix.lower() == ".csv":
        arrow_csv.write_csv(table, buffer, arrow_csv.WriteOptions(delimiter=delimiter))
    else:
        parquet.write_table(table, buffer)
    write_atomically(out, [buffer.getvalue()])


def one_row_per_user(table: pa.Table, n: int) -> pa.Table:
    """Return the lists with columns user, item_1, title_1, item_2, ..., empty past a list's end."""
    wide = table.filter(pc.equal(table["rank"], 1)).select(["user"])
    for rank in range(1, n + 1):
        lists = table.filter(pc.equal(table["rank"], rank))
        at = pc.index_in(wide["user"], lists["user"].combine_chunks())
        for name in ("item", "title"):
            if name in table.column_names:
                wide = wide.append_column(f"{name}_{rank}", lists[name].take(at))
    return wide


def write_private_table(
    table: Any, out: Path, mark: str, delimiter: str = ",", wide: int | None = None
) -> None:
    """Write lists of users, marked private; ``wide``: one row per user with so many items."""
    table = table if wide is None else one_row_per_user(table, wide)
    marked = table.replace_schema_metadata({**(table.schema.metadata or {}), "hushrec": mark})
    write_table(marked, out, delimiter)
    if "private" not in out.name.lower():
        output.note(f"Note: {out.name} is private; a name such as {out.stem}.private{out.suffix} says so.")


def write_a_file_per_user(table: Any, folder: Path) -> None:
    """Write one CSV file for each user, and the index. A user's rows must be consecutive."""
    columns = ["rank", "item", *table.column_names[3:]]
    users, rows = (
        table["user"].to_pylist(),
        list(zip(*(table[name].to_pylist() for name in columns), strict=True)),
    )
    starts = [i for i in range(len(users)) if i == 0 or users[i] != users[i - 1]]
    ids = [users[start] for start in starts]
    names = file_names(ids)
    target = folder
    try:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        for old in (folder / INDEX, folder / _UNFINISHED):
            for name in _indexed(old):
                (folder / name).unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        _write_private_csv(folder / _UNFINISHED, ["id", "file"], zip(ids, names, strict=True))
        for name, start, stop in zip(names, starts, [*starts[1:], len(users)], strict=True):
            target = folder / name
            _write_private_csv(target, columns, rows[start:stop])
        (folder / _UNFINISHED).replace(folder / INDEX)
    except OSError as error:
        raise InputError(
            f"Cannot write {str(target)!r} ({error.strerror}); free space or pass another folder."
        ) from None


def _indexed(index: Path) -> list[str]:
    if not index.is_file():
        return []
    with index.open(encoding="utf-8", errors="replace", newline="") as file:
        names = [row[-1] for row in csv.reader(file) if row]
    return [name for name in names if name.endswith(".csv") and Path(name).name == name]


def _write_private_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with io.TextIOWrapper(private_file(path), "utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def file_names(users: list[Any]) -> list[str]:
    """Return a file name for each user id, valid on any system and different for different ids.

    A hash is added where the name would be too long, is reserved, or holds a capital letter.
    """
    names = []
    for user in map(str, users):
        name = quote(user, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
        capital = any("A" <= letter <= "Z" for letter in user)
        if len(name) > _LONGEST_NAME or capital or name in _RESERVED_NAMES:
            digest = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:32]
            name = f"{name[: _LONGEST_NAME - 40].rstrip('%')}~{digest}"
        names.append(f"{name}.csv")
    return names
