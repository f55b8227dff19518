"""Where a command writes: nothing is replaced unasked, nothing private is open to others."""

from __future__ import annotations

import hashlib
import os

import pytest

from hushrec.cli.files import (
    file_names,
    output_file,
    output_folder,
)
from hushrec.errors import InputError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("there")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("inside")
    (tmp_path / "empty").mkdir()
    os.symlink("there.csv", "link.csv")
    os.mkfifo("pipe")
    return tmp_path


def test_a_file_is_new_or_may_be_replaced(here) -> None:
    assert str(output_file("new.csv", ("there.csv", None, "gone.csv"), False)) == "new.csv"
    assert str(output_file("there.csv", ("gone.csv", None), True)) == "there.csv"
    assert output_file("link.csv", (None,), True) == here / "there.csv"
    for path, inputs, replace, words in (
        ("", (), True, "^The name of the file to write is empty"),
        ("folder", (), True, "^'folder' is a folder; pass the name of a file in it"),
        ("pipe", (), True, "^'pipe' is not a regular file"),
        ("there.csv", (), False, "^'there.csv' is there already; pass another name, or --force"),
        ("link.csv", (), False, "^'link.csv' is there already"),
        ("there.csv", (None, "gone.csv", "folder/../there.csv"), True, "^'there.csv' is one of the inputs"),
        ("link.csv", ("there.csv",), True, "^'link.csv' is one of the inputs"),
        ("no/such.csv", (), True, "^Cannot write to 'no' [(]No such file"),
        ("there.csv/a.csv", (), True, "^Cannot write to 'there.csv' [(]Not a directory"),
    ):
        with pytest.raises(InputError, match=words):
            output_file(path, inputs, replace)


def test_a_folder_is_new_empty_or_may_be_written_into() -> None:
    for folder in ("new", "empty", "folder"):
        assert str(output_folder(folder)) == folder
    assert str(output_folder("empty", False)) == "empty" and str(output_folder("new", False)) == "new"
    assert str(output_folder("folder", False, ["other"])) == "folder"
    other = "; pass another folder, or --force to write into this one[.]$"
    for path, replace, names, words in (
        ("there.csv", True, (), "^'there.csv' is a file; pass a folder[.]$"),
        ("folder", False, (), f"^'folder' is not empty{other}"),
        ("folder", False, ["other", "inside"], f"^'folder/inside' is there already{other}"),
        ("no/such", True, (), "^Cannot write to 'no'"),
    ):
        with pytest.raises(InputError, match=words):
            output_folder(path, replace, names)


def test_names_of_files_at_their_edges() -> None:
    """Capital letters, names that some systems keep for themselves and long ones have a digest."""

    def hashed(user: str, start: str) -> str:
        return f"{start}~{hashlib.sha256(user.encode()).hexdigest()[:32]}.csv"

    plain = ["com", "com10", "lpt10", "conn", "aa", "@[", "x" * 120, "a.b", "a~b", "é"]
    shown = [*plain[:5], "%40%5B", "x" * 120, "a%2Eb", "a%7Eb", "%C3%A9"]
    assert file_names(plain) == [f"{name}.csv" for name in shown]
    for user in ("A", "Z", "aZ", "con", "com0", "com9", "lpt9", "aux", "prn", "nul"):
        assert file_names([user, "u"]) == [hashed(user, user), "u.csv"]
    assert file_names(["x" * 121]) == [hashed("x" * 121, "x" * 80)]
    assert file_names(["é" * 21]) == [hashed("é" * 21, ("%C3%A9" * 14)[:80].rstrip("%"))]
