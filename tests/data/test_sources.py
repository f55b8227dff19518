"""Places of files: the same files, bytes and refusals by path and by address."""

from __future__ import annotations

from pathlib import Path

import pytest

from hushrec.data.sources import File, files_at
from hushrec.errors import InputError

TEXT = b"user,item,rating\na,i0,3\n"


#: Files of a folder in the order of their names, with the values in the folders' names.
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
    for path in (str(folder), f"file://{folder}"):
        for slash in ("", "/"):
            found = files_at(path + slash)
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
    assert files_at(f"file://{folder}/one.csv")[0].name == "one.csv"
