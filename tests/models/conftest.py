"""What the tests of several algorithms share."""

import sys

import pytest


@pytest.fixture
def plain_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contributions in floating point as they are, for comparisons with a twin to the last digits."""
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("hushrec.")
            and not name.startswith("hushrec.kernels")
            and hasattr(module, "spacing")
        ):
            monkeypatch.setattr(module, "spacing", lambda *_: 2.0**-100)  # finer than any digit
