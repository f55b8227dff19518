"""Privacy bugs, planted one at a time, and the test of the suite that each must not survive.

A mutant replaces one function or method by a faulty one, for the length of a test. Its killer is a test of
the suite, called as pytest would call it, on fewer cases where it takes a number of cases.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from benchmarks import demo
from hushrec import checks, continuing, estimator, partitioned, users as users_module
from hushrec.algorithms import (
    Estimator,
    ItemBias,
    Popular,
    PrivateALS,
    PrivateEigenRec,
    UserLevelOneBit,
    baselines,
    private_als,
    private_eigenrec,
    weekly_als,
)
from hushrec.cli import files, recommend
from hushrec.cli.tables import Reading
from hushrec.data import (
    Domain,
    Ratings,
    building,
    columns as data_columns,
    domain as domain_module,
    files as data_files,
    ids,
    split_by_time,
    splits,
    times,
)
from hushrec.engines import parts
from hushrec.engines.secure import client as secure_client, server as secure_server
from hushrec.engines.secure.agreement import Agreement
from hushrec.errors import BudgetError, InputError, LedgerError
from hushrec.evaluation import runs, tuning
from hushrec.evaluation.compare import Comparison
from hushrec.gate import Gate, LabelledGate, LocalGate
from hushrec.kernels import one_bit as one_bit_kernels, residuals, sparse_rows, topk
from hushrec.papers.dpals import DPALS, dpals
from hushrec.papers.frank_wolfe import PrivateFrankWolfe, eigensolvers, projected_gradient
from hushrec.papers.mcsherry_mironov import CleansedSVD, cleansed_svd
from hushrec.privacy import (
    Accountant,
    Bound,
    Bounded,
    Budget,
    Gaussian,
    Ledger,
    Plan,
    RandomizedResponse,
    Release,
    SeasonAccountant,
    SystemNoise,
    accountant as accountant_module,
    accounting,
    budget as budget_module,
    journal,
    ledger as ledger_module,
    positive,
    release as release_module,
    run_count,
    sampler,
    schema,
    signed,
    statement as statement_module,
    together,
)
from hushrec.privacy.journal import Journal
from hushrec.privacy.noise import GeneratorNoise
from hushrec.users import FittedUsers, Users
from tests.algorithms import (
    test_als,
    test_bad_settings,
    test_base,
    test_cleansed_svd,
    test_continuing,
    test_edges,
    test_exact_sums,
    test_frank_wolfe,
    test_oja,
    test_plan,
    test_private_als,
    test_replay,
    test_sensitivity,
)
from tests.algorithms.cases import CASES, Case
from tests.data import test_domain, test_rows_alone, test_times
from tests.endtoend import test_end_to_end
from tests.engines import test_aggregation, test_member, test_node_ledger, test_parts as test_engine_parts
from tests.evaluation import test_parts, test_runs
from tests.kernels import test_one_bit as test_one_bit_kernels, test_residuals
from tests.privacy import (
    test_accountant,
    test_accounting,
    test_budget,
    test_journal,
    test_ledger,
    test_noise,
    test_sampler,
    test_selection,
)

Array = np.ndarray


@dataclass(frozen=True)
class Killer:
    """A test of the suite with its arguments; `fixtures` names those it gets from pytest."""

    test: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    fixtures: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As pytest calls it, without the folder of tests."""
        file = self.test.__module__.removeprefix("tests.").replace(".", "/")
        words = [str(getattr(value, "name", value)) for value in self.arguments.values()]
        return f"{file}.py::{self.test.__name__}" + (f"[{', '.join(words)}]" if words else "")


@dataclass(frozen=True)
class Mutant:
    """A planted bug: where it comes from, how it is planted, what kills it."""

    name: str
    plant: Callable[[Any], None]
    killer: Killer


def case(name: str, pairs: int = 60) -> Case:
    """A case of the shared suite, with fewer pairs."""
    return replace(next(case for case in CASES if case.name == name), pairs=pairs)


def sensitivity(name: str, relation: str = "add-remove", pairs: int = 60) -> Killer:
    """A1."""
    test = test_sensitivity.test_sensitivity_of_every_release
    return Killer(test, {"case": case(name, pairs), "relation": relation})


def replayed(name: str) -> Killer:
    """A6."""
    return Killer(test_replay.test_the_model_is_a_function_of_the_releases, {"case": case(name)})


def at_the_edge(name: str, *shape: Any, relation: str = "add-remove") -> Killer:
    """A1 and A6 on data of another shape."""
    arguments = zip(("each", "edge", "relation"), test_edges.chosen(name, *shape, relation))
    return Killer(test_edges.test_no_release_moves_too_far_and_the_model_not_at_all, dict(arguments))


def noise_law(name: str = "item-bias") -> Killer:
    """A3 through an estimator."""
    test = test_plan.test_the_noise_that_is_added_is_the_noise_that_is_charged
    return Killer(test, {"case": case(name)})


def planned(name: str) -> Killer:
    """A7."""
    return Killer(test_plan.test_ledger_equals_plan, {"case": case(name), "relation": "add-remove"})


def in_any_order(name: str) -> Killer:
    """C1."""
    return Killer(
        test_exact_sums.test_sums_do_not_depend_on_order_or_threads, {"case": case(name)}, ("monkeypatch",)
    )


def set_to(target: Any, name: str, value: Any) -> Callable[[Any], None]:
    """A mutant that replaces one attribute."""
    return lambda monkeypatch: monkeypatch.setattr(target, name, value)


def in_clips(factor: Callable[[Array, Any], Array]) -> Callable[[Any], None]:
    """A mutant of the clip, wherever it is used."""

    def plant(monkeypatch: Any) -> None:
        for module in (users_module, dpals):
            monkeypatch.setattr(module, "clip_factor", factor)

    return plant


def after_training(change: Callable[[dict[str, Any], Any], None]) -> Callable[[Any], None]:
    """A mutant that changes what private ALS publishes, given the private ratings."""
    train = PrivateALS.train

    def wrong(self: PrivateALS, users: FittedUsers, gate: Gate, seed: int) -> dict[str, Any]:
        arrays = train(self, users, gate, seed)
        change(arrays, users._ratings)
        return arrays

    return set_to(PrivateALS, "train", wrong)


def zero_items_that_nobody_rated(arrays: dict[str, Any], ratings: Any) -> None:
    rated = np.bincount(ratings.matrix.indices, minlength=ratings.n_items) > 0
    arrays["item_factors"] = arrays["item_factors"] * rated[:, None]


def stop_when_the_loss_is_small(arrays: dict[str, Any], ratings: Any) -> None:
    if ratings.n_ratings and np.var(ratings.matrix.data) < 3:
        arrays["item_factors"] = arrays["item_factors"] / 2


def keep_the_number_of_users(arrays: dict[str, Any], ratings: Any) -> None:
    arrays["n_users"] = np.int64(ratings.n_users)


def center_on_the_exact_mean(arrays: dict[str, Any], ratings: Any) -> None:
    arrays["center"] = np.float64(ratings.matrix.data.mean()) if ratings.n_ratings else arrays["center"]


def complain_about_few_users(arrays: dict[str, Any], ratings: Any) -> None:
    if ratings.n_users < 3:
        raise ValueError("too few users")


def mean_of_all_ratings(self: Users) -> Bounded:
    ratings, half = self._ratings, self.domain.half_width
    values = np.array([(ratings.matrix.data - self.domain.midpoint).sum(), float(ratings.n_ratings)])
    return Bounded(values, users_module.LEVEL_BOUND, weight=[1 / half, 1.0])


def counts_of_all_ratings(self: Users) -> Bounded:
    counts = np.bincount(self._ratings.matrix.indices, minlength=self.domain.n_items)
    return Bounded(counts.astype(np.float64), positive(1.0))


def sample_by_one_generator(ratings: Any, count: int, seed: int, priority: Any = None) -> Any:
    order = np.random.default_rng(seed).random(ratings.n_ratings)
    keep = np.zeros(ratings.n_ratings, dtype=bool)
    for start, stop in zip(ratings.matrix.indptr[:-1], ratings.matrix.indptr[1:]):
        keep[start + np.argsort(order[start:stop])[:count]] = True
    return ratings.where(keep, drop_empty=False)


def parts_by_one_permutation(indptr: Array, indices: Array, base: Array, fractions: Any) -> Array:
    order = np.random.default_rng(0).permutation(len(indices))
    return splits.part_of((order * (2.0**64 / len(order))).astype(np.uint64), fractions)


def parts_by_rank(keys: Array, fractions: Any) -> Array:
    ranks = np.argsort(np.argsort(keys))
    return (ranks >= round(fractions[0] * len(keys))).astype(int)


