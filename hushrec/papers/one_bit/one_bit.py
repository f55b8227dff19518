"""One-bit matrix completion with differential privacy: Li et al. 2021, with its guarantees corrected.

Maximum likelihood fits a low-rank matrix of log-odds to likes (ratings above a declared threshold) and
dislikes. The value of one rating is protected; which cells are observed is public. The released matrix and
item factors may be published.

The printed algorithms and their true cost: docs/papers/errata.md. Proofs: docs/proofs/one_bit.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from hushrec.checks import Count, Positive, Settings, Share, settings_of
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.one_bit import CURVATURE, likelihood, regress_labels
from hushrec.kernels.threads import one_blas_thread
from hushrec.papers.one_bit.flips import check_cost, check_flips, garbled, pure_epsilon_share
from hushrec.papers.one_bit.maximum_likelihood import (
    barzilai_borwein,
    cell_scores,
    label_sensitivity,
    project_nuclear,
    solve_dense,
    solve_factored,
)
from hushrec.privacy import (
    Accountant,
    Bounded,
    Budget,
    Gaussian,
    Laplace,
    Plan,
    PrivacyStatement,
    RandomizedResponse,
    Release,
    counted,
    epsilon_of,
)
from hushrec.serving.scoring import UserState
from hushrec.training import run
from hushrec.training.estimator import Estimator
from hushrec.training.gate import Gate, LocalGate
from hushrec.training.users import Users, likes
from hushrec.types import Array

Mechanism = Literal["input", "objective", "gradient", "output", "output-published", "none"]
# Weights and sizes were chosen without privacy on the splits of docs/papers/one-bit.md; the rest is limits.

#: Weight of offsets relative to factors in the ball, per squared unit.
_OFFSET_WEIGHT = 0.3
#: Size of the random start of the factors.
_START_SIZE = 0.1
#: Largest matrix that is held whole, in cells (0.4 GB).
_MOST_CELLS = 50_000_000
#: Ratings per user and item together from which on the nuclear ball has its full size.
_PLENTY = 30
#: Overall rates of likes are clipped to this and one less this.
_LEAST_RATE = 0.05
#: Singular values below this fraction of the largest are not stored.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, kw_only=True)
class OneBitCompletion(Estimator["LabelledUsers"]):
    """Log-odds of a like; protects single ratings.

    Parameters
    ----------
    threshold : float or None
        Ratings above it are likes, all others dislikes. By default the middle of the declared range. The
        paper's choice, the mean of the ratings, is private.
    mechanism : {"input", "objective", "gradient", "output", "output-published", "none"}
        Place of the noise (sections 4.1 to 4.4). "input" is the most accurate and needs no trust in the
        server (:func:`randomize_labels`). "output" adds noise to the observed entries of a strongly convex
        optimum, by its sensitivity. "output-published" is Algorithm 4.
    link : {"logistic", "probit"}
        P(like) = 1 / (1 + exp(-x)) or Phi(x).
    bound : float
        Bound on the entries of the matrix (alpha; the paper calls it max-norm), > 0.
    nuclear_norm : float or None
        Bound on the nuclear norm per square root of n_users * n_items, > 0: the paper's alpha * sqrt(rank).
        By default 0.9; below 30 ratings per user and item together, times their ratio to the power 4/3 (their
        number is public here). 0.1 for "gradient", because its noise would fill a larger ball.
    tuning : OneBitCompletion.Tuning
    n_users : int or None
        "output-published": declared number of users with released rows.
    acknowledge_cost : bool
        "output-published": release the whole matrix although it costs entry_epsilon times its size.
    regularization : float
        Ridge on a user's factors when they are served from the item factors, > 0.

    Privacy
    -------
    Unit: rating; relation: replace: the value of one rating changes while its place stays. A user with q
    ratings is protected by q times epsilon, with Gaussian noise by q times mu. Public: which cells are
    observed. Releases and sensitivities: :meth:`plan`, docs/proofs/one_bit.md.

    Examples
    --------
    >>> ratings = hushrec.realistic(100, 30, 1500, seed=0)
    >>> budget = hushrec.Budget(epsilon=2, delta=1e-6, unit="rating", relation="replace")
    >>> estimator = hushrec.papers.OneBitCompletion(threshold=3.5, nuclear_norm=0.5)
    >>> model = estimator.fit(ratings, hushrec.Accountant(budget))
    >>> model.privacy.budget.unit
    'rating'
    """

    name: ClassVar[str] = "one-bit"
    units: ClassVar[tuple[str, ...]] = ("rating",)
    scores: ClassVar[str] = "log-odds"

    @dataclass(frozen=True, kw_only=True)
    class Tuning(Settings):
        """The solver, and settings of each mechanism.

        ``python -m benchmarks.reproduce_one_bit`` chose the weights and the rank on the published splits of
        MovieLens-100K. No study chose the others.

        Parameters
        ----------
        solver : {"factored", "dense"}
            For "none", "input", "objective" and "output-published". Dense: the convex problem; a minute for
            some million cells. Factored: any size; the entrywise bound is applied to the solution only.
        rank : int
            Columns of the factored solver, >= 1.
        offsets : bool
            Factored: every user and item has an offset from the overall rate of the released likes.
        weighting : float
            Factored: rows and columns weigh in the nuclear norm as their public number of ratings to this
            power, in [0, 1].
        iterations, tolerance : int, float
            The solver stops when ten values of the objective differ by less than this fraction of it.
        flips : (float, float) or None
            Probabilities with which likes and dislikes are flipped (p1, p2). "input": by default
            1 / (1 + e^epsilon) for both, the most informative choice within epsilon. "none": the flips that
            users applied to their own labels.
        gradient_steps : int
            K of Algorithm 3, >= 1.
        clamp : float
            Bound on the gradient's entries before the noise (C), > 0.
        strong_convexity : float
            "output": weight gamma of the squared Frobenius norm, > 0.
        output_steps : int
            "output": projected-gradient steps, >= 1; a fixed number, as the proof needs.
        entry_epsilon : float or None
            "output-published": the epsilon that the paper would print; it is that of one entry.
        """

        solver: Literal["factored", "dense"] = "factored"
        rank: Count = 20
        offsets: bool = True
        weighting: Share = 0.5
        iterations: Count = 150
        tolerance: Annotated[float, "(0, 1]"] = 1e-5
        flips: tuple[float, float] | None = None
        gradient_steps: Count = 3
        clamp: Positive = 0.5
        strong_convexity: Positive = 4.0
        output_steps: Count = 5
        entry_epsilon: Positive | None = None

    threshold: float | None = None
    mechanism: Mechanism = "input"
    link: Literal["logistic", "probit"] = "logistic"
    bound: Positive = 3.0
    nuclear_norm: Positive | None = None
    tuning: Tuning = Tuning()
    n_users: Count | None = None
    acknowledge_cost: bool = False
    regularization: Positive = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tuning.flips is not None:
            if self.mechanism not in ("input", "none"):
                raise InputError(
                    "flips are for mechanism='input', or 'none' where the users flipped labels.",
                    parameter="flips",
                )
            check_flips(self.tuning.flips)
        if self.mechanism == "objective" and self.link == "probit":
            raise InputError(
                "Objective perturbation has no proof for the probit link: the paper's leaves out the Jacobian"
                " and the constraints (docs/papers/errata.md, J3); use the logistic link, or"
                " another mechanism",
                parameter="link",
                value="logistic",
            )
        if self.mechanism == "output-published":
            self._check_published()

    def _check_published(self) -> None:
        for name, value in (("entry_epsilon", self.tuning.entry_epsilon), ("n_users", self.n_users)):
            if value is None:
                raise InputError(f"{name} is missing: output-published needs it.", parameter=name)
        if not self.acknowledge_cost:
            raise InputError(
                "Algorithm 4 as published costs entry_epsilon for each entry it releases, so the whole "
                "matrix costs n_users * n_items * entry_epsilon; pass acknowledge_cost=True with a budget "
                "of that size, or another mechanism",
                parameter="mechanism",
                value="output",
            )

    @classmethod
    def as_published(cls, **settings: Any) -> OneBitCompletion:
        """Return the paper's estimator: dense, without offsets or weights, within bound 1."""
        published = {"solver": "dense", "offsets": False, "weighting": 0.0, "bound": 1.0, "nuclear_norm": 1.0}
        return cls.of(published, {"tolerance": 1e-3}, settings)

    @property
    def exact_arithmetic(self) -> bool:  # type: ignore[override]
        """Labels are integers; gradients and optima are floating-point numbers."""
        return self.mechanism in ("input", "objective", "none")

    # ------------------------------------------------------------------ plan

    def releases(self, budget: Budget, domain: Domain, fraction: float) -> Plan:
        for parameter, value in (("unit", "rating"), ("relation", "replace")):
            if getattr(budget, parameter) != value:
                what = "one-bit protects the value of a rating whose place is public"
                raise InputError(what, parameter=parameter, value=value)

        def plan(*releases: tuple[str, Any, float]) -> Plan:
            return Plan(budget, [Release(*release, budget.unit, budget.relation) for release in releases])

        if self.mechanism == "none":
            if budget.private:
                raise InputError("mechanism='none' has no privacy", parameter="epsilon", value=math.inf)
            return plan(("labels", Gaussian(0.0), 1.0))
        epsilon = pure_epsilon_share(budget, fraction)
        if self.mechanism == "input":
            check_cost(self.tuning.flips, epsilon)
            return plan(("labels", RandomizedResponse(epsilon), 1.0))
        if self.mechanism == "objective":
            return plan(("labels less the objective's noise", Laplace(1 / epsilon), 1.0))
        if self.mechanism == "gradient":
            steps = self.tuning.gradient_steps
            law, labels = Laplace(steps / epsilon), range(1, steps + 1)
            return plan(*((f"gradient {step}", law, self.slope_sensitivity) for step in labels))
        if self.mechanism == "output":
            return plan(("observed entries", budget.share(fraction), self.output_sensitivity))
        assert self.n_users is not None and self.tuning.entry_epsilon is not None
        entries = self.n_users * domain.n_items
        multiplier = 1 / (entries * self.tuning.entry_epsilon) if budget.private else 0.0
        return plan(("matrix", Laplace(multiplier), 2 * self.bound * entries))

    @property
    def slope_sensitivity(self) -> float:
        """Most that one label moves a clamped gradient."""
        return min(2 * self.tuning.clamp, label_sensitivity(self.link, self.bound))

    @property
    def output_sensitivity(self) -> float:
        """Most that one label moves the last step, in Frobenius norm (proof: section 5)."""
        contraction = (1 - self.output_step * self.tuning.strong_convexity) ** self.tuning.output_steps
        return label_sensitivity(self.link, self.bound) / self.tuning.strong_convexity * (1 - contraction)

    @property
    def output_step(self) -> float:
        return 1 / (CURVATURE[self.link] + self.tuning.strong_convexity)

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        cap, gaussian = domain.max_ratings_per_user, self.mechanism == "output" and budget.private
        whole = epsilon_of(cap * budget.mu, budget.delta) if gaussian else cap * budget.epsilon
        words: tuple[str, ...] = (
            "this protects the value of single ratings, not the users: one with q ratings is protected by"
            f" q times {'mu' if gaussian else 'epsilon'} only, at the declared cap of {cap:,} ratings by"
            f" epsilon {whole:,.6g}",
        )
        if self.mechanism == "output-published" and self.n_users is not None:
            entries, epsilon = self.n_users * domain.n_items, self.tuning.entry_epsilon
            words += (
                f"output perturbation as published: epsilon = {epsilon:g} is the cost of one of"
                f" {entries:,} entries that were released",
            )
        return words

    # ------------------------------------------------------------------ training

    def users(self, ratings: Ratings) -> LabelledUsers:
        return LabelledUsers(ratings, self)

    def train(self, users: LabelledUsers, gate: Gate, seed: int) -> dict[str, Any]:
        items = BiasedFactors(self._released_factors(users, gate, seed)[1])
        return {"center": np.float64(0.0), "item_bias": items.biases, "item_factors": items.factors}

    def complete(self, ratings: Ratings, accountant: Accountant, *, seed: int = 0) -> Completion:
        """Train and return the whole released matrix, a row for each user: the paper's output.

        Privacy
        -------
        Unit: rating. Relation: replace. Releases and cost are those of `fit`.
        """
        run.check(self, ratings, accountant, seed)
        plan = self.releases(accountant.budget, ratings.domain, accountant.part())
        bound_to = {"model": self.name, "settings": settings_of(self)}
        with run.journal(accountant, ratings.domain, plan, seed, **bound_to), one_blas_thread():
            gate = LocalGate(accountant, plan)
            users, items = self._released_factors(self.users(ratings), gate, seed)
        bound = math.inf if self.mechanism == "output-published" else self.bound
        return Completion(users, items, bound, self.link, run.statement(self, ratings, accountant))

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        labels, factors = likes(history, self.threshold), np.asarray(arrays["item_factors"], dtype=np.float64)
        ridge = np.full(factors.shape[1], self.regularization)
        if self.tuning.offsets:
            factors = np.column_stack([factors, np.ones(len(factors))])
            ridge = np.append(ridge, _OFFSET_WEIGHT * self.regularization)
        bias = np.asarray(arrays["item_bias"], dtype=np.float64)
        users = np.zeros((history.n_users, arrays["item_factors"].shape[1] + 1))
        if len(ridge):
            solved = regress_labels(
                labels.indptr, labels.indices, labels.data, factors, bias, ridge, self.link
            )
            users[:, : len(ridge)] = solved
        return UserState.of(users)

    def _released_factors(self, users: LabelledUsers, gate: Gate, seed: int) -> tuple[Array, Array]:
        self._check_size(users.shape)
        if self.mechanism == "gradient":
            return split_matrix(self._noisy_gradients(users, gate))
        if self.mechanism == "output":
            noisy = gate.release("observed entries", users.observed_entries())
            seen = 0.5 + (self.tuning.strong_convexity + 0.25) * noisy  # the labels, where the noise is small
            return self.solve(users.cells, seen, users.shape, (0.0, 0.0), seed, link="logistic")
        if self.mechanism == "output-published":
            return split_matrix(gate.release("matrix", users.optimum(seed)))
        seen, flips = self._noisy_labels(users, gate, seed)
        return self.solve(users.cells, seen, users.shape, flips, seed, link=self.link)

    def _check_size(self, shape: tuple[int, int]) -> None:
        if self.n_users is not None and self.n_users != shape[0]:
            raise InputError(
                f"n_users={self.n_users} was declared, but there are {shape[0]} users;"
                " their number is public here, declare it."
            )
        dense = self.tuning.solver == "dense" or self.mechanism not in ("none", "input", "objective")
        if dense and shape[0] * shape[1] > _MOST_CELLS:
            raise InputError(
                f"A matrix of {shape[0]:,} x {shape[1]:,} is too large to hold whole; pass"
                " mechanism='input' or 'objective' with solver='factored'."
            )

    def _noisy_labels(self, users: LabelledUsers, gate: Gate, seed: int) -> tuple[Array, tuple[float, float]]:
        """Return the labels as the solver sees them, and how they were flipped."""
        if self.mechanism == "none":
            return gate.release("labels", users.labels("l2")), self.tuning.flips or (0.0, 0.0)
        if self.mechanism == "objective":
            # log-likelihood + sum of H x: the labels enter it as label - H alone (proof: section 3)
            return gate.release("labels less the objective's noise", users.labels("l1")), (0.0, 0.0)
        planned = gate.planned("labels")
        assert planned is not None and isinstance(planned.mechanism, RandomizedResponse)
        flip = planned.mechanism.flip_probability(planned.sensitivity)
        seen = gate.release("labels", users.labels("labels")).astype(np.float64)
        if self.tuning.flips is None:
            return seen, (flip, flip)
        return garbled(seen, flip, self.tuning.flips, np.random.default_rng(seed)), self.tuning.flips

    def _noisy_gradients(self, users: LabelledUsers, gate: Gate) -> Array:
        """Algorithm 3: a fixed number of steps, of lengths chosen from noisy gradients alone."""
        matrix, change, before = np.zeros(users.shape), np.zeros(0), np.zeros(0)
        longest = 1 / CURVATURE[self.link]
        shortest = longest / self.tuning.gradient_steps
        for number in range(1, self.tuning.gradient_steps + 1):
            noisy = gate.release(f"gradient {number}", users.slopes(matrix[users.cells]))
            step = shortest
            if number > 1:
                step = min(max(barzilai_borwein(change, noisy - before), shortest), longest)
            moved = matrix.copy()
            moved[users.cells] -= step * noisy
            moved = self.within(moved)
            change, before, matrix = moved[users.cells] - matrix[users.cells], noisy, moved
        return matrix

    # ------------------------------------------------------------------ optima, on either side

    def solve(
        self,
        places: tuple[Array, Array],
        seen: Array,
        shape: tuple[int, int],
        flips: tuple[float, float],
        seed: int,
        *,
        link: str,
    ) -> tuple[Array, Array]:
        """Algorithm 1, line 2, and Algorithm 2, line 3."""
        cells, radius = (*places, seen), self._radius(shape, len(seen))
        stop: dict[str, Any] = {"iterations": self.tuning.iterations, "tolerance": self.tuning.tolerance}
        if self.tuning.solver == "dense":
            return split_matrix(solve_dense(cells, shape, radius, self.bound, link, flips, **stop).point)
        start = np.random.default_rng(seed).standard_normal((sum(shape), self.tuning.rank + 1)) * _START_SIZE
        weights = np.concatenate(
            [public_weights(places[side], shape[side], self.tuning.weighting) for side in (0, 1)]
        )
        scale = np.repeat(1 / np.sqrt(weights)[:, None], self.tuning.rank + 1, axis=1)
        BiasedFactors(scale).biases[:] *= self.tuning.offsets / math.sqrt(_OFFSET_WEIGHT)
        center = overall_log_odds(seen, flips, link) if self.tuning.offsets else 0.0
        point = solve_factored(
            cells, shape, radius, start, link, flips, center=center, scale=scale, **stop
        ).point
        users, items = point[: shape[0]], point[shape[0] :]
        BiasedFactors(items).biases[:] += center
        return users, items

    def within(self, matrix: Array) -> Array:
        """Project into the nuclear ball, then into the box: neither projection moves two matrices apart."""
        return np.clip(project_nuclear(matrix, self._radius(matrix.shape)), -self.bound, self.bound)

    def _radius(self, shape: tuple[int, ...], observed: float = math.inf) -> float:
        """The number of observed cells is public."""
        relative = self.nuclear_norm
        if relative is None and self.mechanism == "gradient":
            relative = 0.1
        if relative is None:
            relative = 0.9 * min(1.0, max(observed, 1) / (_PLENTY * sum(shape))) ** (4 / 3)
        return relative * math.sqrt(shape[0] * shape[1])


