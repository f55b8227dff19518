"""The contract of a private estimator, as checks that any estimator passes or fails, ours too.

    from hushrec.testing import check_estimator
    check_estimator(MyEstimator(clip=0.1), Budget(3, 1e-5))

A gate cannot detect a false bound. These checks look for one, on hostile users and on neighbouring data sets.
A failed check raises AssertionError with a sentence. Passing is evidence; the proof is written down.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hushrec.data import Domain, Ratings
from hushrec.errors import HushrecError, InputError
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import (
    Accountant,
    Budget,
    Plan,
    RandomizedResponse,
    Release,
    Season,
    SeasonAccountant,
    epsilon_of,
)
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.testing import NoiseCall, RecordingNoise, ReplayNoise, SeededNoise
from hushrec.registry import ESTIMATORS, register
from hushrec.serving.model import Model
from hushrec.training.estimator import Estimator
from hushrec.training.gate import LocalGate

#: A small catalogue, so few users reach every release.
DOMAIN = Domain(tuple(f"i{number}" for number in range(7)), (1, 5), max_ratings_per_user=6)
#: Users of a larger catalogue have rows longer than any block of a kernel.
_LONG = 257
#: Catalogues of long rows, the second for models that release a square of the items.
_WIDE, _WIDE_SQUARE = 5_000, 300
#: A release of more numbers an item is of pairs of items.
_A_SQUARE = 8
#: Part of its sensitivity that a release must move by for some user.
_ATTAINED = 0.9
#: float64 distinguishes larger differences from the sensitivity.
_TELLS = 1e-12
#: The unit of a release, 1 over half the range, may be rounded.
_ROUNDED = 1e-14
#: Users who are tried with the same others.
_COMERS = 10

Rows = list[tuple[Any, Any, Any]]
#: One training with a noise source: its public result, and its charged releases.
Run = Callable[[Ratings, NoiseSource], tuple[bytes, tuple[Release, ...]]]


# ---------------------------------------------------------------------- users who mean harm


def hostile_rows(user: str, rng: np.random.Generator, kind: int, domain: Domain = DOMAIN) -> Rows:
    """Return a user's rows: ordinary (kind 0), at the ends of the range (1, 2, 5, 6), or unusable (3, 4)."""
    low, high = domain.low, domain.high
    most = min(domain.n_items, 7)
    chosen = rng.permutation(domain.n_items)[: int(rng.integers(1, most + 1))]
    items = [domain.items[number] for number in chosen]
    end = high if rng.random() < 0.5 else low
    if kind == 0:
        steps = rng.integers(0, 5, len(items))
        return [
            (user, item, low + (high - low) / 4 * int(step)) for item, step in zip(items, steps, strict=True)
        ]
    if kind == 1:
        return [(user, item, end) for item in domain.items]
    if kind == 2:
        return [(user, item, (low, high)[number % 2]) for number, item in enumerate(items)]
    if kind == 5:
        return [(user, items[0], end)]
    if kind == 6:  # as many at either end, whichever they are
        ends = rng.permutation(np.arange(domain.n_items) % 2)
        return [(user, item, (low, high)[end]) for item, end in zip(domain.items, ends, strict=True)]
    bad = [math.nan, math.inf, -math.inf, 1e308, np.nextafter(high, math.inf) + 1e-6 * abs(high), None]
    rows: Rows = [(user, item, bad[int(rng.integers(len(bad)))]) for item in items]
    if kind == 3:
        rows += [(user, "unknown", low), (user, None, low), (user, items[0], high), (user, items[0], low)]
    return rows


def long_rows(user: str, rng: np.random.Generator, domain: Domain) -> list[Rows]:
    """Return rows of 257 ratings up to the whole catalogue, at the ends of the range."""
    low, high, found = domain.low, domain.high, []
    for count in sorted({_LONG, min(1_000, domain.n_items), domain.n_items}):
        halves = rng.permutation(np.arange(count) % 2)
        for ends in (np.zeros(count, int), np.ones(count, int), halves, np.minimum(np.arange(count), 1)):
            items = rng.permutation(domain.n_items)[:count]
            found.append(
                [(user, domain.items[item], (low, high)[end]) for item, end in zip(items, ends, strict=True)]
            )
    return found


