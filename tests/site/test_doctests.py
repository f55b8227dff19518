"""The examples in the docstrings of public names run as they are printed, and every public name has one."""

import doctest

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
    assert [name for name in NAMES if ">>>" not in names.thing(name)[1]] == []


def test_names_of_0_2_work_and_say_where_they_are():
    with pytest.warns(DeprecationWarning, match="hushrec.mu_of is hushrec.privacy.mu_of now"):
        assert hushrec.mu_of is hushrec.privacy.mu_of
    with pytest.warns(DeprecationWarning, match="hushrec.DPALS is hushrec.papers.DPALS now"):
        from hushrec import DPALS  # noqa: F401
    with pytest.warns(DeprecationWarning, match="hushrec.users is hushrec.training.users now") as said:
        from hushrec.users import Users
    with pytest.warns(DeprecationWarning, match="Store.prepare"), pytest.raises(hushrec.InputError):
        hushrec.Ratings.prepare("no-such-file", "out", hushrec.Domain(["a"], rating_range=(1, 5)))
    assert Users is hushrec.training.Users and said[0].filename == __file__


@pytest.mark.parametrize("name", ["", *NAMES])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    text = names.thing(name)[1] if name else hushrec.__doc__
    test = PARSER.get_doctest(text, {"hushrec": hushrec, "np": np}, name or "hushrec", None, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
