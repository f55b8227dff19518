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
AS_INT64 = np.array(IDS)
FORMS = {
    "lists": (IDS, IDS, [3.0] * len(IDS)),
    "texts": ([*map(str, IDS)], [*map(str, IDS)], [3.0] * len(IDS)),
    "int64": (AS_INT64, AS_INT64, np.full(len(IDS), 3.0)),
    "pandas": pd.DataFrame({"user": IDS, "item": IDS, "rating": 3.0}),
    "polars": pl.DataFrame({"user": AS_INT64, "item": AS_INT64, "rating": [3.0] * len(IDS)}),
    "arrow": pa.table({"user": AS_INT64, "item": AS_INT64, "rating": [3.0] * len(IDS)}),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_do_not_wrap_around(form, record_property):
    """Each user rates the item of their own number alone; floats tell none apart from 2^53 on."""
    domain = Domain(IDS, rating_range=(1, 5))
    ratings = Ratings.from_any(FORMS[form], domain)
    matrix = ratings.matrix.tocoo()
    pairs = {(str(ratings.users[row]), str(domain.items[item])) for row, item in zip(matrix.row, matrix.col)}
    told_apart = [number for number in IDS if abs(number) < 2**53 or form not in ("int64", "pandas")]
    assert pairs == {(str(number), str(number)) for number in told_apart}
    record_property("overflow cases", len(IDS))


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