class LabelledUsers(Users):
    """Private values of ratings at public places: ``cells`` are the rows and columns of the observed ones."""

    def __init__(self, ratings: Ratings, settings: OneBitCompletion) -> None:
        super().__init__(ratings)
        labels = likes(ratings, settings.threshold)
        self.cells = np.repeat(np.arange(ratings.n_users), np.diff(labels.indptr)), labels.indices
        self.shape = ratings.n_users, ratings.n_items
        self._labels, self._settings = labels.data, settings

    def labels(self, norm: str) -> Bounded:
        """0 or 1 in every cell."""
        values = self._labels > 0.5 if norm == "labels" else self._labels
        return Bounded(values, counted(1.0), norm=norm, unit="rating")

    def slopes(self, scores: Array) -> Bounded:
        """Scores are clipped to the declared bound."""
        fit = self._settings
        _, slope = likelihood(np.clip(scores, -fit.bound, fit.bound), self._labels, fit.link)
        return Bounded(self._clamped(slope), counted(fit.slope_sensitivity), norm="l1", unit="rating")

    def _clamped(self, slope: Array) -> Array:
        """Clamp before the noise; clamping after it would bound nothing."""
        clamp = self._settings.tuning.clamp
        return np.clip(slope, -clamp, clamp)

    def observed_entries(self) -> Bounded:
        """Return the entries of an optimum by fixed steps through non-expansive maps."""
        fit, matrix = self._settings, np.zeros(self.shape)
        for _ in range(fit.tuning.output_steps):
            _, slope = likelihood(matrix[self.cells], self._labels, fit.link)
            moved = (1 - fit.output_step * fit.tuning.strong_convexity) * matrix
            moved[self.cells] -= fit.output_step * slope
            matrix = fit.within(moved)
        return Bounded(matrix[self.cells], counted(fit.output_sensitivity), unit="rating")

    def optimum(self, seed: int) -> Bounded:
        """Algorithm 4 as published."""
        fit = self._settings
        factors = fit.solve(self.cells, self._labels, self.shape, (0.0, 0.0), seed, link=fit.link)
        matrix = np.clip(product(*factors), -fit.bound, fit.bound)
        return Bounded(matrix, counted(2 * fit.bound * matrix.size), norm="l1", unit="rating")


