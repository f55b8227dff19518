"""What all tests share."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.fixed_noise import fixed_by

MEMORY = Path("/dev/shm")


def pytest_configure():
    """Keep temporary files in memory: tests sync thousands of charges, and a disk is slower than the
    tests."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Noise is the same in every run, whichever tests ran before."""
    with fixed_by(item.nodeid):
        return (yield)


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
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("hushrec.")
            and not name.startswith("hushrec.kernels")
            and hasattr(module, "spacing")
        ):
            monkeypatch.setattr(module, "spacing", lambda *_: 2.0**-100)  # finer than any digit
