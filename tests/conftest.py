"""What all tests share."""

import math
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.fixed_noise import fixed_by

MEMORY = Path("/dev/shm")
#: Seconds of processor time that the tests of one folder may take, processes that they start included.
MOST_SECONDS = 150


def pytest_configure():
    """Keep temporary files in memory: tests sync thousands of charges, and a disk is slower than the
    tests."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Noise is the same in every run, whichever tests ran before."""
    before = sum(os.times()[:4])
    try:
        with fixed_by(item.nodeid):
            return (yield)
    finally:
        item.user_properties.append(("processor", sum(os.times()[:4]) - before))


def pytest_sessionfinish(session):
    """Fail where a folder's tests take too long. Processor time hardly depends on what else runs."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or "full" in session.config.option.markexpr:
        return
    rooms: Counter[str] = Counter()
    for report in [*reporter.stats.get("passed", ()), *reporter.stats.get("failed", ())]:
        if getattr(report, "when", "") == "call":
            rooms["/".join(report.nodeid.split("/")[:2])] += dict(report.user_properties)["processor"]
    for room, seconds in rooms.most_common():
        if seconds > MOST_SECONDS:
            reporter.line(f"\n{room} takes {seconds:.0f} s of processor time, more than {MOST_SECONDS}.")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """The same noise for shared fixtures, whichever test asks first."""
    with fixed_by(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels():
    """Kernels are compiled before the first test, or the output of a command would depend on the order of
    tests."""
    from hushrec.kernels.topk import top_k

    top_k(np.zeros((1, 1)), 1)


@pytest.fixture(scope="session")
def real_data():
    """Return a function from the name of a real data file to its path; it skips a test without the file."""

    def find(name: str) -> Path:
        folder = os.environ.get("HUSHREC_DATA")
        if not folder:
            pytest.skip("HUSHREC_DATA is not set, so tests on real ratings are skipped.")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"{name} is not in the folder HUSHREC_DATA, so this test is skipped.")
        return path

    return find


@pytest.fixture
def record_property(record_property):
    """Pytest's, for numbers of any kind: workers can send text only."""
    return lambda name, value: record_property(name, str(value))


@pytest.fixture
def plain_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the rounding of contributions, for comparisons with a twin to the last digits."""
    monkeypatch.setattr("hushrec.privacy.Bounded.largest_noise", math.inf)  # of steps that are none
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("hushrec.")
            and not name.startswith("hushrec.kernels")
            and hasattr(module, "spacing")
        ):
            monkeypatch.setattr(module, "spacing", lambda *_: 2.0**-100)  # finer than any digit