@dataclass(frozen=True, eq=False, repr=False)
class Completion:
    """A released matrix of log-odds (or probits), as factors; it may be published.

    Attributes
    ----------
    users, items : ndarrays of shape (n_users, rank + 1) and (n_items, rank + 1)
        Factors, and offsets in the last column. Rows of users are in the order of the ratings' users.
    bound : float
        Entries are within plus or minus this.
    link : str
    privacy : PrivacyStatement
    """

    users: Array
    items: Array
    bound: float
    link: str
    privacy: PrivacyStatement

    def at(self, rows: Array, columns: Array) -> NDArray[np.float64]:
        """Return some entries."""
        scores = cell_scores(rows, columns, np.vstack([self.users, self.items]), len(self.users))
        return np.clip(scores, -self.bound, self.bound)

    def matrix(self) -> NDArray[np.float64]:
        """Shape (n_users, n_items)."""
        return np.clip(product(self.users, self.items), -self.bound, self.bound)


def completion_scores(completion: Completion, trained: Ratings, targets: Ratings) -> NDArray[np.float64]:
    """Return scores at the cells of ``targets``; 0 for users that were not trained on."""
    rows = np.repeat(trained.user_index(targets), np.diff(targets.matrix.indptr))
    return np.where(rows >= 0, completion.at(np.maximum(rows, 0), targets.matrix.indices), 0.0)


