"""A bad result stands beside the measured one, and every colour is named."""

import math

import matplotlib.figure
import numpy as np
import pytest

from hushrec.audit.canaries import CanaryAudit
from hushrec.audit.distinguish import Distinguishing
from hushrec.audit.membership import Membership
from hushrec.audit.plots import save_plot
from hushrec.privacy import Budget

RNG = np.random.default_rng(0)
BUDGET = Budget(5.0, 1e-6)


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The figure that is saved."""
    kept = []
    save = matplotlib.figure.Figure.savefig
    monkeypatch.setattr(
        matplotlib.figure.Figure, "savefig", lambda self, path: (kept.append(self), save(self, path))
    )

    def of(result):
        save_plot(result, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
        return kept[-1]

    return of


def named(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("claimed_mu", [0.3, 1.02, math.inf])
def test_histograms_of_what_was_measured_and_of_a_violation(drawn, claimed_mu):
    scores = RNG.normal(0.1, 1, 500), RNG.normal(-0.1, 1, 400)
    for result in (
        Distinguishing("item-bias", BUDGET, claimed_mu, 0.9, 0.1, 1e-6, *scores),
        CanaryAudit("item-bias", BUDGET, claimed_mu, 900, 100, 60, 0.1, 0.0, 1e-3, *scores),
    ):
        good, bad = drawn(result).axes
        assert "as measured" in good.get_title() and "a quarter of the noise" in bad.get_title()
        for axes in (good, bad):
            assert len(named(axes)) == 3 and named(axes)[2] == "both: they look the same"
        low, high = bad.get_xlim()
        apart = 4 * min(claimed_mu, 10)
        assert high - low > apart**2  # the two laws' means are so far apart


def test_the_attack_beside_guessing_and_no_privacy(drawn):
    curves = (
        ("item-bias", 1.0, (0.55, 0.57)),
        ("item-bias", 20.0, (0.7, 0.69)),
        ("als", math.inf, (1.0, 1.0)),
    )
    (axes,) = drawn(Membership(curves, 1e-6, "add-remove", 400, "The ratings are public or generated")).axes
    assert named(axes) == ["item-bias", "no privacy: a bad result", "guessing: the best result"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "20"]