def _short(users: Iterable[str], rng: np.random.Generator, domain: Domain) -> dict[str, Rows]:
    """Return usable rows of at most 7 ratings."""
    return {name: hostile_rows(name, rng, (0, 2, 5)[place % 3], domain) for place, name in enumerate(users)}


def hostile_users(rng: np.random.Generator, n_users: int = 6, domain: Domain = DOMAIN) -> dict[str, Rows]:
    return {
        f"u{number}": hostile_rows(f"u{number}", rng, int(rng.integers(0, 7)), domain)
        for number in range(n_users)
    }


def ratings_of(users: Mapping[str, Rows], domain: Domain = DOMAIN) -> Ratings:
    rows = [row for rows in users.values() for row in _timed(rows)]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
    return Ratings.from_any(tuple(columns), domain)


def _timed(rows: Rows) -> list[tuple[Any, Any, Any, Any]]:
    """Return a user's rows with times: none, equal ones, or of every kind."""
    kinds = [None], [7], [2_000_000_000_000, 5, None, 5, 4_000_000_000, 1_700_000_000]
    times = kinds[len(rows) % len(kinds)]
    return [(*row, times[place % len(times)]) for place, row in enumerate(rows)]


@lru_cache(maxsize=8)  # every estimator meets the same ones; item features do not count in a domain's hash
def _neighbours(unit: str, pairs: int, seed: int, domain: Domain) -> list[tuple[list[Ratings], int]]:
    """Return data sets that differ in one user, or in one rating's value, with a seed for the noise.

    The first one lacks the user, who is the first of all: positions change.
    """
    rng, families = np.random.default_rng(seed), []
    for begin in range(0, pairs, _COMERS):
        if unit == "rating":
            users = labelled_users(rng, domain=domain)
            family = [ratings_of(users, domain), ratings_of(turned(users, domain), domain)]
        else:
            users = hostile_users(rng, 5, domain)
            count = min(_COMERS, pairs - begin)
            if domain.n_items < _LONG:
                comers = [hostile_rows("comer", rng, number % 7, domain) for number in range(count)]
            else:  # next to short rows alone: no other user is as extreme
                comers, users = long_rows("comer", rng, domain), _short(users, rng, domain)
            family = [ratings_of({"comer": rows} | users, domain) for rows in ([], *comers)]
        families.append((family, int(rng.integers(2**31))))
    return families


def neighbours(unit: str, pairs: int, seed: int, domain: Domain) -> list[tuple[list[Ratings], int]]:
    make = _neighbours if domain.item_features is None else _neighbours.__wrapped__
    return make(unit, pairs, seed, domain)


def labelled_users(rng: np.random.Generator, n_users: int = 5, domain: Domain = DOMAIN) -> dict[str, Rows]:
    """Return users whose ratings all count, so the set of rated items is public."""
    kinds = {f"u{number}": (0, 1, 2, 6)[int(rng.integers(4))] for number in range(n_users)}
    return {user: hostile_rows(user, rng, kind, domain) for user, kind in kinds.items()}


def turned(users: Mapping[str, Rows], domain: Domain = DOMAIN) -> dict[str, Rows]:
    """Turn the first user's first rating to the other end of the range."""
    first, *_ = users
    (user, item, rating), *others = users[first]
    other = domain.low if rating > domain.midpoint else domain.high
    return {**users, first: [(user, item, other), *others]}


# ---------------------------------------------------------------------- the checks


