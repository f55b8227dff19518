"""PRIVACY.md: every sentence of a promise has the number of a test, and every numbered test exists."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "PRIVACY.md").read_text(encoding="utf-8")
PROMISES, REST = TEXT.split("## What is not promised")
TABLE = REST.split("## The tests")[1]


def numbered_tests() -> dict[str, list[str]]:
    """Test paths by number, from the table; `::name` stays in the file before it."""
    found: dict[str, list[str]] = {}
    for numbers, cell in re.findall(r"^\| ([A-Z]\d.*?) \| (.*) \|$", TABLE, re.M):
        paths, file = [], ""
        for path in re.findall(r"`([^`]+)`", cell):
            file = path.split("::")[0] or file
            paths.append(f"{file}::{path.split('::')[1]}")
        found |= dict.fromkeys(numbers.split(", "), paths)
    return found


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_sentence_of_a_promise_has_a_number():
    paragraphs = re.split(r"\n\n|\n(?=## )", PROMISES)
    body = [text for text in paragraphs if not text.startswith("# ") and text.strip()]
    for paragraph in body:
        text = " ".join(re.sub(r"^## .*\n", "", paragraph).split())
        if not text:
            continue
        sentences = re.split(r"(?<=\]\.) (?=[A-Z])", text)
        for sentence in sentences:
            assert re.fullmatch(r".+ \[[A-Z]\d\][.]", sentence), sentence
            inner = re.sub(r" \[[A-Z]\d\][.]$", "", sentence)
            assert len(re.findall(r"[.] [A-Z]", inner)) == 0, f"two sentences, one number: {sentence}"


def test_every_number_is_of_a_test_that_exists():
    tests = numbered_tests()
    used = set(re.findall(r"\[([A-Z]\d)\]", TEXT))
    assert used == set(tests), used ^ set(tests)
    for paths in tests.values():
        assert paths
        for path in paths:
            file, name = path.split("::")
            assert name in functions(file), path


def test_it_is_one_page():
    assert len((PROMISES + REST.split("## The tests")[0]).split()) < 900
