"""A8: every planted privacy bug is killed by the test that is named for it, which passes without the bug."""

import inspect
from pathlib import Path

import mpmath
import numpy as np
import pytest

from hushrec.privacy import SystemNoise
from tests.mutants.__main__ import table
from tests.mutants.driver import MARK
from tests.mutants.mutants import MUTANTS, Killer, Mutant
from tests.privacy.test_sampler import spied_slow_draws

DOCUMENT = Path(__file__).parents[2] / "docs" / "mutants.md"


def run(killer: Killer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(*_):
        raise AssertionError("noise was drawn")

    ledger = tmp_path / "state" / "ledger.sqlite"
    fixtures = {"tmp_path": tmp_path, "path": ledger, "monkeypatch": monkeypatch}
    if "no_noise" in killer.fixtures:
        monkeypatch.setattr(SystemNoise, "add_gaussian", drawn)
        fixtures["no_noise"] = None
    if "slow_draws" in killer.fixtures:
        fixtures["slow_draws"] = spied_slow_draws(monkeypatch)
    given = {name: fixtures[name] for name in killer.fixtures}
    if "record_property" in inspect.signature(killer.test).parameters:
        given["record_property"] = lambda *_: None
    with mpmath.workdps(50):
        killer.test(**killer.arguments, **given)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_killed(mutant: Mutant, tmp_path, monkeypatch, record_property) -> None:
    record_property("planted", 1)
    mutant.plant(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as death:
        run(mutant.killer, tmp_path, monkeypatch)
    assert not isinstance(death.value, TypeError | NameError | AttributeError), "the mutant does not run"
    record_property("killed", 1)


def in_the_suite(killer: Killer) -> bool:
    """Whether the suite itself calls this test with these arguments, and so shows that it passes."""
    values: dict[str, list] = {}
    for mark in getattr(killer.test, "pytestmark", ()):
        if mark.name != "parametrize":
            return False
        names = (
            [name.strip() for name in mark.args[0].split(",")]
            if isinstance(mark.args[0], str)
            else mark.args[0]
        )
        for case in mark.args[1]:
            case = getattr(case, "values", (case,) if len(names) == 1 else case)
            for name, value in zip(names, case, strict=True):
                values.setdefault(name, []).append(value)
    return values.keys() == killer.arguments.keys() and all(
        any(
            type(one) is type(value) and not isinstance(one, np.ndarray) and one == value
            for one in values[name]
        )
        for name, value in killer.arguments.items()
    )


@pytest.mark.parametrize(
    "killer",
    [
        pytest.param(killer, id=name, marks=[pytest.mark.full] * in_the_suite(killer))
        for name, killer in {mutant.killer.name: mutant.killer for mutant in MUTANTS}.items()
    ],
)
def test_without_the_bug_the_test_passes(killer: Killer, tmp_path, monkeypatch) -> None:
    run(killer, tmp_path, monkeypatch)


def test_there_are_enough_and_the_table_shows_them() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0] == table()