def check_estimator(
    estimator: Estimator,
    budget: Budget,
    *,
    domain: Domain = DOMAIN,
    pairs: int = 60,
    loose: Mapping[str, float] | None = None,
) -> None:
    """Make every check below, at moderate length.

    Parameters
    ----------
    estimator : Estimator
        Hostile users must reach its clips.
    budget : Budget
        Finite; both relations are tried if the unit is "user".
    pairs : int
        Users who are added to a data set.
    loose : mapping of str to float
        Beginnings of labels of releases that no user here moves by 0.9 of their sensitivity, each with the
        part that some user does.

    Examples
    --------
    >>> from hushrec.testing import check_estimator
    >>> check_estimator(hushrec.Popular(), hushrec.Budget(3, 1e-5), pairs=4)      # raises where it is not
    """
    _stop_in_the_other_process()
    for one in _relations(budget):
        check_plan(estimator, one, domain=domain)
    wide = wide_domain(estimator, budget)
    check_sensitivity(estimator, budget, domain=domain, pairs=pairs, loose=loose)
    check_sensitivity(estimator, budget, domain=wide, pairs=1, loose=loose)
    check_replay(estimator, budget, domain=domain)
    check_forged(estimator, budget, domain=domain)
    if budget.unit == "user":
        check_sums(estimator, budget, domain=domain)
        check_sums(estimator, budget, domain=wide, n_users=5)
        check_edges(estimator, budget)
    if estimator.supports_seasons:
        check_weeks(estimator, budget, domain=domain, loose=loose)
        check_weeks(estimator, budget, domain=wide, pairs=1, loose=loose)
    with PublicSide() as public:
        check_two_processes(public, estimator, budget, domain=domain)
    check_file(estimator, budget, domain=domain)


def check_plan(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN) -> None:
    """Check that releases, charges and noise are the plan's, and values in float64, for exact sums."""
    noise = RecordingNoise(SeededNoise(0))
    accountant = Accountant(budget, noise=noise)
    plan = estimator.plan(budget, domain)
    plan.check()
    users = _users(budget.unit, np.random.default_rng(0), 6, domain)
    model = estimator.fit(ratings_of(users, domain), accountant)
    assert accountant.releases == plan.releases, "what was charged is not what was planned"
    assert model.privacy.releases == plan.releases, "what the statement lists is not what was planned"
    drawn = list(dict.fromkeys(call.label for call in noise.calls))
    assert drawn == [release.label for release in plan.releases], "noise was drawn for other releases"
    for call in noise.calls:
        assert np.min(call.amount) > 0, f"release {call.label!r} has no noise"
        assert call.kind == "flip" or call.value.dtype == np.float64, f"{call.label!r} is not in float64"


