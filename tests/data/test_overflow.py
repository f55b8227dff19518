"""C2: ids at the ends of machine integers stay apart, and counts beyond them are refused or exact."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hushrec.data import Domain, Ratings
from hushrec.errors import BudgetError, InputError
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, PrivateProjectedGradient, PrivateSVD
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Budget

IDS = [-1, 0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
FORMS = {
    "lists": lambda users, items: (users, items, [3.0] * len(users)),
    "texts": lambda users, items: (list(map(str, users)), list(map(str, items)), [3.0] * len(users)),
    "int64": lambda users, items: (np.array(users), np.array(items), np.full(len(users), 3.0)),
    "pandas": lambda users, items: pd.DataFrame({"user": users, "item": items, "rating": 3.0}),
    "polars": lambda users, items: pl.DataFrame(
        {"user": users, "item": items, "rating": [3.0] * len(users)},
        schema={"user": pl.Int64, "item": pl.Int64, "rating": pl.Float64},
    ),
    "arrow": lambda users, items: pa.table(
        {
            "user": pa.array(users, pa.int64()),
            "item": pa.array(items, pa.int64()),
            "rating": [3.0] * len(users),
        }
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_do_not_wrap_around(form, record_property):
    """Each user rates the item of her own number alone; floats tell none apart from 2^53 on."""
    domain = Domain(IDS, rating_range=(1, 5))
    ratings = Ratings.from_any(FORMS[form](IDS, IDS), domain)
    matrix = ratings.matrix.tocoo()
    pairs = {
        (str(ratings.users[row]), str(domain.items[column])) for row, column in zip(matrix.row, matrix.col)
    }
    told_apart = [number for number in IDS if abs(number) < 2**53 or form not in ("int64", "pandas")]
    assert pairs == {(str(number), str(number)) for number in told_apart}
    record_property("overflow cases", len(IDS))


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 10**30])
def test_ids_beyond_64_bits(number, record_property):
    domain = Domain([number, number + 1, number - 2**63], rating_range=(1, 5))
    ratings = Ratings.from_any(([number, number + 1], [number, number + 1], [2.0, 5.0]), domain)
    assert sorted(ratings.matrix.data.tolist()) == [2.0, 5.0]
    assert {str(user) for user in ratings.users} == {str(number), str(number + 1)}
    record_property("overflow cases", 1)


ESTIMATORS = [DPALS, CleansedSVD, PrivateSVD, PrivateFrankWolfe, PrivateProjectedGradient]


@pytest.mark.parametrize("count", [2**31, 2**53, 2**62])
@pytest.mark.parametrize("estimator_class", ESTIMATORS, ids=lambda cls: cls.name)
def test_a_huge_cap_gives_a_finite_sensitivity_or_an_error(estimator_class, count, record_property):
    settings = {"nuclear_norm": 30.0} if "nuclear_norm" in estimator_class.__dataclass_fields__ else {}
    domain = Domain(range(5), rating_range=(1, 5))
    try:
        plan = estimator_class(max_ratings_per_user=count, **settings).plan(Budget(1.0, 1e-6), domain)
    except (InputError, BudgetError) as error:
        assert "\n" not in str(error)
    else:
        for release in plan.releases:
            assert 0 < release.sensitivity < math.inf and 0 < release.noise_sd < math.inf
        smaller = estimator_class(max_ratings_per_user=100, **settings).plan(Budget(1.0, 1e-6), domain)
        for release, other in zip(plan.releases, smaller.releases, strict=True):
            assert release.sensitivity >= other.sensitivity * (1 - 1e-12)
    record_property("overflow cases", 1)
