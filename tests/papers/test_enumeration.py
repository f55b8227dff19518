"""B3: what randomised labels leak, by enumeration of all inputs and outputs: at most epsilon, exactly.

Probabilities are fractions, and the logarithm of the largest ratio is taken in 60 digits: a flip probability
that is one unit in the last place too small is found.
"""

import mpmath
import numpy as np
import pytest

from hushrec.privacy import RandomizedResponse
from tests.papers.test_one_bit import excess, laws, send


@pytest.mark.parametrize(
    ("epsilon", "size"), [(e, n) for e in (0.1, 1.0, 4.0) for n in (1, 2, 3, 4)] + [(1.0, 5), (1.0, 6)]
)
def test_all_inputs_and_outputs(epsilon: float, size: int, record_property) -> None:
    found = excess(laws(send(epsilon), size), epsilon)
    record_property("largest excess", float(found))
    record_property("inputs", 2**size)
    assert -1e-12 * epsilon < found <= 0


@pytest.mark.parametrize("sensitivity", [1.0, 3.0, 50.0])
def test_flips_are_no_rarer_than_epsilon_allows(sensitivity: float, record_property) -> None:
    for epsilon in 10 ** np.random.default_rng(0).uniform(-3, 1.5, 300):
        flip = RandomizedResponse(epsilon).flip_probability(sensitivity)
        with mpmath.workdps(60):
            spent = sensitivity * mpmath.log((1 - mpmath.mpf(flip)) / mpmath.mpf(flip))
            record_property("largest excess", float(spent - epsilon))
            assert spent <= epsilon


def test_one_unit_in_the_last_place_is_found(monkeypatch) -> None:
    exact = RandomizedResponse(1.0).flip_probability(1.0) / (1 + 1e-15)
    monkeypatch.setattr(RandomizedResponse, "flip_probability", lambda *_: np.nextafter(exact, 0))
    assert excess(laws(send(1.0), 2), 1.0) > 0