def check_sensitivity(
    estimator: Estimator,
    budget: Budget,
    *,
    domain: Domain = DOMAIN,
    pairs: int = 60,
    seed: int = 7,
    loose: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Check that no release moves by more than its sensitivity, and that some user moves it by 0.9 of that.

    The result has each release's largest move in units of its sensitivity, for users under add-remove.
    """
    plans = {one.relation: estimator.plan(one, domain) for one in _relations(budget)}
    worst: dict[str, float] = {}
    releases = {relation: plan.releases for relation, plan in plans.items()}
    plan = plans[budget.relation]
    for family, noise_seed in neighbours(budget.unit, pairs, seed, domain):
        runs = [transcript(estimator, plan, family[0], 1, SeededNoise(noise_seed))]
        others = family[1:]
        if budget.unit == "user":
            others = [*others, *(family[0].union(rows) for rows in _along(runs[0], domain))]
        runs += [replay(estimator, plan, other, 1, runs[0]) for other in others]
        _hold(runs, plan.releases, releases, worst)
    _check_attained(worst, loose or {})
    return worst


def wide_domain(estimator: Estimator, budget: Budget) -> Domain:
    """Return a catalogue of 5,000 items, or of 300 for a model that releases a square of the items."""
    domain = replace(DOMAIN, items=[f"i{number}" for number in range(_LONG)])
    ratings = ratings_of(_users(budget.unit, np.random.default_rng(0), 3, domain), domain)
    calls = transcript(estimator, estimator.plan(budget, domain), ratings, 1, SeededNoise(0))
    square = max(call.value.size for call in calls) > _A_SQUARE * _LONG
    return Domain([f"i{number}" for number in range(_WIDE_SQUARE if square else _WIDE)], DOMAIN.rating_range)


def check_replay(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN, pairs: int = 10) -> None:
    """Check that other data, with a run's noisy releases, give the same bytes."""
    rng, run = np.random.default_rng(3), _fitted(estimator, budget)
    for number in range(pairs):
        first = _users(budget.unit, rng, int(rng.integers(1, 7)), domain)
        other = hostile_users(rng, int(rng.integers(0, 30)), domain) if number else {}
        if number == 1:  # rows, none of which can be used
            other = {f"u{n}": hostile_rows(f"u{n}", rng, 4, domain) for n in range(4)}
        if budget.unit == "rating":
            other = turned(first, domain)
        with warnings.catch_warnings(action="error"):
            _same_model(run, [ratings_of(users, domain) for users in (first, other)], number, {})


def check_sums(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN, n_users: int = 24) -> None:
    """Check that a release of all users is that of some plus that of the others, to the last bit."""
    if not estimator.exact_arithmetic:
        return
    rng, plan = np.random.default_rng(11), estimator.plan(budget, domain)
    users = hostile_users(rng, n_users, domain)
    if domain.n_items >= _LONG:  # one long row next to short ones
        users = _short(users, rng, domain) | {"long": long_rows("long", rng, domain)[-1]}
    whole = transcript(estimator, plan, ratings_of(users, domain), 1, SeededNoise(11))
    names = [*rng.permutation([*users][:-1]), [*users][-1]]
    for count in (len(names) // 2, len(names) - 1):
        some, others = ({name: users[name] for name in part} for part in (names[:count], names[count:]))
        parts = [replay(estimator, plan, ratings_of(part, domain), 1, whole) for part in (some, others)]
        for of_all, of_some, of_others in zip(whole, *parts, strict=True):
            exact = np.array_equal(of_all.value, of_some.value + of_others.value)
            assert exact, f"release {of_all.label!r} is not an exact sum over users"


class Edge(NamedTuple):
    """A shape of data."""

    rating_range: tuple[float, float]
    n_items: int
    n_others: int

    @property
    def domain(self) -> Domain:
        return Domain([f"i{number}" for number in range(self.n_items)], self.rating_range)


#: Rows longer than a kernel's block, one user in all, a crowd, one item, ranges that float32 cannot hold.
EDGES = (
    Edge((1, 5), 257, 3),
    Edge((0, 1e30), 1_000, 0),
    Edge((16777216, 16777219), 1, 3),
    Edge((0, 1), 2, 1_700),
    Edge((16777216, 16777219), 6, 3),
    Edge((-10, 10), 10_000, 3),
)
_LONGEST = 300  # items of which a model may hold a square


def check_edges(estimator: Estimator, budget: Budget, *, edges: Iterable[Edge] = EDGES) -> None:
    """Check sensitivities and replay on data of other shapes, and that nothing warns."""
    square = False
    for number, edge in enumerate(edges):
        if square and edge.n_items > _LONGEST:
            continue
        domain = edge.domain
        estimator = _with_likes(estimator, domain)
        family = _edge_family(edge, 13, number)
        with warnings.catch_warnings(action="error"):
            planned = {one.relation: estimator.plan(one, domain).releases for one in _relations(budget)}
            *_, calls = _same_model(_fitted(estimator, budget), family, number, planned)
        square |= edge.n_items > 2 and max(call.value.size for call in calls) > edge.n_items**2 / 2


def check_weeks(
    estimator: Estimator,
    budget: Budget,
    *,
    domain: Domain = DOMAIN,
    pairs: int = 30,
    loose: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Check plan, sensitivities and replay in two later weeks, with other users, features and a new item.

    It registers the estimator, since a week continues from a model file.
    """
    seed = 17
    _register(estimator)
    rng = np.random.default_rng(seed)
    # the second training weighs as much as the first, and the third nearly; each has a quarter of the budget
    shape = 0.05, 1 - 0.05 / 0.95
    part = Season(replace(budget, relation="add-remove"), *shape).fraction
    budget = replace(budget, epsilon=epsilon_of(budget.mu * math.sqrt(0.25 / part), budget.delta))
    season = Season(replace(budget, relation="add-remove"), *shape)
    estimator = _with_likes(estimator, domain)
    first = ratings_of(hostile_users(rng, 8, domain), domain)
    model = estimator.fit(first, SeasonAccountant(season, noise=SeededNoise(seed)), seed=1)
    model = Model.from_bytes(model.to_bytes())
    features = domain.item_features
    if features is not None:
        features = np.vstack([features[::-1], features[:1]])
    wider = replace(domain, items=(*domain.items, "new"), item_features=features)
    labels, worst = {release.label for release in model.privacy.releases}, dict[str, float]()
    for number, over in ((1, domain), (2, wider)):
        run, part = _next_week(model), season.fraction
        planned = {
            one.relation: estimator.weekly_releases(one, over, part).releases for one in _relations(budget)
        }
        for family, noise_seed in neighbours(budget.unit, pairs, seed + number, over):
            with warnings.catch_warnings(action="error"):
                _same_model(run, family, noise_seed, planned, worst)
        for label in worst:
            worst[label] /= season.weights[number] if label.endswith(f"week {number}") else 1.0
        content, charged, _ = _same_model(run, [family[-1], ratings_of({}, over)], seed + number, {})
        model = Model.from_bytes(content)
        for mine, theirs in zip(charged, planned[budget.relation], strict=True):
            assert replace(mine, label=theirs.label) == theirs, "a week was charged otherwise than planned"
        slice_of_mu = math.fsum(release.mu**2 for release in charged)
        assert math.isclose(slice_of_mu, part * budget.mu**2, rel_tol=1e-9), "a week has its slice of mu"
        assert labels.isdisjoint(release.label for release in charged), (
            "a label of another week is used again"
        )
        labels |= {release.label for release in charged}
    _check_attained(worst, loose or {})
    return worst


def check_forged(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN) -> None:
    """Check that no user moves a release further after an earlier one was forged.

    A server gives up for any users or for none.
    """
    seed = 19
    plan = estimator.plan(budget, domain)
    releases = {release.label: release for release in plan.releases}
    [(family, _)] = neighbours(budget.unit, _COMERS, seed, domain)
    pair = [family[0], family[-1]]
    for label, release in releases.items():
        for bad in (math.nan, -math.inf, 1e300):
            if isinstance(release.mechanism, RandomizedResponse):
                continue
            forging = RecordingNoise(SeededNoise(seed), partial(_forge, label, bad))
            runs: list[list[NoiseCall]] = []
            ends = []
            for ratings in pair:
                recorder = RecordingNoise(ReplayNoise(runs[0]) if runs else forging)
                ends.append(_until_it_gives_up(estimator, plan, ratings, recorder))
                runs.append(recorder.calls)
            assert ends[0] == ends[1], f"what a server gives up for depends on rows ({label!r}: {bad})"
            for moved, distance in moves(runs[0], runs[1], releases, releases).items():
                assert distance <= 1 + _ROUNDED, (
                    f"release {moved!r} moved by {distance:.9g} of its sensitivity after {label!r} was {bad}"
                )


def check_two_processes(
    public: PublicSide, estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN
) -> None:
    """Check that a process without rows, given the noisy values, publishes the same model.

    With unit "rating" the process knows which ratings exist.
    """
    recorded = RecordingNoise(SeededNoise(5))
    sources = (lambda: recorded), (lambda: ReplayNoise(recorded.calls))
    first = _users(budget.unit, np.random.default_rng(5), 9, domain)
    known: dict[str, Rows] = {}
    other: dict[str, Rows] = {}
    if budget.unit == "rating":
        other = turned(first, domain)
        known = {user: [(user, item, domain.low) for _, item, _ in rows] for user, rows in first.items()}
    sizes = []
    for users, source in zip((first, other), sources, strict=True):
        public.begin(estimator, budget, domain, known)
        noise = RecordingNoise(source(), public.send)
        model = estimator.fit(ratings_of(users, domain), Accountant(budget, noise=noise), seed=1)
        alone, here = public.end(), published(model, public.announce)
        assert alone.model == here.model, "the public side needs more than what was released"
        assert alone.printed == here.printed, "what is printed needs more than what was released"
        sizes.append([(call.label, call.output.shape, str(call.output.dtype)) for call in noise.calls])
    assert sizes[0] == sizes[1], "the number or size of what is released depends on the rows"


def check_file(estimator: Estimator, budget: Budget, *, domain: Domain = DOMAIN) -> None:
    """Check that a model file is read, and gives the model and the lists that were saved.

    It registers the estimator.
    """
    _register(estimator)
    ratings = ratings_of(_users(budget.unit, np.random.default_rng(23), 9, domain), domain)
    model = estimator.fit(ratings, Accountant(budget, noise=SeededNoise(23)), seed=1)
    for int8 in (False, True):
        try:
            content = model.to_bytes(int8=int8)
            loaded = Model.from_bytes(content)
        except HushrecError as error:
            raise AssertionError(f"its model cannot be saved and loaded: {error}") from error
        assert loaded.to_bytes(int8=int8) == content, "the loaded model is another one than was saved"
        lists = loaded.recommend_batch(ratings, 5)
        assert int8 or lists.equals(model.recommend_batch(ratings, 5)), "the loaded model gives other lists"


# ---------------------------------------------------------------------- their parts


def _register(estimator: Estimator) -> None:
    if estimator.name not in ESTIMATORS:
        register(type(estimator))


def _with_likes(estimator: Estimator, domain: Domain) -> Estimator:
    if getattr(estimator, "like_threshold", None) is None:
        return estimator
    return estimator.set_params(like_threshold=domain.like_threshold)


def _relations(budget: Budget) -> list[Budget]:
    relations = ("add-remove", "replace") if budget.unit == "user" else (budget.relation,)
    return [replace(budget, relation=relation) for relation in relations]


def _users(unit: str, rng: np.random.Generator, n_users: int, domain: Domain) -> dict[str, Rows]:
    return (hostile_users if unit == "user" else labelled_users)(rng, n_users, domain)


@lru_cache(maxsize=8)
def _edge_family(edge: Edge, *seed: int) -> list[Ratings]:
    data_sets = _edge_users(edge, np.random.default_rng(seed), edge.domain)
    return [ratings_of(users, edge.domain) for users in data_sets]


def _edge_users(edge: Edge, rng: np.random.Generator, domain: Domain) -> Iterator[dict[str, Rows]]:
    """Yield the others alone, then with one extreme user."""
    names = [f"u{number}" for number in range(edge.n_others)]
    others = {name: hostile_rows(name, rng, number % 6, domain) for number, name in enumerate(names)}
    yield others
    for kind in (6, 1, 5):
        yield others | {"comer": hostile_rows("comer", rng, kind, domain)}
    first, middle = domain.items[0], domain.low + (domain.high - domain.low) / 2
    twice = [("comer", first, (domain.low, domain.high)[number % 2]) for number in range(300)]
    yield others | {"comer": twice}
    yield others | {"comer": [("comer", item, middle) for item in domain.items]}


def _forge(label: str, bad: float, released_label: str, released: np.ndarray) -> None:
    """Set the first number of one release, as a server could."""
    if released_label == label:
        released.reshape(-1)[:1] = bad


def _until_it_gives_up(estimator: Estimator, plan: Plan, ratings: Ratings, noise: NoiseSource) -> str:
    gate = LocalGate(Accountant(plan.budget, noise=noise), plan)
    try:
        with one_blas_thread(), np.errstate(all="ignore"):
            estimator.for_users(1).train(estimator.users(ratings.rated()), gate, 1)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError, HushrecError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _along(calls: Sequence[NoiseCall], domain: Domain) -> Iterator[Ratings]:
    """Yield a user who read a release of the items and rates by its signs, for each."""
    for call in calls:
        if len(call.output) == domain.n_items:
            signs = call.output.reshape(domain.n_items, -1)[:, 0] > 0
            ends = np.where(signs, domain.high, domain.low)
            yield ratings_of(
                {"along": [("along", *each) for each in zip(domain.items, ends, strict=True)]}, domain
            )


def _fitted(estimator: Estimator, budget: Budget) -> Run:
    def run(ratings: Ratings, noise: NoiseSource) -> tuple[bytes, tuple[Release, ...]]:
        accountant = Accountant(budget, noise=noise)
        return estimator.fit(ratings, accountant, seed=1).to_bytes(), accountant.releases

    return run


def _next_week(model: Model) -> Run:
    def run(ratings: Ratings, noise: NoiseSource) -> tuple[bytes, tuple[Release, ...]]:
        accountant = SeasonAccountant.following(model.privacy, noise=noise)
        accountant.week = replace(accountant.week, run="a name that is else drawn at random")
        return model.continue_training(ratings, accountant).to_bytes(), accountant.releases

    return run


def _same_model(
    run: Run,
    family: Sequence[Ratings],
    seed: int,
    planned: Mapping[str, Sequence[Release]],
    worst: dict[str, float] | None = None,
) -> tuple[bytes, tuple[Release, ...], list[NoiseCall]]:
    """Check that data sets with the same releases give the same model; return the first one's run."""
    recorder = RecordingNoise(SeededNoise(seed))
    model, charged = run(family[0], recorder)
    runs = [recorder.calls]
    for other in family[1:]:
        again = RecordingNoise(ReplayNoise(recorder.calls))
        assert run(other, again)[0] == model, "the model knows more of the rows than was released"
        runs.append(again.calls)
    _hold(runs, charged, planned, {} if worst is None else worst, _ROUNDED)
    return model, charged, recorder.calls


def _hold(
    runs: Sequence[Sequence[NoiseCall]],
    charged: Sequence[Release],
    planned: Mapping[str, Sequence[Release]],
    worst: dict[str, float],
    rounded: float = 0.0,
) -> None:
    """Check that no release moves by more than planned between runs; the first lacks a user."""
    by_label = {release.label: release for release in charged}
    for relation, releases in planned.items():
        bounds = {mine.label: theirs for mine, theirs in zip(charged, releases, strict=True)}
        pairs = list(combinations(range(len(runs)), 2))
        if relation == "add-remove":
            pairs = [pair for pair in pairs if pair[0] == 0]
        for one, other in pairs:
            for label, distance in moves(runs[one], runs[other], by_label, bounds).items():
                assert math.isfinite(distance), f"release {label!r} holds what is no number"
                if distance > 1 - _TELLS and not distance <= 1 + rounded:
                    excess = exact_excess(runs[one], runs[other], by_label[label], bounds[label].sensitivity)
                    assert excess <= 0, (
                        f"release {label!r} moved by {distance:.9g} of its sensitivity ({relation})"
                    )
                if relation == next(iter(planned)):
                    worst[label] = max(worst.get(label, 0.0), distance)


def _check_attained(worst: Mapping[str, float], loose: Mapping[str, float]) -> None:
    for label, distance in worst.items():
        beginnings = [each for each in loose if label.startswith(each)]
        least = loose[max(beginnings, key=len)] if beginnings else _ATTAINED
        assert distance >= least, (
            f"release {label!r} moved by {distance:.3f} of its sensitivity only, less than {least}:"
            " noise is wasted"
        )


# ---------------------------------------------------------------------- two runs compared


def transcript(
    estimator: Estimator, plan: Plan, ratings: Ratings, seed: int, noise: NoiseSource
) -> list[NoiseCall]:
    """Return every value that reached the gate in one run, with its noisy value."""
    recorder = RecordingNoise(noise)
    gate = LocalGate(Accountant(plan.budget, noise=recorder), plan)
    with one_blas_thread():
        estimator.for_users(1).train(estimator.users(ratings.rated()), gate, seed)
    return recorder.calls


def replay(
    estimator: Estimator, plan: Plan, ratings: Ratings, seed: int, calls: Sequence[NoiseCall]
) -> list[NoiseCall]:
    """Return the :func:`transcript` of another data set, given the same releases."""
    return transcript(estimator, plan, ratings, seed, ReplayNoise(calls))


def moves(
    first: Sequence[NoiseCall],
    second: Sequence[NoiseCall],
    charged: Mapping[str, Release],
    bounds: Mapping[str, Release],
) -> dict[str, float]:
    """Return how far each release moved, in units of its sensitivity in `bounds`."""
    powers: dict[str, float] = {}
    for one, other in zip(first, second, strict=True):
        assert (one.kind, one.label) == (other.kind, other.label), "releases differ in kind or order"
        with np.errstate(all="ignore"):
            change = np.abs(one.value.astype(np.float64) - other.value) * _scale(one, charged[one.label])
            powers[one.label] = powers.get(one.label, 0.0) + float((change ** _power(one)).sum())
    roots = {call.label: _power(call) for call in first}
    return {label: power ** (1 / roots[label]) / bounds[label].sensitivity for label, power in powers.items()}


def exact_excess(
    first: Sequence[NoiseCall], second: Sequence[NoiseCall], charged: Release, sensitivity: float
) -> Fraction:
    """Return the move's norm, to its power, less that of the sensitivity, without rounding."""
    total, power = Fraction(0), 1
    for one, other in zip(first, second, strict=True):
        if one.label != charged.label:
            continue
        power = _power(one)
        scale = np.broadcast_to(_scale(one, charged), one.value.shape)
        for before, after, factor in zip(one.value.flat, other.value.flat, scale.flat, strict=True):
            if before != after:
                change = abs(Fraction(float(before)) - Fraction(float(after)))
                total += _simple(float(factor) ** power) * change**power
    return total - Fraction(sensitivity) ** power


def _power(call: NoiseCall) -> int:
    return 2 if call.kind == "gaussian" else 1


def _scale(call: NoiseCall, charged: Release) -> np.ndarray:
    """Return the weight of a move of each entry: less where it gets more noise."""
    law: Any = charged.mechanism
    if isinstance(law, RandomizedResponse):
        return np.ones(())
    return np.asarray(law.noise_multiplier * charged.sensitivity / call.amount)


def _simple(square: float) -> Fraction:
    near = Fraction(square).limit_denominator(64)
    return near if abs(float(near) - square) < 1e-12 * square else Fraction(square)


# ---------------------------------------------------------------------- two processes


class Published(NamedTuple):
    model: bytes
    printed: str


def report(model: Model, file: Path) -> None:
    print(f"{file}\n{model.privacy}")


def published(model: Model, announce: Callable[[Model, Path], None]) -> Published:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        file = Path("model.hush")
        model.save(file)
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
            announce(model, file)
        return Published(file.read_bytes(), printed.getvalue())


class PublicSide:
    """A process that runs trainings without any row, from noisy values that arrive through a pipe.

    Start it before there are rows; it serves any number of trainings. ``announce``, a function of a module,
    prints the output on a model and its file.
    """

    def __init__(self, announce: Callable[[Model, Path], None] = report) -> None:
        self.announce = announce

    def __enter__(self) -> Self:
        _stop_in_the_other_process()
        spawn, main = get_context("spawn"), sys.modules["__main__"]
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_public_side, args=(theirs,), daemon=True)
        sys.modules["__main__"] = ModuleType("__main__")  # the process runs the caller's script
        try:
            self._process.start()
        finally:
            sys.modules["__main__"] = main
        theirs.close()
        script = getattr(main, "__file__", None)
        self._script = script if script and Path(script).is_file() else None  # none of standard input
        self._connection.send(self._script)
        self._connection.send(self.announce)
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()
        self._process.join(timeout=5)
        self._process.kill()

    def begin(
        self, estimator: Estimator, budget: Budget, domain: Domain, known: Mapping[str, Rows] | None = None
    ) -> None:
        """Start a training there."""
        if type(estimator).__module__ == "__main__" and self._script is None:
            raise InputError(
                f"Another process cannot import {type(estimator).__name__} from standard input or a notebook;"
                " define it in a file."
            )
        self._connection.send((estimator, budget, domain, dict(known or {})))

    def send(self, label: str, released: np.ndarray) -> None:
        self._connection.send(released)

    def end(self) -> Published:
        """Return the public side's model file and output, or raise its HushrecError."""
        if not self._connection.poll(60):
            raise AssertionError("the server's side waits for a release that the users' side did not make")
        answer: Published | str = self._connection.recv()
        if isinstance(answer, str):
            raise HushrecError(answer)
        return answer


class _Arriving:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        released: np.ndarray = self._connection.recv()
        if released.shape != value.shape:
            raise HushrecError(f"Release {label!r} has another shape than without rows.")
        return released

    add_laplace = flip = add_gaussian


class _Stop(BaseException):
    """Ends a script in the other process, which needs its classes only."""


def _stop_in_the_other_process() -> None:
    if parent_process() is not None and "__mp_main__" in sys.modules:
        raise _Stop


def _classes_of(script: str) -> None:
    """Run the caller's script up to its first check, for its classes."""
    main = ModuleType("__mp_main__")
    main.__file__ = script
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    with suppress(_Stop), redirect_stdout(io.StringIO()):
        exec(compile(Path(script).read_bytes(), script, "exec"), main.__dict__)


def _public_side(connection: Connection) -> None:
    if script := connection.recv():
        _classes_of(script)
    announce = connection.recv()
    while True:
        try:
            estimator, budget, domain, known = connection.recv()
        except EOFError:
            return
        try:
            accountant = Accountant(budget, noise=_Arriving(connection))
            model = estimator.fit(ratings_of(known, domain), accountant, seed=1)
            connection.send(published(model, announce))
        except HushrecError as error:
            connection.send(str(error))
