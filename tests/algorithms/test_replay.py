"""A6: nothing bypasses the noise.

The noisy releases of a run are fed to a run on other data; if the model file depends on the rows in any
other way (a count, a maximum, a stopping rule, a data-dependent shape, an exception), its bytes differ or
the run fails. Nothing may be printed, and no warning given. Planting ``center =
ratings.matrix.data.mean()`` in PrivateALS fails every case of it.
"""

import warnings

import numpy as np
import pytest

from hushrec.algorithms import ItemBias, PrivateALS
from hushrec.data import Domain, Ratings
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, PrivateProjectedGradient
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import SeededNoise
from tests.algorithms.cases import CASES, Case, hostile_data, ratings_of, rows_of
from tests.algorithms.neighbours import recorded_fit, replayed_fit

#: A warning that some rows raise and others do not is a message too.
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def silence(capfd):
    """What is printed could tell of the rows."""
    yield
    assert capfd.readouterr() == ("", "")


def check(case: Case, pairs: int, seed: int, record) -> None:
    rng = np.random.default_rng(seed)
    for number in range(pairs):
        relation = ("add-remove", "replace")[number % 2]
        users = hostile_data(rng, int(rng.integers(0, 7)))
        model, calls, _ = recorded_fit(case, ratings_of(users), relation, number)
        if number % 5 == 0:
            other = {}
        elif number % 5 == 1:
            other = {f"x{n}": rows_of(f"x{n}", rng, 4) for n in range(4)}  # rows, none of which can be used
        else:
            other = hostile_data(rng, int(rng.integers(1, 30)))
        again, _ = replayed_fit(case, ratings_of(other), relation, calls)
        assert again.to_bytes() == model.to_bytes()
    record("pairs", pairs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_is_a_function_of_the_releases(case: Case, record_property) -> None:
    check(case, 60, 3, record_property)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_is_a_function_of_the_releases_at_length(case: Case, record_property) -> None:
    check(case, 300, 4, record_property)


WIDE = [
    DPALS(clipping="user"),
    ItemBias(),
    PrivateALS(rank=2),
    PrivateFrankWolfe(nuclear_norm=30.0),
    PrivateProjectedGradient(nuclear_norm=30.0),
]


@pytest.mark.parametrize("high", [1e5, 1e9, 1e30])
@pytest.mark.parametrize("estimator", WIDE, ids=lambda estimator: estimator.name)
def test_no_user_raises_a_warning(estimator, high) -> None:
    """Rows that a clip finds to be zero: one rating, and ratings in the middle of the range."""
    domain = Domain(list("abcd"), rating_range=(0.0, high))
    users = [
        ("u", "a", 0.0),
        ("u", "b", high),
        ("v", "c", 0.7 * high),
        ("w", "a", high / 2),
        ("w", "b", high / 2),
    ]
    accountant = Accountant(Budget(1.0, 1e-6), noise=SeededNoise(1))
    with warnings.catch_warnings(action="error"):
        estimator.fit(Ratings.from_any((*zip(*users, strict=True),), domain), accountant)
