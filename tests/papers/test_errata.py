"""Every figure that docs/papers/errata.md prints is the command's, and the command's are right."""

import math

import pytest

from benchmarks import errata
from hushrec.privacy import epsilon_of


def test_the_document_holds_what_the_command_prints():
    text = errata.DOCUMENT.read_text(encoding="utf-8")
    assert text.split(errata.START)[1].split(errata.END)[0] == errata.block()


def test_the_published_constants_are_caught_and_ours_stand():
    rows = [line for line in errata.audits() if line.startswith("| ")][1:]
    caught = {line.split("|")[1].strip() for line in rows if "violated" in line}
    assert caught == {"DPALS as Theorem 1 charges it", "mean as section 5.2 charges it (k = 8)"}
    assert sum("stands" in line for line in rows if "here" in line) == 4


@pytest.mark.parametrize(("epsilon", "true"), [(1, 1.060), (5, 5.575), (10, 10.97), (20, 20.89)])
def test_theorem_one_from_its_sigma(epsilon, true):
    """Two unit releases an item and step with the printed sigma, k = 7 and T = 3."""
    sigma = math.sqrt(2 * 7 * 3 * (epsilon + math.log(1e5))) / epsilon
    together = math.sqrt(2 * 7 * 3) / sigma
    assert errata.dpals_mu(epsilon, 1e-5) == pytest.approx(together, rel=1e-12)
    assert epsilon_of(together, 1e-5) == pytest.approx(true, abs=0.005)


def test_frank_wolfe_and_oja_from_their_sigmas():
    sigma = math.sqrt(64 * 9 * math.log(1e6)) / 2
    assert errata.frank_wolfe_mu(2, 1e-6, 4) == pytest.approx(math.sqrt(9) * 4 / sigma, rel=1e-12)
    sigma = math.sqrt(256 * 100 * math.log(2e6)) / 2
    assert errata.oja_mu(2, 1e-6, 9) == pytest.approx(math.sqrt(9 * 101) * 4 / sigma, rel=1e-12)
