"""What all tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data():
    """A function from the name of a real data file to its path; skips where the file is not at hand."""

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
