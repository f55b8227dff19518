"""Where files lie: the same files, bytes and refusals on this machine and behind a file system."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from hushrec.data.sources import File, files_at
from hushrec.errors import InputError

TEXT = b"user,item,rating\na,i0,3\n"


def behind(folder: Path) -> fs.FileSystem:
    return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("r.csv", ".csv"), ("R.CSV.GZ", ".csv"), ("r.tsv.bz2", ".tsv"), ("r.csv.zst", ".csv"), ("r", ""),
        ("r.data.gz", ".data"), ("r.gz", ""), ("r.csv.zip", ".zip"),
    ],
)  # fmt: skip
def test_a_suffix_is_that_of_what_is_inside(name: str, suffix: str) -> None:
    file = File(f"some.where/{name}")
    assert (file.name, file.suffix, file.keys) == (name, suffix, {})


def test_bytes_are_the_same_wherever_a_file_lies(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    (tmp_path / "r.csv.gz").write_bytes(packed)
    for file in (File(str(tmp_path / "r.csv.gz")), File("r.csv.gz", behind(tmp_path))):
        assert file.head(4) == packed[:4] and file.head(10**6) == packed and file.size() == len(packed)
        with file.stream() as stream:
            assert stream.read() == TEXT
        opened = file.seekable()
        assert Path(opened).read_bytes() == packed if file.filesystem is None else opened.read() == packed
    unknown: Any = SimpleNamespace(get_file_info=lambda path: SimpleNamespace(size=None))
    assert File("r", unknown).size() == 0


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    local = File(str(tmp_path / "none.csv"))
    for file, why in ((local, "No such file or directory"), (File("none.csv", behind(tmp_path)), "it could")):
        with pytest.raises(InputError) as refused:
            file.head(4)
        assert str(refused.value).startswith(f"{file.path!r} cannot be read: {why}")


#: Of a folder, in the order of their names: what is read, with what folders' names say.
TABLES = {
    "a=b=c/d=x%20y/part.parquet": {"a": "b=c", "d": "x y"},
    "day=__HIVE_DEFAULT_PARTITION__/e=.csv": {"day": ""},
    "one.csv": {},
    "plain/two.TSV.gz": {},
    "whole.parquet/part-0.pq": {},
    "z.parquet": {},
}
OTHERS = [".hidden.csv", "_SUCCESS", "_metadata.parquet", "notes.txt", "plain/.two.csv.crc", "x.json"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*TABLES, *OTHERS):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(TEXT)
    return tmp_path / "in"


def test_the_tables_of_a_folder_and_what_its_names_say(folder: Path) -> None:
    """Killed: folders that end as tables do, markers, and the last part of a path for a key."""
    for path, filesystem in ((str(folder), None), (f"file://{folder}", None), ("in", behind(folder.parent))):
        for slash in ("", "/"):
            found = files_at(path + slash, filesystem)
            assert [f"/{file.path}".partition("/in/")[2] for file in found] == list(TABLES)
            assert [file.keys for file in found] == list(TABLES.values())
            assert {file.filesystem is None for file in found} == {path == str(folder)}


def test_a_pattern_is_none_where_a_file_has_that_name(folder: Path) -> None:
    (folder / "r[1].csv").write_bytes(TEXT)
    assert files_at(str(folder / "r[1].csv")) == [File(str(folder / "r[1].csv"))]
    assert files_at(str(folder / "[oz]*.*")) == [
        File(str(folder / name)) for name in ("one.csv", "z.parquet")
    ]
    deep = {"a=b=c/d=x%20y/part.parquet", "whole.parquet/part-0.pq", "_metadata.parquet"}
    deep |= {"whole.parquet", "z.parquet"}
    found = files_at(str(folder / "**" / "*.p*q*"))
    assert found == sorted(File(str(folder / name)) for name in deep)
    with pytest.raises(InputError, match=r"^No file matches '.*none\*'\.$"):
        files_at(str(folder / "none*"))
    assert files_at("nowhere.csv") == [File("nowhere.csv")]
    assert files_at("one.csv", behind(folder))[0].path == "one.csv"


def test_what_cannot_be_listed_or_holds_no_table(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "empty" / "notes.txt").write_bytes(TEXT)

    def failing(error: Exception) -> Any:
        def fails(path: Any) -> None:
            raise error

        return SimpleNamespace(get_file_info=fails)

    cases = [
        ("empty", behind(folder), "'empty' holds no Parquet, CSV or TSV file of ratings."),
        (str(folder / "empty"), None, "empty' holds no Parquet, CSV or TSV file of ratings."),
        ("none", behind(folder), "'none' cannot be read: there is no such file or folder."),
        ("any", failing(OSError("secret")), "'any' cannot be listed; are address and access right?"),
        ("any", failing(pa.ArrowInvalid("secret")), "'any' cannot be listed"),
        ("nothing://at/all", None, "'nothing://at/all' is no address that pyarrow's file systems reach"),
    ]
    for path, filesystem, says in cases:
        with pytest.raises(InputError) as refused:
            files_at(path, filesystem)
        assert says in str(refused.value) and "secret" not in str(refused.value)
