"""C2: ids at the ends of machine integers stay apart, and counts beyond them are refused or exact."""

import math

import pytest

from hushrec.data import Domain
from hushrec.errors import BudgetError, InputError
from hushrec.papers.dpals import DPALS
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, PrivateProjectedGradient, PrivateSVD
from hushrec.papers.mcsherry_mironov import CleansedSVD
from hushrec.privacy import Budget

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
