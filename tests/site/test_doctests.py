"""The examples in the docstrings of public names run as printed, and every public name has one."""

import doctest
import re

import numpy as np
import pytest

import hushrec
from docs._ext import names
from hushrec import registry

NAMES = [name for _, _, group in names.groups().values() for name in group]
PARSER = doctest.DocTestParser()


def test_every_public_name_has_an_example():
    assert set(names.public_names()) <= set(NAMES)
    assert len(names.public_names()) <= 45  # what a builder needs; the rest is in its room
    assert [name for name in NAMES if not re.search(r">>>|^ *See :func:", names.thing(name)[1], re.M)] == []


@pytest.mark.parametrize("name", ["", *NAMES])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry.ESTIMATORS, "data", dict(registry.ESTIMATORS.data))
    text = names.thing(name)[1] if name else hushrec.__doc__
    test = PARSER.get_doctest(text, {"hushrec": hushrec, "np": np}, name or "hushrec", None, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
