"""The examples in the docstrings of public names run as they are printed."""

import doctest

import numpy as np
import pytest

import hushrec

FINDER = doctest.DocTestFinder(recurse=False)
WITH_EXAMPLES = [
    name for name in hushrec.__all__ if ">>>" in (getattr(getattr(hushrec, name), "__doc__", None) or "")
]


def test_what_a_newcomer_calls_has_an_example():
    assert {
        "Domain",
        "Ratings",
        "Budget",
        "Accountant",
        "Ledger",
        "Both",
        "PrivateALS",
        "PrivateEigenRec",
    } <= set(WITH_EXAMPLES)
    assert {"evaluate", "load", "split_ratings", "mu_of"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", ["", *WITH_EXAMPLES])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    said = []
    names = {"hushrec": hushrec, "np": np}
    thing = getattr(hushrec, name) if name else hushrec
    for test in FINDER.find(thing, name or "hushrec", module=False, globs=names):
        runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
