"""The many-run distinguishing test: can an attacker distinguish neighbouring data sets better than claimed?

The attacker knows both generated data sets and scores a run's releases by their likelihood ratio. Many runs
on either side give a lower bound on mu, which exceeds a correct mechanism's mu with probability at most alpha
(Nasr et al. 2023, "Tight auditing of differentially private machine learning").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushrec.audit.bounds import mu_lower_bound
from hushrec.checks import check_numbers
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.models import Estimator
from hushrec.privacy import Budget, Plan, SystemNoise, mu_of_pure, total_mu
from hushrec.privacy.noise import NoiseSource
from hushrec.privacy.testing import NoiseCall, SeededNoise
from hushrec.testing import ratings_of, replay, transcript
from hushrec.types import Array

#: Chance of a false alarm.
ALPHA = 1e-6
#: In units of the separation of the two sides' scores: fixed before any run.
_THRESHOLDS = np.linspace(-1, 1, 5)
_ROUND = 2000  # runs of a single release that are drawn at a time
_OTHERS = 3  # users besides the one in question


@dataclass(frozen=True)
class Pair:
    """Neighbouring data sets, and the mu by which a run can distinguish them."""

    data: Ratings
    neighbour: Ratings
    mu: float


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Outcome of an audit.

    Attributes
    ----------
    name, model : str
    budget : Budget
        The claim.
    claimed_mu : float
        Mu of the plan's releases together. For pure releases (delta 0) it exceeds the budget's mu.
    mu_bound : float
        mu is at least this, but for a chance of `alpha`.
    alpha : float
    inside, outside : ndarray
        Scores of the attacker with the user in the data, and without.
    figures : dict
        ``pair_mu`` is the largest mu that the pair can show if noise and sensitivities are as declared. If it
        is far below the claim, the test cannot see a fault. ``epsilon_lower_bound`` is wrong with a chance of
        `alpha`.
    headline, measured : str
    """

    name: str
    model: str
    budget: Budget
    claimed_mu: float
    mu_bound: float
    alpha: float
    inside: Array
    outside: Array
    figures: dict[str, Any]
    headline: str
    measured: str

    @property
    def violated(self) -> bool:
        epsilon_bound = self.figures.get("epsilon_lower_bound", 0.0)
        return self.mu_bound > self.claimed_mu or epsilon_bound > self.budget.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Without the scores."""
        return {
            "audit": self.name,
            "model": self.model,
            **self.figures,
            **self.budget.promise,
            "claimed_mu": self.claimed_mu,
            "mu_lower_bound": self.mu_bound,
            "confidence": 1 - self.alpha,
            "violated": self.violated,
        }

    def text(self) -> str:
        """Return the claim and the outcome."""
        verdict = "VIOLATED: the claim is refuted" if self.violated else "no violation found"
        return (
            f"{self.headline}\n"
            f"Claimed:   {self.budget}, by releases of mu <= {self.claimed_mu:.4g} together\n"
            f"Measured:  {self.measured}\nVerdict:   {verdict}"
        )


def distinguish(
    estimator: Estimator,
    budget: Budget,
    *,
    runs: int = 2000,
    pair: Pair | None = None,
    domain: Domain | None = None,
    seed: int = 0,
    alpha: float = ALPHA,
    noise: NoiseSource | None = None,
) -> Audit:
    """Run a mechanism many times on both of two neighbouring data sets and bound its mu from below.

    Parameters
    ----------
    estimator : Estimator
    budget : Budget
        The claim under test, with finite epsilon.
    runs : int
        In total, >= 10.
    pair : Pair, optional
        By default the most telling of some extreme users, over `domain`.
    domain : Domain, optional
        By default 8 items with ratings from 1 to 5.
    seed : int
        Seeds the generated users and the training.
    alpha : float
        Chance of a false alarm.
    noise : NoiseSource, optional
        For tests.

    Examples
    --------
    >>> from hushrec.audit.distinguish import distinguish
    >>> found = distinguish(hushrec.models.GlobalMean(), hushrec.Budget(1, 1e-5), runs=1000)
    >>> found.violated
    False
    """
    check_numbers(runs=(runs, int, "[10, inf)"))
    if not budget.private:
        raise InputError(
            "An infinite epsilon claims nothing that could be tested; pass a finite one.", parameter="epsilon"
        )
    source: NoiseSource = SystemNoise() if noise is None else noise
    domain = pair.data.domain if pair else domain or Domain(tuple("abcdefgh"), rating_range=(1, 5))
    plan = estimator.plan(budget, domain)
    pair = pair or worst_pair(estimator, plan, domain, seed)
    forth = _scores(estimator, plan, pair.data, pair.neighbour, runs // 2, seed, source)
    back = -_scores(estimator, plan, pair.neighbour, pair.data, runs - runs // 2, seed, source)
    mu_bound = bound_of_scores(forth, back, pair.mu, alpha)
    return Audit(
        name="distinguish",
        model=estimator.name,
        budget=budget,
        claimed_mu=plan.mu,
        mu_bound=mu_bound,
        alpha=alpha,
        inside=forth,
        outside=back,
        figures={"runs": runs, "pair_mu": pair.mu},
        headline=f"Distinguishing test of {estimator.name}: {runs:,} runs on two generated neighbours",
        measured=f"mu >= {mu_bound:.4g}, wrong with chance {alpha:g}\nThis pair: shows mu = {pair.mu:.4g} if"
        " noise and sensitivities are as declared",
    )


def bound_of_scores(inside: Array, outside: Array, mu: float, alpha: float) -> float:
    """Return the largest mu that log-likelihood ratios refute; `mu` is the expected one."""
    return mu_lower_bound(inside, outside, _THRESHOLDS * (mu**2 / 2 + mu), alpha)


def distance(calls: Sequence[NoiseCall], others: Sequence[NoiseCall]) -> float:
    """Return the mu between the values of two transcripts."""
    mus = []
    for one, other in zip(calls, others, strict=True):
        moved = np.abs(one.value.astype(np.float64) - other.value) / one.amount
        if one.kind == "gaussian":
            mus.append(float(np.sqrt((moved**2).sum())))
        elif one.kind == "laplace":
            mus.append(mu_of_pure(float(moved.sum())))
        else:
            log_odds = math.log((1 - float(one.amount)) / float(one.amount))
            mus.append(mu_of_pure(log_odds * int((one.value != other.value).sum())))
    return total_mu(mus)


def worst_pair(estimator: Estimator, plan: Plan, domain: Domain, seed: int) -> Pair:
    best: Pair | None = None
    for data, neighbour in _pairs(domain, plan.budget, seed):
        calls = transcript(estimator, plan, data, seed, SeededNoise(seed))
        mu = distance(calls, replay(estimator, plan, neighbour, seed, calls))
        if best is None or mu > best.mu:
            best = Pair(data, neighbour, mu)
    assert best is not None
    return best


def _pairs(domain: Domain, budget: Budget, seed: int) -> Iterator[tuple[Ratings, Ratings]]:
    generator = np.random.default_rng(seed)
    items = domain.items[: domain.max_ratings_per_user]
    low, high = domain.low, domain.high
    rows = [dict.fromkeys(items[:count], end) for count in {1, 2, len(items)} for end in (low, high)]
    for count in (2, 4, len(items)):
        for _ in range(4):
            chosen = generator.permutation(len(items))[:count]
            rows.append({items[j]: float(generator.choice([low, high])) for j in chosen})
    others = {f"other {i}": rows[-1 - i] for i in range(_OTHERS)}
    for row in rows:
        data = others | {"target": row}
        if budget.unit == "rating":
            item = next(iter(row))
            changed = {**row, item: low + high - row[item]}
            if budget.relation == "add-remove":
                changed = {key: value for key, value in row.items() if key != item}
            yield _ratings(data, domain), _ratings(others | {"target": changed}, domain)
        elif budget.relation == "add-remove":
            yield _ratings(data, domain), _ratings(others, domain)
        else:
            for changed in ({j: low + high - r for j, r in row.items()}, rows[0], rows[-1]):
                yield _ratings(data, domain), _ratings(others | {"target": changed}, domain)


def _ratings(users: dict[str, dict[Any, float]], domain: Domain) -> Ratings:
    rows = {user: [(user, item, rating) for item, rating in row.items()] for user, row in users.items()}
    return ratings_of(rows, domain)


def _scores(
    estimator: Estimator, plan: Plan, data: Ratings, other: Ratings, runs: int, seed: int, noise: NoiseSource
) -> Array:
    """Log-likelihood ratios of `data` against `other`, of runs on `data`."""
    if len(plan.releases) > 1:
        scores = []
        for _ in range(runs):
            calls = transcript(estimator, plan, data, seed, noise)
            scores.append(_ratio(calls, replay(estimator, plan, other, seed, calls)))
        return np.array(scores)
    # runs of one release differ in their noise only: it is drawn for many at once
    first = transcript(estimator, plan, data, seed, noise)
    second = replay(estimator, plan, other, seed, first)
    scores = []
    for start in range(0, runs, _ROUND):
        shape = (min(_ROUND, runs - start),)
        scores.append(_ratio([_redrawn(call, shape, noise) for call in first], second, axis=0))
    return np.concatenate(scores)


def _redrawn(call: NoiseCall, shape: tuple[int, ...], noise: NoiseSource) -> NoiseCall:
    value = np.broadcast_to(call.value, shape + call.value.shape)
    add = {"gaussian": noise.add_gaussian, "laplace": noise.add_laplace, "flip": noise.flip}[call.kind]
    amount: Any = float(call.amount) if call.amount.ndim == 0 else call.amount
    return replace(call, output=add(value, amount, call.label))


def log_ratios(call: NoiseCall, value: Array, other: Array | float) -> Array:
    """Return the log-likelihood ratios of the outputs for one exact value against another."""
    output, amount = call.output, call.amount
    if call.kind == "gaussian":
        return np.asarray((output - (value + other) / 2) * (value - other) / amount**2)
    if call.kind == "laplace":
        return np.asarray((np.abs(output - other) - np.abs(output - value)) / amount)
    agree = 1.0 * (output == value) - (output == other)
    return np.asarray(agree * np.log((1 - amount) / amount))


def _ratio(calls: Sequence[NoiseCall], others: Sequence[NoiseCall], axis: int | None = None) -> Any:
    total: Any = 0.0
    for call, other in zip(calls, others, strict=True):
        cells = log_ratios(call, call.value.astype(np.float64), other.value)
        total = total + (cells.sum() if axis is None else cells.reshape(len(cells), -1).sum(axis=1))
    return total
