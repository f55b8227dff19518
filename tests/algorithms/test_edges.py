"""A1 and A6 at scale and at the edges: many users, long rows, far ranges, small and large catalogues.

Data sets of six users and seven items reach no second block of a kernel and no rounding of float32. Here a
run is recorded and replayed on neighbouring data: no release moves by more than its sensitivity, the model
file keeps its bytes, nothing is printed and no warning given, with hand-made and with planned settings.
Subtracting the middle of the range in float32 fails every far range of the model that does it.
"""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from hushrec.algorithms import Estimator, PrivateALS, PrivateEigenRec, UserLevelOneBit
from hushrec.data import Domain
from hushrec.papers.frank_wolfe import (
    CorrectiveFrankWolfe,
    PrivateFrankWolfe,
    PrivateProjectedGradient,
    PrivateSVD,
)
from hushrec.papers.mcsherry_mironov import CleansedSVD
from tests.algorithms.cases import CASES, Case, ratings_of, rows_of
from tests.algorithms.neighbours import moves, recorded_fit, replayed_fit

pytestmark = pytest.mark.filterwarnings("error")

#: The unit of a release, 1 over half the range, is rounded where that is no power of two; `mu_of` leaves
#: room for 2e-12.
ROUNDED = 1e-14
RANGES = [(1, 5), (0, 1), (-10, 10), (0, 1e30), (16777216, 16777219)]
#: Models that hold a square of the items skip the last.
CATALOGUES = [1, 2, 400, 20_000]
Users = dict[str, list[tuple[object, object, object]]]


@dataclass(frozen=True)
class Planned:
    """An estimator with the settings that it plans for a declared number of users."""

    estimator: type[Estimator]
    n_users: int

    @property
    def name(self) -> str:
        return f"{self.estimator.name}, planned for {self.n_users}"

    def case(self, domain: Domain, relation: str) -> Case:
        case = Case(self.name, PrivateALS())
        planned = self.estimator.planned(case.budget(relation), domain, self.n_users)
        return replace(case, estimator=planned)


PLANNED = [
    Planned(estimator, n_users)
    for estimator in (
        PrivateALS,
        PrivateEigenRec,
        PrivateFrankWolfe,
        CorrectiveFrankWolfe,
        PrivateProjectedGradient,
        UserLevelOneBit,
    )
    for n_users in (50, 1_000, 100_000)
]


def crowd(rng: np.random.Generator, domain: Domain) -> Users:
    """More than 1,000 users of whom something counts, and one with everything."""
    kinds = [1, *rng.choice([0, 2, 3, 4], 1_600).tolist()]
    return {f"u{n}": rows_of(f"u{n}", rng, kind, domain) for n, kind in enumerate(kinds)}


def long_rows(rng: np.random.Generator, domain: Domain) -> Users:
    """Rows of more than 300 ratings where the catalogue has as many items, among others."""
    users: Users = {}
    for number in range(6):
        count = min(domain.n_items, int(rng.integers(301, 401)))
        columns = rng.choice(domain.n_items, count, replace=False)
        values = rng.uniform(domain.low, domain.high, count)
        user = f"long {number}"
        users[user] = [(user, domain.items[c], float(v)) for c, v in zip(columns, values)]
    return users | {f"u{n}": rows_of(f"u{n}", rng, n, domain) for n in range(5)}


def one_with_all(rng: np.random.Generator, domain: Domain) -> Users:
    """One user with all items at one end of the range, the others with a few."""
    end = domain.high if rng.random() < 0.5 else domain.low
    others = {f"u{n}": rows_of(f"u{n}", rng, n % 3 * 2, domain) for n in range(5)}
    return {"all": [("all", item, end) for item in domain.items]} | others


def alike(rng: np.random.Generator, domain: Domain) -> Users:
    """Users with the same rows."""
    rows = rows_of("u", rng, int(rng.integers(0, 3)), domain)
    return {f"u{n}": [(f"u{n}", item, rating) for _, item, rating in rows] for n in range(8)}


