"""The driver of sampled mutants: what its operators find, which tests it takes, what it says of them."""

import argparse
import ast
import json
import os
import subprocess

import pytest

from tests.mutants import driver
from tests.mutants.operators import mutated, sites

SOURCE = '''
LIMIT = 2.0

def part(ratings, clip):
    """Text 1 < 2 stays."""
    kept = np.minimum(ratings.data.astype(np.float64), clip)
    for block in range(start, 9):
        total += kept[block]
    if not valid and total > LIMIT:
        raise InputError(f"{LIMIT} is too much.")
    accountant.charge(total)
    key = stream_base(ratings.user_keys, os.urandom(8))
    return gate.release("sum", total * key)
'''
LIBRARY = """
def capped(a):
    return min(a, 2)

def none():
    return 0
"""
TESTS = """
from hushrec.privacy.sums import capped

def test_below():
    assert capped(1) == 1

def test_above():
    assert capped(5) == 2
"""
EXPECTED = {
    "arithmetic": "total -= kept[block]",
    "boolean": "if not valid or total > LIMIT",
    "charge or check skipped": "    pass\n    key =",
    "clip dropped": "kept = (ratings.data.astype(np.float64))",
    "comparison": "total >= LIMIT",
    "condition": "if True:",
    "constant": "range(start, 10)",
    "constant times 2": "LIMIT = (2 * 2.0)",
    "constant times sqrt 2": "(2**0.5 * clip))",
    "exact for noisy": 'return getattr(total * key, "_values", total * key)',
    "exception swallowed": "        pass\n    accountant",
    "first block only": "range(start, min(start + 1, 9))",
    "float32 for float64": "astype(np.float32)",
    "key by row number": "stream_base(np.arange(len(ratings.user_keys), dtype=np.uint64)",
    "key or seed reused": "bytes(8)",
    "message widened": 'f"{LIMIT} is too much." f" {ratings!r}"',
    "return value": "return None",
    "statement deleted": "        pass\n    if not valid",
}


@pytest.mark.parametrize("operator", EXPECTED)
def test_an_operator(operator):
    made = [mutated(SOURCE, site) for site in sites("a.py", SOURCE) if site.operator == operator]
    assert any(EXPECTED[operator] in source for source in made)
    assert SOURCE not in made


def test_no_other_operators_and_no_docstring_changed():
    found = sites("a.py", SOURCE)
    assert {site.operator for site in found} == set(EXPECTED)
    for site in found:
        assert "Text 1 < 2 stays." in mutated(SOURCE, site)
        ast.parse(mutated(SOURCE, site))


@pytest.mark.parametrize("decorator", ["simd.compiled", "simd.inner", "njit(cache=True)", "cache"])
def test_what_is_compiled_is_known_by_its_decorator(decorator):
    [site] = sites("a.py", f"@{decorator}\ndef f(a):\n    return a\n")
    assert site.compiled == (decorator != "cache")


def test_the_sample_is_a_function_of_the_seed_and_grows_at_its_end():
    ten = driver.sample(driver.ROOT, 0, 10)
    assert driver.sample(driver.ROOT, 0, 30)[:10] == ten != driver.sample(driver.ROOT, 1, 10)
    assert len({driver.key(site, driver.ROOT) for site in ten}) == 10


@pytest.fixture
def home(tmp_path):
    """A library of one function with two tests, recorded."""
    tree = tmp_path / "pristine"
    (tree / "hushrec" / "privacy").mkdir(parents=True)
    (tree / "tests").mkdir()
    for package in ("hushrec", "hushrec/privacy", "tests"):
        (tree / package / "__init__.py").write_text("")
    (tree / "hushrec/privacy/sums.py").write_text(
        "def capped(\n    a, *,\n    most=2,\n):\n    return min(a, most)\n\n\ndef none():\n    return 0\n"
    )
    lines = ["import importlib", "from hushrec.privacy import sums", "def test_again():"]
    lines += ["    importlib.reload(sums)", "def test_below():", "    assert sums.capped(1) == 1"]
    (tree / "tests/test_sums.py").write_text(
        "\n".join([*lines, "def test_above():", "    assert sums.capped(5) == 2"])
    )
    (tmp_path / "map").mkdir()
    code = (
        "from pathlib import Path; from tests.mutants.driver_map import record\n"
        f"record(Path({str(tree)!r}), ['tests/test_sums.py'], Path({str(tmp_path / 'map' / 'a.json')!r}))"
    )
    env = {**os.environ, "PYTHONPATH": str(driver.ROOT)}
    subprocess.run([driver.sys.executable, "-c", code], env=env, check=True, capture_output=True)
    return tmp_path


def test_a_mutant_is_run_by_the_tests_that_cover_it(home):
    known, slot = driver.Map(home), home / "slot"
    found = sites("hushrec/privacy/sums.py", (home / "pristine/hushrec/privacy/sums.py").read_text())
    clip = next(site for site in found if site.operator == "clip dropped")
    unreached = next(site for site in found if site.function == "none")
    assert len(known.tests(clip)) == 2 and known.tests(unreached) == []
    default = next(site for site in found if site.line == 3)  # importing runs its line, a call uses it
    assert len(known.tests(default)) == 3
    driver.shutil.copytree(home / "pristine", slot)
    driver.plant(home, slot, clip, known.importers(clip.path))
    outcome = driver.verdict(slot, known.tests(clip), 60)
    assert outcome["status"] == "killed" and outcome["killer"].endswith("test_above")
    assert driver.verdict(slot, [t for t in known.tests(clip) if "below" in t], 60)["status"] == "survived"


def result_of(key, status, **more):
    return json.dumps({"key": key, "status": status, "index": 0, "operator": "a", "room": "b"} | more)


def test_a_second_run_takes_what_ran_out_of_time_and_what_an_earlier_commit_left(home, monkeypatch):
    """Of another commit only what its tests left alive, where the code still has it."""
    later = home.parent / "later"
    driver.shutil.copytree(home, later)
    path = "hushrec/privacy/sums.py"
    found = sites(path, (home / "pristine" / path).read_text())
    names = [driver.key(site, home / "pristine") for site in found]
    assert len(names) == 5
    lines = [
        result_of(names[0], "killed"),
        result_of(names[1], "survived"),
        result_of(names[2], "unresolved", limit=60),
        result_of(f"{path} of_before: a -> b", "survived"),
    ]
    (home / "results-3-0.jsonl").write_text("\n".join(lines))
    options = argparse.Namespace(seed=3, mutants=9, only="", limit=60, again="")
    monkeypatch.setattr(driver, "sample", lambda *_: found)
    assert [index for index, _ in driver.to_run(home, options)] == [3, 4]
    options.limit = 61
    assert [index for index, _ in driver.to_run(home, options)] == [2, 3, 4]
    options.again = home.name
    assert {site for _, site in driver.to_run(later, options)} == set(found[1:3])
    (later / "results-3-0.jsonl").write_text(result_of(names[1], "killed"))
    status = {result["key"]: result["status"] for result in driver.results(later, 3, home.name)}
    assert list(status.values()) == ["killed", "killed", "unresolved", "gone"]
    assert "25.0% of 4 at first sight" in " ".join(driver.table(later, 3, home.name).split())


def test_reasons_of_equivalents_are_on_the_list():
    assert set(json.loads(driver.EQUIVALENT.read_text()).values()) <= set(driver.REASONS)