def any_users(monkeypatch: Any) -> None:
    for module in (estimator, baselines, tuning):
        monkeypatch.setattr(module, "check_users", lambda *_: None)


def lines_numbered_anew(monkeypatch: Any) -> None:
    read = data_files._read_jester

    def wrong(stream: Any, implicit: bool) -> Any:
        table = read(stream, implicit)
        return table._replace(users=np.unique(table.users, return_inverse=True)[1] + 1)

    monkeypatch.setattr(data_files, "_read_jester", wrong)


def unions_forget(monkeypatch: Any) -> None:
    union = Ratings.union
    monkeypatch.setattr(Ratings, "union", lambda *both: replace(union(*both), hand_picked=False))


def keep_duplicates(users: Array, items: Array, values: Array, times: Any, n_users: int, n_items: int) -> Any:
    usable = (users >= 0) & (items >= 0) & ~np.isnan(values)
    users, items, values = users[usable], items[usable], values[usable]
    order = np.lexsort((items, users))
    counts = np.bincount(users, minlength=n_users)
    return building._Entries(items[order].astype(np.int32), values[order], None, counts)


def keep_any_rating(ratings: Array, domain: Domain) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(ratings, dtype=np.float32)


def range_from_the_ratings(monkeypatch: Any) -> None:
    train = ItemBias.train

    def wrong(self: ItemBias, users: Users, gate: Gate, seed: int) -> dict[str, Any]:
        ratings = users._ratings
        data = ratings.matrix.data
        ends = (float(data.min()), float(data.max()) + 1) if len(data) else (1.0, 2.0)
        narrow = replace(ratings, domain=Domain(ratings.domain.items, ends))
        return train(self, Users(narrow), gate, seed)

    monkeypatch.setattr(ItemBias, "train", wrong)


def ratings_not_clipped(monkeypatch: Any) -> None:
    statistics = dpals.statistics
    monkeypatch.setattr(dpals, "statistics", lambda *a, **b: statistics(*a, **(b | {"clip": math.inf})))


def stream_goes_on_without_noise(monkeypatch: Any) -> None:
    def wrong(self: parts.Meeting) -> None:
        steps = [self._given[part] for part in sorted(self._given)]
        self._given = {}
        self.transcript.append(self._released(steps))

    def without_noise(self: parts.Meeting, steps: list[parts.Step]) -> Array:
        if steps[0].block in (None, parts._BEGIN):
            return released(self, steps)
        self._block = np.sum([step.value for step in steps], axis=0)
        return next(self._stream, self._block)

    released = parts.Meeting._released
    monkeypatch.setattr(parts.Meeting, "_release", wrong)
    monkeypatch.setattr(parts.Meeting, "_released", without_noise)


def sums_of_nobody_are_integers(monkeypatch: Any) -> None:
    item_residuals = FittedUsers.item_residuals

    def wrong(self: FittedUsers, *released: Any) -> Bounded:
        found = item_residuals(self, *released)
        if not self._ratings.n_users:
            found._values = found._values.astype(np.int64)
        return found

    monkeypatch.setattr(FittedUsers, "item_residuals", wrong)


def ridge_by_number_of_users(monkeypatch: Any) -> None:
    fit = FittedUsers.fit

    def wrong(self: FittedUsers, items: Array, ridge: Any) -> None:
        n_users = self._ratings.n_users
        fit(self, items, replace(ridge, regularization=ridge.regularization * (1 + n_users)))

    monkeypatch.setattr(FittedUsers, "fit", wrong)


def exact_number_of_users(monkeypatch: Any) -> None:
    released = PrivateALS._level

    def wrong(self: PrivateALS, users: FittedUsers, gate: Gate) -> Any:
        return released(self, users, gate)._replace(n_users=float(max(users._ratings.n_users, 1)))

    monkeypatch.setattr(PrivateALS, "_level", wrong)


def exact_weights_after_the_release(monkeypatch: Any) -> None:
    train, usable = PrivateALS.train, private_als.item_weights

    def wrong(self: PrivateALS, users: FittedUsers, gate: Gate, seed: int) -> dict[str, Any]:
        exact = np.maximum(users.item_weights()._values, 0.01)
        monkeypatch.setattr(private_als, "item_weights", lambda _, noise_sd: usable(exact, noise_sd))
        return train(self, users, gate, seed)

    monkeypatch.setattr(PrivateALS, "train", wrong)


def weekly_state_with_exact_weights(monkeypatch: Any) -> None:
    week = weekly_als.week

    def wrong(model: Any, users: FittedUsers, gate: Gate, last: Any) -> dict[str, Any]:
        found = week(model, users, gate, last)
        return found | {"state/item_weights": np.array(users.item_weights()._values)}

    monkeypatch.setattr(weekly_als, "week", wrong)


class _ExactWeights(LabelledGate):
    """Charges and draws as planned, and gives the item weights as they were."""

    def release(self, label: str, bounded: Any) -> Array:
        exact = np.array(bounded._values, dtype=np.float64)
        noisy = super().release(label, bounded)
        return exact if label == "item weights" else noisy


def filter_fed_with_the_exact_sums(monkeypatch: Any) -> None:
    week = weekly_als.week
    monkeypatch.setattr(
        weekly_als, "week", lambda model, users, gate, last: week(model, users, _ExactWeights(gate), last)
    )


def week_not_charged_to_its_season(self: SeasonAccountant, ledger: Ledger, release: Any, step: Any) -> None:
    ledger.charge(self.dataset, self.run, release, step=len(self.own))


def window_that_ends_with_the_data(ratings: Any, date: Any) -> Any:
    if ratings.times is None:
        return split_by_time(ratings, date)
    return split_by_time(ratings, int(ratings.times.max()) - 50_000_000)


def release_of_one_label_without_noise(monkeypatch: Any) -> None:
    release = LocalGate.release

    def wrong(self: LocalGate, label: str, bounded: Bounded) -> Array:
        exact = bounded._values.copy()
        noisy = release(self, label, bounded)
        return exact if label.startswith("item biases") else noisy

    monkeypatch.setattr(LocalGate, "release", wrong)


def lost_value_on_its_old_charge(monkeypatch: Any) -> None:
    record = Accountant._record

    def wrong(self: Accountant, ledger: Ledger, release: Release, step: int | None) -> None:
        if not self._lost:
            record(self, ledger, release, step)

    monkeypatch.setattr(Accountant, "_record", wrong)


def one_statistic_charged(self: DPALS) -> Bound:
    sums = 1.0 if self.clipping == "user" else self._cells
    return Bound(math.sqrt(sums), math.sqrt(4 * sums))


def relation_ignored(monkeypatch: Any) -> None:
    monkeypatch.setattr(Bound, "under", lambda self, relation: self.add_remove)


def off_diagonal_counted_too_much(width: int) -> Array:
    rows, columns = np.tril_indices(width)
    return np.where(rows == columns, 1.0, 2.0)