# ---------------------------------------------------------------------- parts


def overall_log_odds(seen: Array, flips: tuple[float, float], link: str) -> float:
    to_dislike, to_like = flips
    rate = (float(np.mean(seen)) - to_like) / (1 - to_dislike - to_like) if len(seen) else 0.5
    rate = min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)
    return float(logit(rate) if link == "logistic" else ndtri(rate))


def public_weights(positions: Array, count: int, power: float) -> NDArray[np.float64]:
    """Numbers of ratings to a power, relative; a row has at least one."""
    numbers = np.maximum(np.bincount(positions, minlength=count), 1.0)
    return (numbers / numbers.mean()) ** power


def product(users: Array, items: Array) -> NDArray[np.float64]:
    left, right = BiasedFactors(users), BiasedFactors(items)
    return left.factors @ right.factors.T + left.biases[:, None] + right.biases


def split_matrix(matrix: Array) -> tuple[Array, Array]:
    """Return balanced factors with offsets of 0."""
    if matrix.shape[0] > matrix.shape[1]:
        return split_matrix(matrix.T)[::-1]
    values, vectors = np.linalg.eigh(matrix @ matrix.T)  # many times faster than singular vectors
    singular = np.sqrt(np.maximum(values, 0.0))
    kept = singular > _NEGLIGIBLE * singular[-1]
    root, left = np.sqrt(singular[kept]), vectors[:, kept]
    users, items = left * root, matrix.T @ left / root
    return np.pad(users, ((0, 0), (0, 1))), np.pad(items, ((0, 0), (0, 1)))
