"""A8: every planted privacy bug is killed by the test that is named for it, which passes without the bug."""

import ast
import re
from pathlib import Path

import pytest

from benchmarks.mutate import ROOT, Copy, mutants_of
from tests.mutants.mutants import BUGS, Bug
from tests.mutants.planting import plant

#: Raised by code that does not run at all, which any test would notice.
BROKEN = {"TypeError", "NameError", "AttributeError", "SyntaxError", "ImportError", "UnboundLocalError"}


def planted(bug: Bug) -> dict[str, bytes]:
    """Return the files with the bug in them."""
    files: dict[str, str] = {}
    for file, function, old, new in bug.edits:
        text = files.get(file) or (ROOT / file).read_text(encoding="utf-8")
        files[file] = plant(text, function, old, new)
    return {file: text.encode() for file, text in files.items()}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_fits_the_code_and_its_killer_exists(bug):
    for text in planted(bug).values():
        ast.parse(text)
    file, *_, test = bug.killer.partition("[")[0].split("::")
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^ *def {test}\(", source, re.M), f"{file} has no {test}"


@pytest.fixture(scope="module")
def copy():
    with Copy() as made:
        yield made


def words(killers: list[str]) -> list[str]:
    return ["-m", "full or not full", *(f"tests/{killer}" for killer in killers)]


@pytest.mark.full
@pytest.mark.parametrize("file", sorted({bug.killer.partition("::")[0] for bug in BUGS}))
def test_without_the_bugs_their_killers_pass(copy, file):
    killers = sorted({bug.killer for bug in BUGS if bug.killer.startswith(f"{file}::")})
    found = copy.run(words(killers), {}, 600.0)
    assert found["status"] == "survived", found["log"]


@pytest.mark.full
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_mutant_is_killed(copy, bug, record_property):
    record_property("planted", 1)
    found = copy.run(words([bug.killer]), planted(bug), 600.0)
    assert found["status"] == "killed", found["log"]
    assert found["failed"] and not BROKEN & set(found["failed"].values()), found["log"]
    record_property("killed", 1)


def test_mutants_compile_and_a_copy_leaves_the_tree_alone(tmp_path):
    file = "hushrec/kernels/fixed_point.py"
    before = (ROOT / file).read_bytes()
    made = mutants_of(file, before)
    assert len(made) > 20 and all(each.planted(before) != before for each in made)
    test = "import hushrec.kernels.fixed_point as f\n\ndef test_a():\n    assert f.spacing(1.0) == 2.0**-27"
    with Copy() as copy:
        (copy.tree / "tests" / "test_small.py").write_text(test)
        assert copy.run(["tests/test_small.py"], {})["status"] == "survived"
        wrong = before.replace(b"math.frexp(bound)[1] - bits", b"math.frexp(bound)[1] + bits")
        found = copy.run(["tests/test_small.py"], {file: wrong})
        assert found["failed"] == {"tests/test_small.py::test_a": "AssertionError"}
        assert (copy.tree / file).read_bytes() == before
    assert (ROOT / file).read_bytes() == before and not Path(copy.tree).exists()