def one_iteration_uncharged(monkeypatch: Any) -> None:
    releases = DPALS.releases

    def wrong(self: DPALS, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return Plan(budget, releases(self, budget, domain, fraction).releases[:-1])

    monkeypatch.setattr(DPALS, "releases", wrong)


def last_step_uncharged(monkeypatch: Any) -> None:
    releases = PrivateFrankWolfe.releases

    def wrong(self: PrivateFrankWolfe, budget: Budget, domain: Domain, fraction: float) -> Plan:
        return Plan(budget, releases(self, budget, domain, fraction).releases[:-1])

    monkeypatch.setattr(PrivateFrankWolfe, "releases", wrong)


def row_clip_missing(monkeypatch: Any) -> None:
    start = projected_gradient.FullRows.__init__

    def wrong(self: Any, targets: Any, bound: float, *lengths: float) -> None:
        start(self, targets, math.inf, *lengths)

    monkeypatch.setattr(projected_gradient.FullRows, "__init__", wrong)


def without_counting_users(self: Estimator, ratings: Any, accountant: Any, *options: Any) -> Plan:
    return self.releases(accountant.budget, ratings.domain, 1.0)


def rounded_to_nearest(values: Array, step: float) -> Array:
    return np.rint(np.asarray(values) / step) * step if step else values


def norms_of_residuals_taken_in_another_order(
    indptr: Array,
    indices: Array,
    values: Array,
    row_factors: Array,
    col_factors: Array,
    *,
    row_offset: Array,
    col_offset: Array,
) -> Array:
    rows = np.repeat(np.arange(len(row_factors)), np.diff(indptr))
    products = (row_factors[rows] * col_factors[indices]).sum(axis=1)
    left = values - row_offset[rows] - col_offset[indices] - products
    return np.sqrt(np.bincount(rows, left**2, len(row_factors)))


def popularity_left_in_the_sum(monkeypatch: Any) -> None:
    sums = private_eigenrec.LikingUsers.item_sums

    def wrong(self: private_eigenrec.LikingUsers, vectors: Array, learned: Array) -> Bounded:
        self._along = np.zeros_like(self._along)
        return sums(self, vectors, learned)

    monkeypatch.setattr(private_eigenrec.LikingUsers, "item_sums", wrong)


def items_learned_by_exact_weights(monkeypatch: Any) -> None:
    train = PrivateEigenRec.train

    def wrong(self: PrivateEigenRec, users: Users, gate: Gate, seed: int) -> dict[str, Any]:
        exact = users.item_weights()._values
        monkeypatch.setattr(PrivateEigenRec, "_learned", lambda *_: exact >= np.sort(exact)[-3])
        return train(self, users, gate, seed)

    monkeypatch.setattr(PrivateEigenRec, "train", wrong)


def popularity_left_in_the_matrix(monkeypatch: Any) -> None:
    matrix = private_eigenrec.LikingUsers.item_matrix

    def wrong(self: private_eigenrec.LikingUsers, learned: Array, bound: Bound) -> Bounded:
        self._along = np.zeros_like(self._along)
        return matrix(self, learned, bound)

    monkeypatch.setattr(private_eigenrec.LikingUsers, "item_matrix", wrong)


def pairs_found_in_the_rows(monkeypatch: Any) -> None:
    train = PrivateEigenRec.train

    def wrong(self: PrivateEigenRec, users: Users, gate: Gate, seed: int) -> dict[str, Any]:
        odd = bool(users.count()._values[0] % 2)
        monkeypatch.setattr(PrivateEigenRec, "_has_pairs", lambda *_: odd)
        return train(self, users, gate, seed)

    monkeypatch.setattr(PrivateEigenRec, "train", wrong)


def quarter_of_the_sensitivity(monkeypatch: Any) -> None:
    """In the plan and in the bound of what is contributed, so that the gate finds them equal."""
    for module in (users_module, eigensolvers):
        monkeypatch.setattr(module, "positive", lambda norm: positive(norm / 4))


def gaussian_with(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A mutant of the noise's sd inside the sampler."""
    add = GeneratorNoise.add_gaussian
    return set_to(
        SystemNoise,
        "add_gaussian",
        lambda self, value, sd, label: add(self, value, change(np.asarray(sd)), label),
    )


def noise_on_half_of_the_entries(monkeypatch: Any) -> None:
    add = GeneratorNoise.add_gaussian

    def wrong(self: SystemNoise, value: Array, sd: Any, label: str) -> Array:
        noisy = add(self, value, sd, label)
        flat, exact = noisy.reshape(-1), np.asarray(value, dtype=noisy.dtype).reshape(-1)
        flat[1::2] = exact[1::2]
        return noisy

    monkeypatch.setattr(SystemNoise, "add_gaussian", wrong)


def one_seed_for_all_noise(self: SystemNoise) -> np.random.BitGenerator:
    return np.random.PCG64(0)


def one_generator_for_all_noise(monkeypatch: Any) -> None:
    kept = np.random.PCG64()
    monkeypatch.setattr(SystemNoise, "_stream", lambda self: kept)


def seeded_by_numpy(self: SystemNoise) -> np.random.BitGenerator:
    return np.random.PCG64(np.random.randint(2**31))


def every_place_accepted(monkeypatch: Any) -> None:
    monkeypatch.setattr(sampler.Law, "quick_bits", lambda self, k: 2**31)
    everything = property(lambda self: np.full(len(self.high), 2**31, dtype=np.uint32))
    monkeypatch.setattr(sampler.Law, "quick", everything)


def one_threshold_off(monkeypatch: Any) -> None:
    law = sampler.gaussian()
    thresholds = list(law.thresholds)
    thresholds[40] += 1
    monkeypatch.setattr(sampler, "gaussian", lambda: replace(law, thresholds=tuple(thresholds)))


def noise_added_in_floating_point(self: SystemNoise, value: Array, sd: Any, label: str) -> Array:
    generator = np.random.Generator(self._stream())
    return (value + sd * generator.standard_normal(value.shape, dtype=value.dtype)).astype(value.dtype)


def grid_of_the_value(monkeypatch: Any) -> None:
    add = GeneratorNoise.add_gaussian

    def wrong(self: SystemNoise, value: Array, sd: Any, label: str) -> Array:
        grid = np.ldexp(1.0, np.frexp(np.abs(value) + sd)[1] - 12)
        return (np.rint(add(self, value, sd, label) / grid) * grid).astype(value.dtype)

    monkeypatch.setattr(SystemNoise, "add_gaussian", wrong)


def noise_of_the_first_block_for_all(monkeypatch: Any) -> None:
    release = Accountant.release

    def wrong(self: Accountant, bounded: Bounded, mechanism: Any, label: str, **options: Any) -> Any:
        if not bounded.streamed:
            return release(self, bounded, mechanism, label, **options)
        blocks = list(bounded._take())
        once = Bounded(blocks[0], bounded.bound, unit=bounded.unit)
        noise = release(self, once, mechanism, label, **options) - blocks[0]
        return iter([block + noise for block in blocks])

    monkeypatch.setattr(Accountant, "release", wrong)


def noise_before_the_charge(monkeypatch: Any) -> None:
    release = Accountant.release

    def wrong(self: Accountant, bounded: Bounded, mechanism: Any, label: str, **options: Any) -> Any:
        self._noise.add_gaussian(np.zeros(1), 1.0, label)
        return release(self, bounded, mechanism, label, **options)

    monkeypatch.setattr(Accountant, "release", wrong)


def no_charge(self: Ledger, dataset: str, run: str, release: Any, **_: Any) -> None:
    self.check(dataset, [release])


def failures_forgiven(monkeypatch: Any) -> None:
    charge = Ledger.charge

    def wrong(self: Ledger, dataset: str, run: str, release: Any, **others: Any) -> None:
        with suppress(LedgerError):
            charge(self, dataset, run, release, **others)

    monkeypatch.setattr(Ledger, "charge", wrong)


def largest_mu_only(mus: Any) -> float:
    return max(mus, default=0.0)


def composed_by_the_largest(monkeypatch: Any) -> None:
    for module in (accounting, budget_module, release_module, statement_module, test_accounting):
        monkeypatch.setattr(module, "total_mu", largest_mu_only)


def mu_rounded_up(monkeypatch: Any) -> None:
    mu_of = accounting.mu_of
    for module in (budget_module, test_accounting):
        monkeypatch.setattr(module, "mu_of", lambda epsilon, delta: mu_of(epsilon, delta) * (1 + 1e-11))


def sign_of_the_analytic_formula(mu: float, epsilon: float) -> float:
    if mu == 0 or math.isinf(mu):
        return float(mu > 0)
    below = math.erfc((-mu / 2 + epsilon / mu) / math.sqrt(2)) / 2
    above = math.exp(min(epsilon, 700)) * math.erfc((-mu / 2 + epsilon / mu) / math.sqrt(2)) / 2
    return max(0.0, below - above)


def pure_mu_like_zcdp(monkeypatch: Any) -> None:
    monkeypatch.setattr(test_accounting, "mu_of_pure", lambda epsilon: epsilon)


def share_in_mu_not_mu_squared(self: Budget, fraction: float) -> Gaussian:
    return Gaussian(1 / (self.mu * fraction**0.25))


def any_unit_fits(monkeypatch: Any) -> None:
    fit = accountant_module.check_fit

    def wrong(budget: Budget, done: Any, coming: Any) -> None:
        fit(budget, done, [replace(one, unit=budget.unit, relation=budget.relation) for one in coming])

    monkeypatch.setattr(accountant_module, "check_fit", wrong)


def injected_noise_passes(monkeypatch: Any) -> None:
    start = Accountant.__init__

    def wrong(self: Accountant, budget: Budget, *, noise: Any = None, **options: Any) -> None:
        start(self, budget, **options)
        self._noise = noise or self._noise

    monkeypatch.setattr(Accountant, "__init__", wrong)


def fork_not_noticed(monkeypatch: Any) -> None:
    parent = os.getpid()

    class Os:
        getpid = staticmethod(lambda: parent)
        urandom = staticmethod(os.urandom)

    monkeypatch.setattr(accountant_module, "os", Os)


def blocks_noisy_in_any_process(self: Accountant, blocks: Any, add_noise: Any) -> Any:
    return (add_noise(block) for block in blocks)


_CHECK_NUMBERS = checks.check_numbers


def clips_of_any_size(**rules):
    wide = {checks.CLIPS: "(0, 1.79e308]"}
    return _CHECK_NUMBERS(**{name: (*rule[:2], wide.get(rule[2], rule[2])) for name, rule in rules.items()})


def factors_that_overflow_for_rows_of_zeros(norms: Array, bound: float) -> Array:
    return np.minimum(1.0, bound * (1 - 2.0**-22) / np.maximum(norms, 1e-300))


def failure_taken_when_charged(self: Budget, costs: Any) -> bool:
    costs = tuple(costs)
    failure = math.fsum(cost.failure for cost in costs)
    spent = math.fsum(cost.mu**2 for cost in costs)
    if failure < self.delta and spent <= accounting.mu_of(self.epsilon, self.delta - failure) ** 2 * (
        1 + 1e-12
    ):
        return True
    pure = budget_module.pure_epsilon(costs)
    return failure <= self.delta and pure is not None and pure <= self.epsilon


def reserve_of_nothing_for_older_selections(monkeypatch: Any) -> None:
    monkeypatch.setattr(schema, "min", lambda failure, delta: 0.0, raising=False)


def cell_by_128_bits(law: Any, uniform: Any) -> int:
    while uniform.count < 128:
        uniform.refine()
    reached = sum(threshold <= uniform.bits >> (uniform.count - 128) for threshold in law.thresholds)
    return min(reached, len(law.thresholds) - 1)


def number_of_runs_in_float64(uniform: Any, mean_runs: float, shape: float) -> int:
    gamma, left = run_count.success_rate(mean_runs, shape), uniform.bits * 2.0**-uniform.count
    mass = (1 - gamma) * (shape / (gamma**-shape - 1) if shape else -1 / math.log(gamma))
    runs = 1
    while left > mass:
        left -= mass
        mass *= (1 - gamma) * (runs + shape) / (runs + 1)
        runs += 1
    return runs


def nan_stays_the_best(monkeypatch: Any) -> None:
    start = accountant_module._Outcome.__init__

    def wrong(self: Any, result: Any, failed: bool, score: float) -> None:
        start(self, result, failed, score)
        self.rank = (failed, score)

    monkeypatch.setattr(accountant_module._Outcome, "__init__", wrong)


def first_exception_ends_the_choice(run: Any, inner: Any) -> Any:
    result, score = run(inner)
    return accountant_module._Outcome(lambda: result, False, float(score))


def user_with_one_node(self: Any) -> Plan:
    return self.estimator.releases(self.promise, self.domain, 1.0)


def survivors_believed(self: Any, survivors: Any, index: int, held: Any) -> Any:
    alive = self._among_neighbours(survivors.everybody)
    return alive, [name for name in self._among_neighbours(held) if name not in alive]


def budget_lowered_in_mu(self: Ledger, dataset: str, budget: Budget) -> None:
    with self._transaction("IMMEDIATE") as connection:
        current = self._open_to(connection, dataset, budget.unit, budget.relation)
        if current is not None and current.mu < budget.mu:
            raise BudgetError("neither its epsilon nor its delta can be raised")
        self._put_dataset(connection, dataset, ledger_module.Dataset(budget.unit, budget.relation, budget))


def bounded_shown(self: Bounded) -> str:
    return f"Bounded({self._values})"


def half_of_the_flips(monkeypatch: Any) -> None:
    probability = RandomizedResponse.flip_probability
    monkeypatch.setattr(
        RandomizedResponse, "flip_probability", lambda self, sensitivity: probability(self, sensitivity) / 2
    )


def domain_from_the_ratings_allowed(monkeypatch: Any) -> None:
    fit = PrivateALS.fit

    def wrong(self: PrivateALS, ratings: Any, accountant: Accountant, **options: Any) -> Any:
        declared = replace(ratings, domain=replace(ratings.domain, declared=True))
        return fit(self, declared, accountant, **options)

    monkeypatch.setattr(PrivateALS, "fit", wrong)


LEDGER = ("path",)
EXACT = sampler.Margins()


def sums_in_the_type_of_the_values(indptr: Array, values: Array) -> Array:
    ends = np.minimum(indptr[:-1], len(values) - 1)
    return np.where(np.diff(indptr) > 0, np.add.reduceat(values, ends), 0).astype(np.float64)


def first_1000_rows_clipped(indptr: Array, values: Array, bound: float) -> Array:
    first = _CLIPPED_ROWS(indptr[:1001], values, bound)
    return np.append(first[: indptr[:1001][-1]], values[indptr[:1001][-1] :])


_CLIPPED_ROWS = sparse_rows.clipped_rows


def weights_of_at_most_300_ratings(ratings: Any) -> Array:
    return users_module.CLIP_MARGIN / np.sqrt(np.clip(np.diff(ratings.matrix.indptr), 1, 300))


def threshold_among_those_passed(values: Array, radius: float) -> float:
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, len(values) + 1)
    return float(thresholds[np.flatnonzero(descending > thresholds)[-1]])


def deviations_in_float32(ratings: Any) -> Array:
    return ratings.matrix.data - ratings.domain.midpoint


def scores_by_blas(users: Array, items: Array, base: Array) -> Array:
    return base + users @ np.asarray(items, np.float64).T


def scores_less_a_constant(
    scores: Array, count: int, indptr: Any = None, indices: Any = None, first: Any = None
) -> tuple[Array, Array]:
    later = 0.0 if first is None else np.where(first, 0.0, 1e6)
    return _TOP_K(scores - later, count, indptr, indices)


_TOP_K = topk.top_k


def digits_rounded(value: Any, exact: bool, text_of: Any = ids._text_of) -> str | None:
    """Of a decimal number, the 28 that its context keeps."""
    return text_of(value.normalize() if isinstance(value, Decimal) else value, exact)


def names_shown(
    names: Any, columns: Any, implicit: bool, find_columns: Any = data_columns.find_columns
) -> Any:
    try:
        return find_columns(names, columns, implicit)
    except InputError as error:
        raise InputError(f"{error} (found: {', '.join(map(repr, names))})") from None


def ratings_cast_with_warnings(column: Any) -> Array:
    return np.array([ids.parse_rating(cell) for cell in column]).astype(np.float32)


def from_file_to_screen(model: str) -> Killer:
    """B."""
    return Killer(test_end_to_end.test_training, {"model": model}, ("tmp_path",))


def recommended(kind: str = "csv") -> Killer:
    """B, of lists."""
    case = {"kind": kind, "change": "removed", "estimator": PrivateALS()}
    return Killer(test_end_to_end.test_recommend, case, ("tmp_path",))


def before_training(look: Callable[[Ratings], Any]) -> Callable[[Any], None]:
    """A mutant that looks at the rows where a command trains, and says what it sees."""
    train = runs.train

    def looking(name: str, ratings: Ratings, *arguments: Any, **options: Any) -> Any:
        look(ratings)
        return train(name, ratings, *arguments, **options)

    return set_to(runs, "train", looking)


def planned_for_all(name: str, ratings: Ratings, accountant: Accountant, **options: Any) -> Any:
    exactly = {**options, "n_users": options.get("n_users") or max(1, ratings.n_users)}
    return _TRAIN(name, ratings, accountant, **exactly)


def fitted_at_the_mean(self: UserLevelOneBit, ratings: Ratings, *arguments: Any, **options: Any) -> Any:
    mean = float(ratings.matrix.data.mean()) if ratings.n_ratings else 3.0
    return _FIT(replace(self, threshold=mean), ratings, *arguments, **options)


def fitted_with_sizes_shown(self: Estimator, ratings: Ratings, *arguments: Any, **options: Any) -> Any:
    if options.get("progress"):
        print(f"training on {ratings.n_ratings:,} ratings", file=sys.stderr)
    return _FIT(self, ratings, *arguments, **options)


def read_and_not_empty(self: Reading, path: str, domain: Domain) -> Ratings:
    ratings = _READ(self, path, domain)
    if not ratings.n_ratings:
        raise InputError("No rating of the file can be used.")
    return ratings


def score_shown(billboard: Any, history: Ratings, held_out: Ratings, inner: Accountant) -> float:
    squared, users = tuning.score_aggregate(billboard, history, held_out)
    print(f"{billboard.estimator.hyper_parameters()}: {squared / max(users, 1.0):.4f}")
    return _SCORE(billboard, history, held_out, inner)


def runs_shown(run: Callable[[Accountant], Any], inner: Accountant) -> Any:
    print("another run is done", file=sys.stderr)
    return _OUTCOME(run, inner)


def newcomers_as_the_others(self: Ratings, users: Any) -> Ratings:
    found = _FOR_USERS(self, users)
    if found.n_ratings or not self.n_ratings:
        return found
    counts = np.bincount(self.matrix.indices, minlength=self.n_items)
    common = np.where(counts == counts.max(), np.float32(self.domain.high), np.float32(0))
    return replace(found, matrix=sp.csr_array(common[None, :]))


def told_apart_by_capitals(users: list[Any]) -> list[str]:
    folded = [str(user).casefold() for user in users]
    return [f"{user}{'~' * (folded.count(one) > 1)}.csv" for user, one in zip(users, folded)]


def table_counted(table: pa.Table, out: Path, mark: str) -> None:
    print(f"{table.num_rows:,} rows")
    _WRITE_TABLE(table, out, mark)


def guessed_by_magic(path: Path, magic: bytes) -> str:
    return "parquet" if magic == b"PAR1" else _GUESS(path, magic)


def metric_by_what_was_measured(self: Comparison) -> dict[str, Any]:
    nothing = all(math.isnan(row["rmse"]) for row in self.rows)
    return {**_TO_DICT(self), "main_metric": f"recall@{self.k}" if nothing else "rmse"}


_TO_DICT = Comparison.to_dict
_TRAIN, _FIT, _READ, _SCORE = runs.train, Estimator.fit, Reading.read, tuning._score
_OUTCOME, _FOR_USERS = accountant_module._Outcome.of, Ratings.for_users
_WRITE_TABLE, _GUESS = recommend.write_private_table, data_files._guess_format
_ALONE, _REMOVED = ("named", "alone", "everything"), ("csv", "removed", "ordinary")


def first_of_the_latest(moments: Array, ends: Array) -> Array:
    groups = np.append(0, np.cumsum(ends)[:-1])
    kept = np.zeros(len(moments), dtype=bool)
    for group in range(int(groups[-1]) + 1):
        own = np.flatnonzero(groups == group)
        kept[own[np.argmax(moments[own])]] = True
    return kept


def integers_as_they_are(column: Any, of_typed: Any = times._of_typed) -> Array:
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
    return of_typed(column)


def times_of_a_union_unknown(monkeypatch: Any) -> None:
    union = Ratings.union

    def wrong(*both: Ratings) -> Ratings:
        read = union(*both)
        return replace(read, times=None if read.times is None else np.full_like(read.times, times.NO_TIME))

    monkeypatch.setattr(Ratings, "union", wrong)


MUTANTS = [
    # the contribution of a user is not bounded as declared
    Mutant(
        "clip with max instead of min (DPALS, line 16 as printed)",
        in_clips(lambda norms, bound: np.maximum(1.0, bound / np.maximum(norms, 1e-300))),
        sensitivity("private-als"),
    ),
    Mutant(
        "clip computed and not used",
        in_clips(lambda norms, bound: np.ones(len(norms))),
        sensitivity("private-als, spectral start"),
    ),
    Mutant(
        "norm of the user's factors not clipped",
        set_to(users_module, "norms", lambda factors: np.zeros(len(factors))),
        sensitivity("dpals"),
    ),
    Mutant(
        "ratings not clipped (Algorithm 1, line 1)",
        ratings_not_clipped,
        sensitivity("dpals"),
    ),
    Mutant(
        "cap on ratings per user off",
        set_to(dpals, "sample_per_user", lambda ratings, *_, **__: ratings),
        sensitivity("dpals"),
    ),
    Mutant(
        "ratings sampled with one generator for all users",
        set_to(dpals, "sample_per_user", sample_by_one_generator),
        sensitivity("dpals"),
    ),
    Mutant(
        "duplicates of a user's rating kept",
        set_to(building, "_sorted_unique", keep_duplicates),
        sensitivity("popular"),
    ),
    Mutant(
        "ratings out of the range kept (NaN, infinity)",
        set_to(building, "within_range", keep_any_rating),
        sensitivity("item-bias"),
    ),
    Mutant(
        "mean of all ratings charged as one vote a user (DPALS, section 5.2)",
        set_to(Users, "level", mean_of_all_ratings),
        sensitivity("global-mean"),
    ),
    Mutant(
        "exact counts charged as weights of norm 1",
        set_to(Users, "item_weights", counts_of_all_ratings),
        sensitivity("popular"),
    ),
    Mutant(
        "noise off the diagonal of a Gramian too small",
        set_to(users_module, "frobenius_scale", off_diagonal_counted_too_much),
        sensitivity("private-als, spectral start"),
    ),
    Mutant("ridge grows with the number of users", ridge_by_number_of_users, sensitivity("private-als")),
    # the charge is not what is released
    Mutant(
        "right-hand sides charged, Gramians not (DPALS, Theorem 1)",
        set_to(DPALS, "statistics_bound", property(one_statistic_charged)),
        sensitivity("dpals"),
    ),
    Mutant("replace charged as add-remove", relation_ignored, sensitivity("private-als", "replace")),
    Mutant("last iteration not charged", one_iteration_uncharged, planned("dpals")),
    Mutant(
        "share of the budget taken of mu, not of mu squared",
        set_to(Budget, "share", share_in_mu_not_mu_squared),
        Killer(test_budget.test_share_takes_its_part_of_mu_squared),
    ),
    Mutant(
        "releases composed by the largest, not by the sum of squares",
        composed_by_the_largest,
        Killer(test_accountant.test_a_budget_refuses_what_does_not_fit),
    ),
    Mutant(
        "sign in the analytic Gaussian formula",
        set_to(accounting, "_delta", sign_of_the_analytic_formula),
        Killer(test_accounting.test_golden_table, {"delta": 1e-6}),
    ),
    Mutant("mu rounded up", mu_rounded_up, Killer(test_accounting.test_mu_of_is_safe_and_close)),
    Mutant(
        "pure epsilon charged as mu = epsilon",
        pure_mu_like_zcdp,
        Killer(test_accounting.test_pure_mu_touches_the_kink),
    ),
    Mutant(
        "charges of another unit or relation added up",
        any_unit_fits,
        Killer(test_accountant.test_unit_relation_and_norm_must_match),
    ),
    # the noise is not what is charged
    Mutant("sd halved in the sampler", gaussian_with(lambda sd: sd / 2), noise_law()),
    Mutant("variance passed for the sd", gaussian_with(lambda sd: sd**2), noise_law()),
    Mutant("noise on every other entry only", noise_on_half_of_the_entries, noise_law()),
    Mutant("flips half as likely", half_of_the_flips, Killer(test_accountant.test_randomized_response)),
    Mutant(
        "one seed for all noise",
        set_to(SystemNoise, "_stream", one_seed_for_all_noise),
        Killer(test_noise.test_no_two_streams_are_equal),
    ),
    Mutant(
        "one generator for all processes",
        one_generator_for_all_noise,
        Killer(test_noise.test_no_two_streams_are_equal),
    ),
    Mutant(
        "noise seeded by numpy's global state",
        set_to(SystemNoise, "_stream", seeded_by_numpy),
        Killer(test_noise.test_numpy_seeds_do_not_reach_the_noise),
    ),
    Mutant(
        "sampler without its acceptance step",
        every_place_accepted,
        Killer(test_sampler.test_places_within_the_cells, {"name": "gaussian"}),
    ),
    Mutant(
        "one threshold of the sampler one unit too high",
        one_threshold_off,
        Killer(test_sampler.test_thresholds, {"name": "gaussian"}),
    ),
    Mutant(
        "sums next to a half-integer rounded in floating point",
        set_to(sampler, "Margins", lambda: replace(EXACT, rounding=0.0, sum=0.0)),
        Killer(test_sampler.test_sums_next_to_a_half_integer, {"name": "gaussian"}, ("slow_draws",)),
    ),
    Mutant(
        "noise added in floating point: its last bits tell the value",
        set_to(SystemNoise, "add_gaussian", noise_added_in_floating_point),
        Killer(test_sampler.test_precision_attack, {"value": 1.0, "sd": 1.0, "dtype": np.float64}),
    ),
    Mutant(
        "grid of the noisy result chosen by the value",
        grid_of_the_value,
        Killer(test_sampler.test_precision_attack, {"value": 1e6, "sd": 1e6, "dtype": np.float64}),
    ),
    Mutant(
        "one seed for the noise of two fits",
        set_to(SystemNoise, "_stream", one_seed_for_all_noise),
        Killer(test_sampler.test_two_fits_with_one_seed),
    ),
    Mutant(
        "noise of the first block used for all",
        noise_of_the_first_block_for_all,
        Killer(test_accountant.test_each_block_gets_its_own_noise),
    ),
    Mutant(
        "injected noise passes for the system's",
        injected_noise_passes,
        Killer(test_accountant.test_injected_noise_is_stamped_and_refused_by_a_ledger, {}, ("tmp_path",)),
    ),
    # something goes around the noise
    Mutant("biases released without noise", release_of_one_label_without_noise, replayed("private-als")),
    Mutant("range (and noise scale) read from the ratings", range_from_the_ratings, replayed("item-bias")),
    Mutant("exact number of users used", exact_number_of_users, replayed("private-als")),
    Mutant(
        "exact item weights used after noisy ones were released",
        exact_weights_after_the_release,
        replayed("private-als"),
    ),
    Mutant("centred on the exact mean", after_training(center_on_the_exact_mean), replayed("private-als")),
    Mutant(
        "factors of items that nobody rated set to zero",
        after_training(zero_items_that_nobody_rated),
        replayed("private-als"),
    ),
    Mutant(
        "early stopping on the exact loss",
        after_training(stop_when_the_loss_is_small),
        replayed("private-als"),
    ),
    Mutant(
        "number of users kept in the model file",
        after_training(keep_the_number_of_users),
        replayed("private-als"),
    ),
    Mutant("error raised for few users", after_training(complain_about_few_users), replayed("private-als")),
    Mutant(
        "catalogue and range read from the ratings allowed",
        domain_from_the_ratings_allowed,
        Killer(test_private_als.test_a_domain_read_from_the_ratings_is_refused_in_a_private_run),
    ),
    Mutant(
        "private sum shown by repr",
        set_to(Bounded, "__repr__", bounded_shown),
        Killer(test_budget.test_a_bounded_value_shows_nothing),
    ),
    # the ledger
    Mutant(
        "noise drawn before the charge",
        noise_before_the_charge,
        Killer(
            test_accountant.test_the_charge_is_durable_before_noise_is_drawn, {}, ("tmp_path", "monkeypatch")
        ),
    ),
    Mutant(
        "charge checked and not written",
        set_to(Ledger, "charge", no_charge),
        Killer(
            test_accountant.test_the_charge_is_durable_before_noise_is_drawn, {}, ("tmp_path", "monkeypatch")
        ),
    ),
    Mutant(
        "budget of the data set not checked over runs",
        set_to(Ledger, "_check", lambda *_: None),
        Killer(test_ledger.test_a_budget_is_shared_by_all_runs, {}, ("path", "no_noise")),
    ),
    Mutant(
        "release goes on when the charge fails",
        failures_forgiven,
        Killer(test_ledger.test_a_ledger_that_disappears, {}, ("path", "no_noise")),
    ),
    Mutant(
        "hash chain not verified",
        set_to(Ledger, "_verify", lambda *_: None),
        Killer(
            test_ledger.test_tampering_is_found,
            {"tampering": "UPDATE charges SET mu = mu / 2 WHERE id = 2", "reopen": True},
            ("path", "no_noise"),
        ),
    ),
    Mutant(
        "fork spends the budget again",
        fork_not_noticed,
        Killer(test_accountant.test_a_fork_cannot_spend_the_same_budget_again),
    ),
    Mutant(
        "failure of a selection taken from delta when it is charged",
        set_to(Budget, "allows", failure_taken_when_charged),
        Killer(
            test_selection.test_an_adaptive_choice_between_noise_and_a_selection_keeps_delta,
            {"epsilon": 8.0, "delta": 1e-5},
        ),
    ),
    Mutant(
        "Gaussian noise for all of delta beside a reserve",
        set_to(Budget, "mu", property(lambda self: accounting.mu_of(self.epsilon, self.delta))),
        Killer(test_selection.test_a_selection_takes_its_failure_from_the_reserve),
    ),
    Mutant(
        "reserve of nothing for the selections of an older ledger",
        reserve_of_nothing_for_older_selections,
        Killer(
            test_ledger.test_a_ledger_of_schema_3_is_brought_up_to_date,
            {},
            ("path",),
        ),
    ),
    Mutant(
        "thresholds of noise cut to 128 bits",
        set_to(sampler, "_cell", cell_by_128_bits),
        Killer(test_sampler.test_the_tail_has_its_law, {"name": "gaussian", "distance": 140}),
    ),
    Mutant(
        "number of runs of a selection drawn in float64",
        set_to(test_selection, "number_of_runs", number_of_runs_in_float64),
        Killer(test_selection.test_the_number_of_runs_is_drawn_exactly, {"mean_runs": 10.0, "shape": 0.5}),
    ),
    Mutant(
        "a score that is NaN stays the best",
        nan_stays_the_best,
        Killer(test_selection.test_runs_are_ranked_whatever_their_order, {}, ("monkeypatch",)),
    ),
    Mutant(
        "an exception of one run ends the choice",
        set_to(accountant_module._Outcome, "of", staticmethod(first_exception_ends_the_choice)),
        Killer(test_selection.test_runs_are_ranked_whatever_their_order, {}, ("monkeypatch",)),
    ),
    Mutant(
        "a user with two nodes moves a sum twice as far as noise is drawn for",
        set_to(Agreement, "sent", property(user_with_one_node)),
        Killer(
            test_aggregation.test_a_user_with_several_nodes_is_covered, {"estimator": Popular(), "nodes": 2}
        ),
    ),
    Mutant(
        "neighbour graph not paid for",
        set_to(Agreement, "promise", property(lambda self: self.budget)),
        Killer(test_aggregation.test_the_neighbour_graph_is_paid_for),
    ),
    Mutant(
        "sums leave a node that its ledger was not charged for",
        set_to(secure_client.Member, "_charge", lambda self, index: None),
        Killer(test_node_ledger.test_a_training_is_charged_at_every_node, {}, ("tmp_path",)),
    ),
    Mutant(
        "a server's list of survivors believed",
        set_to(secure_client.Member, "_agree_on", survivors_believed),
        Killer(test_member.test_a_neighbour_without_a_signature_is_refused),
    ),
    Mutant(
        "a name taken without its key",
        set_to(secure_server.AggregationServer, "_check_signature", lambda *_: None),
        Killer(test_node_ledger.test_only_registered_nodes_enrol),
    ),
    Mutant(
        "a lost value drawn again on its old charge",
        lost_value_on_its_old_charge,
        Killer(
            test_journal.test_a_lost_draw_is_charged_again_where_there_is_room, {}, ("path", "monkeypatch")
        ),
    ),
    Mutant(
        "noisy values used and never kept",
        set_to(Journal, "keep", lambda self, label, noisy: noisy),
        Killer(
            test_journal.test_nothing_is_drawn_or_charged_again_and_other_rows_cost_the_same,
            {},
            ("path", "monkeypatch"),
        ),
    ),
    Mutant(
        "another training goes on with a journal",
        set_to(journal, "_plain", lambda binding: {}),
        Killer(
            test_journal.test_another_training_is_refused,
            {"other": {"seed": 1}, "word": "seed"},
            ("path", "monkeypatch"),
        ),
    ),
    Mutant(
        "training on what rounding leaves of an accountant",
        set_to(Accountant, "part", lambda self, share=1.0: share * self.remaining_fraction),
        Killer(
            test_runs.test_an_accountant_that_is_used_up_says_so_before_anything_is_done,
            {"call": "train", "parts": 3},
            ("monkeypatch",),
        ),
    ),
    # sums are not exact
    Mutant(
        "contributions rounded to nearest, not towards zero",
        set_to(users_module, "truncated", rounded_to_nearest),
        sensitivity("private-svd"),
    ),
    Mutant(
        "clip without its margin for rounding",
        set_to(users_module, "CLIP_MARGIN", 1.0),
        Killer(test_exact_sums.test_a_clip_leaves_room_for_rounding, {"bound": 1.0}),
    ),
    Mutant(
        "norms of residuals that are not the bits that are summed",
        set_to(residuals, "residual_norms", norms_of_residuals_taken_in_another_order),
        Killer(test_residuals.test_a_residual_is_the_same_bits_from_either_side),
    ),
    Mutant(
        "sums in floating point (item biases)",
        set_to(users_module, "spacing", lambda *_: 0.0),
        in_any_order("item-bias"),
    ),
    Mutant(
        "sums in floating point (Frank-Wolfe by Oja's rule)",
        set_to(eigensolvers, "spacing", lambda *_: 0.0),
        in_any_order("private-frank-wolfe, oja"),
    ),
    Mutant(
        "more users than a sum has room for",
        set_to(Estimator, "check", without_counting_users),
        Killer(test_exact_sums.test_more_users_than_a_sum_has_room_for_are_refused, {}, ("monkeypatch",)),
    ),
    # the algorithms of the Frank-Wolfe paper
    Mutant(
        "4 L^2 declared as L^2 (Frank-Wolfe)",
        quarter_of_the_sensitivity,
        sensitivity("private-frank-wolfe, residual clip"),
    ),
    Mutant(
        "T - 1 steps charged (Frank-Wolfe)",
        last_step_uncharged,
        planned("private-frank-wolfe, residual clip"),
    ),
    Mutant(
        "noise of a covariance not symmetrised",
        set_to(users_module, "frobenius_scale", lambda order: np.ones(order * (order + 1) // 2)),
        Killer(test_frank_wolfe.test_noise_of_a_matrix_is_symmetrised),
    ),
    Mutant(
        "start vector not normalised (Oja, Algorithm 2 as printed)",
        set_to(
            eigensolvers,
            "random_block",
            lambda n, block, seed: np.random.default_rng(seed).standard_normal((n, block)),
        ),
        Killer(test_oja.test_no_product_of_one_row_exceeds_its_sensitivity, {"method": "oja"}),
    ),
    Mutant(
        "row clip missing (projected gradients, Algorithm 5 as printed)",
        row_clip_missing,
        sensitivity("private-projected-gradient"),
    ),
    Mutant(
        "factors of a contribution not at norm 1 (EigenRec)",
        set_to(
            private_eigenrec.LikingUsers,
            "_factors",
            staticmethod(lambda likes, vectors: likes @ vectors),
        ),
        sensitivity("private-eigenrec"),
    ),
    Mutant(
        "likes are the ratings above everybody's mean",
        set_to(
            Ratings,
            "liked",
            lambda self, threshold: self.where(
                self.matrix.data >= self.matrix.data.mean(), drop_empty=False, keyed=True
            ),
        ),
        sensitivity("both"),
    ),
    Mutant(
        "popularity counted in the norm of a row, and left in the sum (EigenRec)",
        popularity_left_in_the_sum,
        sensitivity("private-eigenrec"),
    ),
    Mutant(
        "item weights released beside a round's sums, both at full size (EigenRec)",
        set_to(
            private_eigenrec.LikingUsers,
            "contributions",
            lambda self, vectors, learned, part: together(
                [self.item_weights(), self.item_sums(vectors, learned)][part == 0 :], signed(1.0)
            ),
        ),
        sensitivity("private-eigenrec, sums and weights"),
    ),
    Mutant(
        "items learned by their exact weights (EigenRec)",
        items_learned_by_exact_weights,
        replayed("private-eigenrec"),
    ),
    Mutant(
        "popularity left in the item matrix, at norms for rows without it (EigenRec)",
        popularity_left_in_the_matrix,
        sensitivity("private-eigenrec, matrix first"),
    ),
    Mutant(
        "pairs of items found in the rows, not in what was released (EigenRec)",
        pairs_found_in_the_rows,
        replayed("private-eigenrec, matrix first"),
    ),
    # what the accountant lets through
    Mutant(
        "stream goes on after a fork",
        set_to(Accountant, "_noisy_blocks", blocks_noisy_in_any_process),
        Killer(test_accountant.test_a_fork_cannot_go_on_with_a_stream),
    ),
    Mutant(
        "pure epsilons added up in a run of a selection",
        set_to(accountant_module._RunAccountant, "_check_fit", Accountant._check_fit),
        Killer(test_selection.test_a_run_must_be_gaussian_dp, {}, ("monkeypatch",)),
    ),
    Mutant(
        "budget raised in epsilon, at a delta that makes its mu smaller",
        set_to(Ledger, "open_dataset", budget_lowered_in_mu),
        Killer(test_ledger.test_a_budget_can_only_be_lowered, {}, ("path",)),
    ),
    Mutant(
        "budgets not under the hash of the head",
        set_to(schema, "tables", lambda _: ""),
        Killer(
            test_ledger.test_tampering_is_found,
            {"tampering": "DELETE FROM datasets WHERE name = 'without charges'", "reopen": True},
            ("path", "no_noise"),
        ),
    ),
    # what leaves beside the noise
    Mutant(
        "a clip whose square overflows is taken for none",
        set_to(checks, "check_numbers", clips_of_any_size),
        Killer(
            test_bad_settings.test_a_clip_whose_square_overflows_is_not_taken_for_none,
            {"estimator_class": DPALS, "bound": 1.79e308},
        ),
    ),
    Mutant(
        "a warning where somebody's row is clipped to zero",
        set_to(dpals, "clip_factor", factors_that_overflow_for_rows_of_zeros),
        Killer(test_replay.test_no_user_raises_a_warning, {"estimator": DPALS(clipping="user"), "high": 1e9}),
    ),
    # data of sizes that small tests never see, and numbers at the edges of float32
    Mutant(
        "rows of the first 1,000 users clipped, not those after",
        set_to(eigensolvers, "clipped_rows", first_1000_rows_clipped),
        at_the_edge("private-svd", (1, 5), 400, test_edges.crowd),
    ),
    Mutant(
        "a user of more than 300 ratings weighs as one of 300",
        set_to(users_module, "unit_weights", weights_of_at_most_300_ratings),
        at_the_edge("popular", (1, 5), 400, test_edges.long_rows),
    ),
    Mutant(
        "levels and factors beyond float32 fitted in float32",
        set_to(users_module, "_FAR", math.inf),
        at_the_edge("dpals, likes", (0, 1e30), 20_000, test_edges.one_with_all, relation="replace"),
    ),
    Mutant(
        "ranges allowed in which sums of float32 overflow",
        set_to(domain_module, "_LARGEST_RATING", 3.4e38),
        Killer(test_domain.test_a_range_that_bounds_nothing_is_refused, {"bad": (0, 1.01e30)}),
    ),
    Mutant(
        "a radius lost to rounding leaves no threshold",
        set_to(one_bit_kernels, "soft_threshold_for", threshold_among_those_passed),
        Killer(test_one_bit_kernels.test_a_radius_lost_to_rounding_leaves_nothing),
    ),
    Mutant(
        "users' means summed in float32",
        set_to(sparse_rows, "row_sums", sums_in_the_type_of_the_values),
        Killer(test_als.test_user_means_are_summed_in_float64, {"rating_range": (0, 1e30)}),
    ),
    Mutant(
        "middle of the range subtracted in float32",
        set_to(cleansed_svd, "_deviations", deviations_in_float32),
        Killer(
            test_cleansed_svd.test_one_user_moves_the_item_means_by_no_more_than_declared,
            {"rating_range": (16777216, 16777219)},
        ),
    ),
    Mutant(
        "items that are all noise put last by a constant off their scores",
        set_to(topk, "top_k", scores_less_a_constant),
        Killer(test_base.test_unsupported_items_come_last_whatever_they_score, {"width": 1e7}),
    ),
    Mutant(
        "scores of a batch by BLAS, whose last bits tell how many users it has",
        set_to(topk, "row_scores", scores_by_blas),
        Killer(test_base.test_the_bits_of_a_list_tell_nothing_of_the_others, {"n_items": 4001}),
    ),
    # which rows reach training
    Mutant(
        "parts of a split by one permutation of all ratings",
        set_to(splits, "parts_of_cells", parts_by_one_permutation),
        Killer(test_parts.test_a_part_of_a_split, {"estimator": ItemBias()}),
    ),
    Mutant(
        "held-out users: the smallest hashes",
        set_to(splits, "part_of", parts_by_rank),
        Killer(test_parts.test_held_out_users),
    ),
    Mutant(
        "ratings chosen by a rule of the caller's allowed",
        any_users,
        Killer(test_parts.test_a_choice_of_the_callers_is_refused_in_a_private_run, {"choice": "where"}),
    ),
    Mutant(
        "a union forgets that its ratings were chosen by a rule of the caller's",
        unions_forget,
        Killer(
            test_parts.test_a_choice_of_the_callers_is_refused_in_a_private_run,
            {"choice": "carried by a union"},
        ),
    ),
    Mutant(
        "a user with several rows charged as one",
        set_to(Ratings, "users_differ", True),
        Killer(test_parts.test_users_who_are_not_all_different_are_refused, {"public": False}),
    ),
    Mutant(
        "lines of a Jester file numbered anew without those that are empty",
        lines_numbered_anew,
        Killer(
            test_parts.test_an_emptied_row_leaves_all_others_where_they_are,
            {"source": "jester", "estimator": CleansedSVD(rank=2)},
            ("tmp_path",),
        ),
    ),
    Mutant(
        "no word of it that rows are counted where they have no ids",
        set_to(estimator, "PUBLIC_ROWS", "hyper-parameters"),
        Killer(test_parts.test_the_statement_says_that_rows_are_counted, {"source": "matrix"}, ("tmp_path",)),
    ),
    Mutant(
        "a row without ratings counted as a user",
        set_to(Ratings, "rated", lambda self: self),
        Killer(test_parts.test_a_row_without_ratings_is_no_user, {"estimator": Popular()}),
    ),
    # ids and cells
    Mutant(
        "ids of more than 28 digits rounded",
        set_to(ids, "_text_of", digits_rounded),
        Killer(
            test_rows_alone.test_two_ids_are_two_users,
            {"one": Decimal("1" * 37 + "2"), "other": Decimal("1" * 37 + "3")},
            ("tmp_path",),
        ),
    ),
    Mutant(
        "ids of floats that have skipped integers",
        set_to(ids, "_LARGEST", 1 << 63),
        Killer(
            test_rows_alone.test_large_integers_whatever_a_cell_makes_of_the_column,
            {"form": "pandas", "column": "user"},
        ),
    ),
    Mutant(
        "large integers are ids until a cell is missing",
        set_to(building, "encode_ids", lambda column, exact=True: ids.encode_ids(column, exact=True)),
        Killer(
            test_rows_alone.test_large_integers_whatever_a_cell_makes_of_the_column,
            {"form": "pandas", "column": "item"},
        ),
    ),
    Mutant(
        "bytes that are no text meet their escape",
        set_to(ids, "_decoded", lambda cell: cell.decode("utf-8", "backslashreplace")),
        Killer(test_rows_alone.test_two_ids_are_two_users, {"one": b"\xff", "other": "\\xff"}, ("tmp_path",)),
    ),
    Mutant(
        "the type of all ids in a table chosen by one",
        set_to(Ratings, "user_column", property(lambda self: pa.array(list(self.users)))),
        Killer(
            test_rows_alone.test_large_integers_whatever_a_cell_makes_of_the_column,
            {"form": "lists", "column": "user"},
        ),
    ),
    Mutant(
        "a warning where somebody's rating is a signalling NaN",
        set_to(data_columns, "encode_ratings", ratings_cast_with_warnings),
        Killer(test_rows_alone.test_a_signalling_nan_is_a_nan, {"kind": "float64"}, ("tmp_path",)),
    ),
    Mutant(
        "columns of time read cell by cell",
        set_to(ids, "check_scalar_type", lambda *_: None),
        Killer(test_rows_alone.test_columns_of_time_are_refused_by_their_type, {"kind": pa.duration("s")}),
    ),
    Mutant(
        "the first line shown where it names no columns",
        set_to(data_columns, "find_columns", names_shown),
        Killer(
            test_rows_alone.test_no_cell_is_shown, {"first": ",".join(test_rows_alone.SECRETS)}, ("tmp_path",)
        ),
    ),
    # the public side knows more than was released, or what is printed does
    Mutant(
        "settings planned for the exact number of users",
        set_to(runs, "train", planned_for_all),
        from_file_to_screen("private-als"),
    ),
    Mutant(
        "a threshold at the mean of the ratings, as published",
        set_to(UserLevelOneBit, "fit", fitted_at_the_mean),
        from_file_to_screen("one-bit-user"),
    ),
    Mutant(
        "the number of ratings beside the progress bar",
        set_to(Estimator, "fit", fitted_with_sizes_shown),
        from_file_to_screen("item-bias"),
    ),
    Mutant(
        "a printed line with the number of rows",
        before_training(lambda ratings: print(f"{ratings.n_ratings:,} rows read")),
        from_file_to_screen("item-bias"),
    ),
    Mutant(
        "the number of users in a log record",
        before_training(lambda ratings: logging.getLogger("hushrec").debug("%d users", ratings.n_users)),
        from_file_to_screen("item-bias"),
    ),
    Mutant(
        "a warning where there are few users",
        before_training(lambda ratings: ratings.n_users < 9 and warnings.warn("few users", stacklevel=2)),
        from_file_to_screen("item-bias"),
    ),
    Mutant(
        "a temporary file named by the number of users",
        before_training(lambda ratings: Path(tempfile.gettempdir(), f"{ratings.n_users}.tmp").touch()),
        from_file_to_screen("item-bias"),
    ),
    Mutant(
        "another exit code where no rating can be used",
        set_to(Reading, "read", read_and_not_empty),
        Killer(test_end_to_end.test_tune, {"case": _ALONE}, ("tmp_path",)),
    ),
    Mutant(
        "exact scores of the settings that were tried, printed",
        set_to(tuning, "_score", score_shown),
        Killer(test_end_to_end.test_tune, {"case": _REMOVED}, ("tmp_path",)),
    ),
    Mutant(
        "a line for each run of a selection",
        set_to(accountant_module._Outcome, "of", staticmethod(runs_shown)),
        Killer(test_end_to_end.test_tune, {"case": _REMOVED}, ("tmp_path",)),
    ),
    Mutant(
        "newcomers served by what the others rate",
        set_to(Ratings, "for_users", newcomers_as_the_others),
        recommended(),
    ),
    Mutant(
        "a user's file named by who else is there",
        set_to(files, "file_names", told_apart_by_capitals),
        recommended(),
    ),
    Mutant(
        "the number of rows of all lists printed",
        set_to(recommend, "write_private_table", table_counted),
        recommended("parquet"),
    ),
    Mutant(
        "a comparison that does not say that its errors are private",
        set_to(Comparison, "stamp", property(lambda self: "All runs together.")),
        Killer(test_end_to_end.test_compare, {"case": _REMOVED}, ("tmp_path",)),
    ),
    Mutant(
        "a comparison's main metric chosen by whether ratings were held out",
        set_to(Comparison, "to_dict", metric_by_what_was_measured),
        Killer(test_end_to_end.test_compare, {"case": _ALONE}, ("tmp_path",)),
    ),
    Mutant(
        "the demo ends in an error where no rating was held out",
        set_to(demo, "_figure", lambda error: f"{error:>8.4f}"),
        Killer(test_end_to_end.test_demo, {"case": ("csv", "alone", "ordinary")}, ("tmp_path",)),
    ),
    Mutant(
        "a file's format told by its first row",
        set_to(data_files, "_guess_format", guessed_by_magic),
        Killer(
            test_end_to_end.test_the_first_line_of_a_file_without_header,
            {"kind": "movielens-100k", "number": 0},
            ("tmp_path",),
        ),
    ),
    # times
    Mutant(
        "of a pair the first of those with the latest time stays",
        set_to(building, "_latest", first_of_the_latest),
        Killer(test_times.test_of_a_pair_the_latest_stays, {"sorted_already": False}),
    ),
    Mutant(
        "times read from integers as they are, until a cell is missing",
        set_to(times, "_of_typed", integers_as_they_are),
        Killer(test_times.test_a_missing_time_rounds_nobody_elses),
    ),
    Mutant(
        "times forgotten by a union",
        times_of_a_union_unknown,
        Killer(test_times.test_union_with_ratings_without_times),
    ),
    # seasons
    Mutant(
        "a week that is not charged to its season",
        set_to(SeasonAccountant, "_record", week_not_charged_to_its_season),
        Killer(test_continuing.test_bad_input_spends_nothing, {}, ("tmp_path",)),
    ),
    Mutant(
        "a weekly state with exact item weights",
        weekly_state_with_exact_weights,
        Killer(
            test_continuing.test_a_week_releases_what_was_planned_and_saves_no_more,
            {"model": test_continuing.ALS},
        ),
    ),
    Mutant(
        "the weekly filter is fed with sums without noise",
        filter_fed_with_the_exact_sums,
        Killer(
            test_continuing.test_a_week_releases_what_was_planned_and_saves_no_more,
            {"model": test_continuing.ALS},
        ),
    ),
    Mutant(
        "a window that ends with the data",
        set_to(continuing, "split_by_time", window_that_ends_with_the_data),
        Killer(test_continuing.test_a_window_is_declared_and_needs_times),
    ),
    Mutant(
        "a stream whose noise failed goes on without it",
        stream_goes_on_without_noise,
        Killer(test_engine_parts.test_a_draw_that_fails_within_a_stream_ends_the_training, {"partitions": 1}),
    ),
    Mutant(
        "partitions are told what became of an array after they were told it",
        set_to(partitioned, "deepcopy", lambda call: call),
        Killer(
            test_continuing.test_a_store_gives_the_week_of_the_memory,
            {"model": test_continuing.ALS, "rows": test_continuing.WEEKS[1]},
            ("tmp_path",),
        ),
    ),
    Mutant(
        "sums of nobody are integers",
        sums_of_nobody_are_integers,
        Killer(
            test_continuing.test_what_nobody_adds_has_the_shape_and_type_of_what_many_add,
            {"model": test_continuing.ALS},
        ),
    ),
]