@dataclass(frozen=True)
class Edge:
    """A shape of data."""

    rating_range: tuple[float, float]
    n_items: int
    population: Callable[[np.random.Generator, Domain], Users]

    @property
    def name(self) -> str:
        return f"{self.rating_range}, {self.n_items} items, {self.population.__name__}"

    @property
    def domain(self) -> Domain:
        return domain_of(self.rating_range, self.n_items)


@functools.cache
def domain_of(rating_range: tuple[float, float], n_items: int) -> Domain:
    return Domain([f"i{number}" for number in range(n_items)], rating_range)


EDGES = [
    Edge(*shape) for shape in itertools.product(RANGES, CATALOGUES, (crowd, long_rows, one_with_all, alike))
]


def holds_a_square(case: Case) -> bool:
    """Whether the model releases a matrix of items x items."""
    estimator = case.estimator
    return (
        isinstance(estimator, PrivateSVD | CleansedSVD | PrivateProjectedGradient)
        or getattr(estimator, "eigenvector", "") == "covariance"
        or getattr(estimator, "start", "") == "spectral"
    )


ALL = [
    (each, edge, relation)
    for each, edge, relation in itertools.product([*CASES, *PLANNED], EDGES, ("add-remove", "replace"))
    if edge.n_items < 20_000
    or not holds_a_square(each if isinstance(each, Case) else each.case(edge.domain, relation))
]


def check(each: Case | Planned, edge: Edge, relation: str, record) -> None:
    domain = edge.domain
    case = each if isinstance(each, Case) else each.case(domain, relation)
    rng = np.random.default_rng(zlib.crc32(f"{each.name} {edge.name} {relation}".encode()))
    users = edge.population(rng, domain)
    model, calls, accountant = recorded_fit(
        case, ratings_of(users, domain), relation, int(rng.integers(2**31))
    )
    releases = {release.label: release for release in accountant.releases}
    names = list(users)
    for name in (names[0], names[-1], names[int(rng.integers(len(names)))]):
        others = {key: rows for key, rows in users.items() if key != name}
        if relation == "replace":
            others[name] = rows_of(name, rng, int(rng.integers(0, 5)), domain)
        again, replayed = replayed_fit(case, ratings_of(others, domain), relation, calls)
        for label, distance in moves(calls, replayed, releases).items():
            assert distance <= 1 + ROUNDED, f"{label} moved by {distance} of its sensitivity"
        assert again.to_bytes() == model.to_bytes()
    record("releases", len(releases))


def name_of(value: object) -> str | None:
    return getattr(value, "name", None)


def chosen(name: str, rating_range: tuple[float, float], n_items: int, population: Callable, relation: str):
    """One of `ALL`, as a test is called with it."""
    edge = Edge(rating_range, n_items, population)
    (each,) = (one for one in [*CASES, *PLANNED] if one.name == name)
    return each, edge, relation


_RANDOM = random.Random(3)
#: Every configuration twice, with shapes that a seed chooses; and where something was found.
SAMPLE = [
    *(
        one
        for _, group in itertools.groupby(ALL, lambda one: one[0].name)
        for one in _RANDOM.sample(list(group), 2)
    ),
    chosen("cleansed-svd", (16777216, 16777219), 2, one_with_all, "add-remove"),
    chosen("private-als, spectral start", (0, 1), 1, crowd, "add-remove"),
    chosen("private-eigenrec, planned for 100000", (1, 5), 2, alike, "replace"),
    chosen("dpals, likes", (0, 1e30), 20_000, one_with_all, "replace"),
]


@pytest.fixture(autouse=True)
def silence(capfd):
    """What is printed could tell of the rows."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("each", "edge", "relation"), SAMPLE, ids=name_of)
def test_no_release_moves_too_far_and_the_model_not_at_all(each, edge, relation, record_property) -> None:
    check(each, edge, relation, record_property)


@pytest.mark.full
@pytest.mark.parametrize(("each", "edge", "relation"), ALL, ids=name_of)
def test_no_release_moves_too_far_and_the_model_not_at_all_at_length(
    each, edge, relation, record_property
) -> None:
    check(each, edge, relation, record_property)
