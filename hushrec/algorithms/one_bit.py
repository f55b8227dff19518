"""One-bit matrix completion with differential privacy: Li et al. 2021, with its guarantees mended.

Ratings become likes (above a declared threshold) and dislikes; a low-rank matrix of log-odds is fitted to
them by maximum likelihood (:mod:`hushrec.kernels.one_bit`). Privacy is for the value of one rating: which
cells are observed is public. Everything that follows the noisy release of a mechanism is post-processing, so
the released matrix may be published, and so may the item factors that new users are served from.

What is printed in the paper, and what it costs: docs/errata.md. Proofs: docs/proofs/one_bit.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.checks import (
    check_choice,
    check_numbers,
    check_truths,
    check_within,
    is_number,
    shown,
)
from hushrec.data import Domain, Ratings
from hushrec.errors import InputError
from hushrec.estimator import PUBLIC_INPUTS, Estimator, UserState
from hushrec.gate import Gate, LocalGate
from hushrec.kernels.threads import one_blas_thread
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
)

Array = NDArray[Any]

MECHANISMS = ("none", "input", "objective", "gradient", "output", "output-published")
#: Weight of offsets beside factors in the ball, per squared unit.
_OFFSET_WEIGHT = 0.3
#: Size of the random start of the factors.
_START_SIZE = 0.1
#: Largest matrix that is held whole, in cells (0.4 GB).
_MOST_CELLS = 50_000_000
#: Ratings for each user and item together from which on the nuclear ball has its full size.
_PLENTY = 30
#: Overall rates of likes are taken to be within this and one less this.
_LEAST_RATE = 0.05
#: Singular values below this part of the largest are not stored.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, kw_only=True)
class OneBitCompletion(Estimator):
    """Log-odds of liking, from likes and dislikes of which each one is protected.

    Parameters
    ----------
    threshold : float or None
        Declared: ratings above it are likes, all others dislikes; None: the middle of the declared range. The
        paper's choice, the mean of the ratings, is private.
    mechanism : {"input", "objective", "gradient", "output", "output-published", "none"}
        Where the noise enters (sections 4.1 to 4.4). "input" is the most accurate and needs no trust in the
        server (:func:`randomize_labels`). "output" adds noise to the observed entries of a strongly convex
        optimum, by its sensitivity; "output-published" is Algorithm 4, which costs ``entry_epsilon`` for
        every entry of the matrix.
    link : {"logistic", "probit"}
        P(like) = 1 / (1 + exp(-x)) or Phi(x).
    bound : float
        Bound on the entries of the matrix (alpha; the paper calls it max-norm), > 0.
    nuclear_norm : float or None
        Bound on the nuclear norm per square root of n_users * n_items, > 0: the paper's alpha * sqrt(rank).
        None: 0.9, and less than that below 30 ratings for each user and item together, times their ratio to
        the power 4/3 (their number is public here); or 0.1 for "gradient", whose noise would fill a larger
        ball.
    solver : {"factored", "dense"}
        Of "none", "input", "objective" and "output-published". Dense: the convex problem; a minute for some
        million cells in all. Factored: any size; the entrywise bound is applied to the solution only.
    rank : int
        Columns of the factored solver, >= 1.
    offsets : bool
        Factored: every user and item has an offset of its own, beside the overall rate of the released likes.
    weighting : float
        Factored: rows and columns weigh in the nuclear norm as their number of ratings to this power, in
        [0, 1]; the numbers are public here.
    iterations, tolerance : int, float
        Of the solver; it stops when ten values of the objective differ by less than this part of it.
    flips : (float, float) or None
        Probabilities with which likes and dislikes are flipped (p1, p2). "input": None flips both with
        1 / (1 + e^epsilon), and no other choice within epsilon tells more. "none": how the labels were
        flipped by the users themselves before they came here.
    gradient_steps : int
        K of Algorithm 3, >= 1.
    clamp : float
        Bound on the gradient's entries before the noise (C), > 0.
    noise : {"laplace", "gaussian"}
        Of "gradient": pure epsilon, or less noise for many steps at delta > 0.
    strong_convexity : float
        "output": weight gamma of the squared Frobenius norm, > 0.
    output_steps : int
        "output": projected-gradient steps, >= 1; a fixed number, as the proof needs.
    entry_epsilon : float or None
        "output-published": the epsilon that the paper would print; it is that of one entry.
    n_users : int or None
        "output-published": declared number of users, whose rows are released.
    acknowledge_cost : bool
        "output-published": release the whole matrix knowing that it costs entry_epsilon times its size.
    regularization : float
        Ridge on a user's factors when she is served from the item factors, > 0.

    Privacy
    -------
    Unit: rating; relation: replace: the value of one rating changes while its place stays. A user with q
    ratings is protected by q times epsilon, which the statement says in words. Public: which cells are
    observed. Releases and sensitivities: :meth:`plan`, docs/proofs/one_bit.md.
    """

    name: ClassVar[str] = "one-bit"
    units: ClassVar[tuple[str, ...]] = ("rating",)
    public_inputs: ClassVar[tuple[str, ...]] = (*PUBLIC_INPUTS, "which cells are observed")
    scores: ClassVar[str] = "log-odds"

    threshold: float | None = None
    mechanism: str = "input"
    link: str = "logistic"
    bound: float = 3.0
    nuclear_norm: float | None = None
    solver: str = "factored"
    rank: int = 20
    offsets: bool = True
    weighting: float = 0.5
    iterations: int = 150
    tolerance: float = 1e-5
    flips: tuple[float, float] | None = None
    gradient_steps: int = 3
    clamp: float = 0.5
    noise: str = "laplace"
    strong_convexity: float = 4.0
    output_steps: int = 5
    entry_epsilon: float | None = None
    n_users: int | None = None
    acknowledge_cost: bool = False
    regularization: float = 5.0

    def __post_init__(self) -> None:
        check_optional_threshold(self.threshold)
        check_choice(
            mechanism=(self.mechanism, MECHANISMS),
            link=(self.link, ("logistic", "probit")),
            solver=(self.solver, ("factored", "dense")),
            noise=(self.noise, ("laplace", "gaussian")),
        )
        check_numbers(
            bound=(self.bound, float, 0, None),
            nuclear_norm=(1.0 if self.nuclear_norm is None else self.nuclear_norm, float, 0, None),
            rank=(self.rank, int, 1, None),
            iterations=(self.iterations, int, 1, None),
            tolerance=(self.tolerance, float, 0, 1),
            gradient_steps=(self.gradient_steps, int, 1, None),
            clamp=(self.clamp, float, 0, None),
            strong_convexity=(self.strong_convexity, float, 0, None),
            output_steps=(self.output_steps, int, 1, None),
            regularization=(self.regularization, float, 0, None),
        )
        check_within(weighting=(self.weighting, 0, 1))
        check_truths(offsets=self.offsets, acknowledge_cost=self.acknowledge_cost)
        if self.entry_epsilon is not None:
            check_numbers(entry_epsilon=(self.entry_epsilon, float, 0, None))
        if self.n_users is not None:
            check_numbers(n_users=(self.n_users, int, 1, None))
        if self.flips is not None:
            if self.mechanism not in ("input", "none"):
                raise InputError(
                    "flips are for mechanism='input', or 'none' where the users flipped labels.",
                    parameter="flips",
                )
            check_flips(self.flips)
        if self.mechanism == "objective" and self.link == "probit":
            raise InputError(
                "Objective perturbation has no proof for the probit link: the paper's leaves out the Jacobian"
                " and the constraints (docs/errata.md, J3); use the logistic link, or another mechanism",
                parameter="link",
                value="logistic",
            )
        if self.mechanism == "output-published":
            self._check_published()

    def _check_published(self) -> None:
        for name in ("entry_epsilon", "n_users"):
            if getattr(self, name) is None:
                raise InputError(f"{name} is missing: output-published needs it.", parameter=name)
        if not self.acknowledge_cost:
            raise InputError(
                "Algorithm 4 as published costs entry_epsilon for each entry it releases, so the whole matrix"
                " costs n_users * n_items * entry_epsilon; acknowledge_cost with a budget of that size, or"
                " take another mechanism",
                parameter="mechanism",
                value="output",
            )

    @classmethod
    def as_published(cls, **settings: Any) -> OneBitCompletion:
        """The paper's estimator: dense, without offsets or weights, within the entrywise bound 1."""
        published = {"solver": "dense", "offsets": False, "weighting": 0.0, "bound": 1.0, "nuclear_norm": 1.0}
        return cls(**{**published, "tolerance": 1e-3, **settings})

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
            check_cost(self.flips, epsilon)
            return plan(("labels", RandomizedResponse(epsilon), 1.0))
        if self.mechanism == "objective":
            return plan(("labels less the objective's noise", Laplace(1 / epsilon), 1.0))
        if self.mechanism == "gradient":
            steps = self.gradient_steps
            law = budget.share(fraction / steps) if self.noise == "gaussian" else Laplace(steps / epsilon)
            sensitivity = min(2 * self.clamp, self._label_sensitivity)
            return plan(*((f"gradient {step}", law, sensitivity) for step in range(1, steps + 1)))
        if self.mechanism == "output":
            return plan(("observed entries", budget.share(fraction), self._output_sensitivity()))
        assert self.n_users is not None and self.entry_epsilon is not None
        entries = self.n_users * domain.n_items
        multiplier = 1 / (entries * self.entry_epsilon) if budget.private else 0.0
        return plan(("matrix", Laplace(multiplier), 2 * self.bound * entries))

    def _output_sensitivity(self) -> float:
        """Most that one label moves the last of the fixed steps, in Frobenius norm (proof: section 5)."""
        contraction = (1 - self._output_step * self.strong_convexity) ** self.output_steps
        return self._label_sensitivity / self.strong_convexity * (1 - contraction)

    @property
    def _label_sensitivity(self) -> float:
        from hushrec.kernels.one_bit import label_sensitivity

        return label_sensitivity(self.link, self.bound)

    @property
    def _output_step(self) -> float:
        from hushrec.kernels.one_bit import CURVATURE

        return 1 / (CURVATURE[self.link] + self.strong_convexity)

    def notes(self, budget: Budget, domain: Domain) -> tuple[str, ...]:
        """The cost for a user, and what the entries of Algorithm 4 cost."""
        cap = domain.max_ratings_per_user
        words: tuple[str, ...] = (
            "this protects the value of single ratings, not the users: one with q ratings is protected by"
            f" q times epsilon only, at the declared cap of {cap:,} ratings by {cap * budget.epsilon:,.6g}",
        )
        if self.mechanism == "output-published" and self.n_users is not None:
            entries = self.n_users * domain.n_items
            words += (
                f"output perturbation as published: epsilon = {self.entry_epsilon:g} is the cost of one of"
                f" {entries:,} entries that were released",
            )
        return words

    # ------------------------------------------------------------------ training

    def train(self, ratings: Ratings, gate: Gate, seed: int) -> dict[str, Any]:
        """What new users are served from: item factors and offsets."""
        _, items = self._released_factors(ratings, gate, seed)
        return {"center": np.float64(0.0), "item_bias": items[:, -1], "item_factors": items[:, :-1]}

    def complete(self, ratings: Ratings, accountant: Accountant, *, seed: int = 0) -> Completion:
        """Train and return the whole released matrix, a row for each user: the paper's output.

        Parameters
        ----------
        ratings : Ratings
            The private rows; which cells they hold is public.
        accountant : Accountant
            With a budget for unit "rating" and relation "replace".
        seed : int
            Of the random start, never of privacy noise.

        Returns
        -------
        Completion
        """
        plan = self.check(ratings, accountant, seed)
        with one_blas_thread():
            users, items = self._released_factors(ratings, LocalGate(accountant, plan), seed)
        bound = math.inf if self.mechanism == "output-published" else self.bound
        return Completion(users, items, bound, self.link, self.statement(ratings, accountant))

    def fold_in(self, arrays: Mapping[str, Array], history: Ratings) -> UserState:
        """Local: a user's regression of her own labels on the released item factors."""
        ridge = self.regularization
        return fold_in_labels(arrays, likes(history, self.threshold), self.link, ridge, self.offsets)

    def _released_factors(self, ratings: Ratings, gate: Gate, seed: int) -> tuple[Array, Array]:
        """Stacked factors and offsets of users and items; from here on all is public."""
        if self.n_users is not None and self.n_users != ratings.n_users:
            raise InputError(
                f"n_users={self.n_users} was declared, but there are {ratings.n_users} users;"
                " their number is public here, declare it."
            )
        dense = self.solver == "dense" or self.mechanism not in ("none", "input", "objective")
        if dense and ratings.n_users * ratings.n_items > _MOST_CELLS:
            raise InputError(
                f"A matrix of {ratings.n_users:,} x {ratings.n_items:,} is too large to hold whole; pass"
                " mechanism='input' or 'objective' with solver='factored'."
            )
        labels = likes(ratings, self.threshold)
        rows = np.repeat(np.arange(ratings.n_users), np.diff(labels.indptr))
        cells = rows, labels.indices, labels.data
        shape = ratings.n_users, ratings.n_items
        if self.mechanism == "gradient":
            return split_matrix(self._noisy_gradients(cells, shape, gate))
        if self.mechanism == "output":
            noisy = self._noisy_optimum(cells, shape, gate)
            seen = 0.5 + (self.strong_convexity + 0.25) * noisy  # the labels, where the noise is small
            return self._solve((cells[0], cells[1], seen), shape, (0.0, 0.0), seed, link="logistic")
        if self.mechanism == "output-published":
            users, items = self._solve(cells, shape, (0.0, 0.0), seed, link=self.link)
            optimum = np.clip(product(users, items), -self.bound, self.bound)
            return split_matrix(gate.release("matrix", optimum))
        seen, flips = self._noisy_labels(cells[2], gate, seed)
        return self._solve((cells[0], cells[1], seen), shape, flips, seed, link=self.link)

    def _noisy_labels(self, labels: Array, gate: Gate, seed: int) -> tuple[Array, tuple[float, float]]:
        """What the solver sees of the labels (0 or 1), and how they were flipped."""
        if self.mechanism == "none":
            return gate.release("labels", labels), self.flips or (0.0, 0.0)
        if self.mechanism == "objective":
            # log-likelihood + sum of H x: the labels enter it as label - H alone (proof: section 3)
            return gate.release("labels less the objective's noise", labels), (0.0, 0.0)
        flip = gate.flip_probability("labels")
        seen = gate.release("labels", labels > 0.5).astype(np.float64)
        if self.flips is None:
            return seen, (flip, flip)
        return garbled(seen, flip, self.flips, np.random.default_rng(seed)), self.flips

    def _solve(
        self, cells: Any, shape: tuple[int, int], flips: tuple[float, float], seed: int, *, link: str
    ) -> tuple[Array, Array]:
        """Algorithm 1, line 2, and Algorithm 2, line 3: factors of the constrained optimum."""
        from hushrec.kernels.one_bit import solve_dense, solve_factored

        radius = self._radius(shape, len(cells[2]))
        stop: dict[str, Any] = {"iterations": self.iterations, "tolerance": self.tolerance}
        if self.solver == "dense":
            return split_matrix(solve_dense(cells, shape, radius, self.bound, link, flips, **stop).point)
        start = np.random.default_rng(seed).standard_normal((sum(shape), self.rank + 1)) * _START_SIZE
        weights = np.concatenate(
            [public_weights(cells[side], shape[side], self.weighting) for side in (0, 1)]
        )
        scale = np.repeat(1 / np.sqrt(weights)[:, None], self.rank + 1, axis=1)
        scale[:, -1] *= self.offsets / math.sqrt(_OFFSET_WEIGHT)
        center = level(cells[2], flips, link) if self.offsets else 0.0
        point = solve_factored(
            cells, shape, radius, start, link, flips, center=center, scale=scale, **stop
        ).point
        point[shape[0] :, -1] += center
        return point[: shape[0]], point[shape[0] :]

    def _noisy_gradients(self, cells: Any, shape: tuple[int, int], gate: Gate) -> Array:
        """Algorithm 3: a fixed number of steps along noisy gradients, of lengths chosen from these alone."""
        from hushrec.kernels.one_bit import CURVATURE, barzilai_borwein, likelihood

        rows, columns, labels = cells
        matrix, change, before = np.zeros(shape), np.zeros(0), np.zeros(0)
        longest = 1 / CURVATURE[self.link]
        shortest = longest / self.gradient_steps
        for number in range(1, self.gradient_steps + 1):
            _, slope = likelihood(matrix[rows, columns], labels, self.link)
            noisy = gate.release(f"gradient {number}", self._clamped(slope))
            step = shortest
            if number > 1:
                step = min(max(barzilai_borwein(change, noisy - before), shortest), longest)
            moved = matrix.copy()
            moved[rows, columns] -= step * noisy
            moved = self._within(moved)
            change, before, matrix = moved[rows, columns] - matrix[rows, columns], noisy, moved
        return matrix

    def _clamped(self, slope: Array) -> Array:
        """Before the noise; clamping after it would bound nothing."""
        return np.clip(slope, -self.clamp, self.clamp)

    def _noisy_optimum(self, cells: Any, shape: tuple[int, int], gate: Gate) -> Array:
        """Observed entries of a strongly convex optimum, by fixed steps through non-expansive maps."""
        from hushrec.kernels.one_bit import likelihood

        rows, columns, labels = cells
        matrix = np.zeros(shape)
        for _ in range(self.output_steps):
            _, slope = likelihood(matrix[rows, columns], labels, self.link)
            moved = (1 - self._output_step * self.strong_convexity) * matrix
            moved[rows, columns] -= self._output_step * slope
            matrix = self._within(moved)
        return gate.release("observed entries", matrix[rows, columns])

    def _within(self, matrix: Array) -> Array:
        """Into the nuclear ball, then into the box: two projections, so no two matrices move apart."""
        from hushrec.kernels.one_bit import project_nuclear

        return np.clip(project_nuclear(matrix, self._radius(matrix.shape)), -self.bound, self.bound)

    def _radius(self, shape: tuple[int, ...], observed: float = math.inf) -> float:
        """Bound on the nuclear norm; the number of observed cells is public."""
        relative = self.nuclear_norm
        if relative is None and self.mechanism == "gradient":
            relative = 0.1
        if relative is None:
            relative = 0.9 * min(1.0, max(observed, 1) / (_PLENTY * sum(shape))) ** (4 / 3)
        return relative * math.sqrt(shape[0] * shape[1])


@dataclass(frozen=True, eq=False, repr=False)
class Completion:
    """A released matrix of log-odds (or probits), as factors, with its privacy statement.

    Attributes
    ----------
    users, items : ndarrays of shape (n_users, rank + 1) and (n_items, rank + 1)
        Factors, and offsets in the last column. Rows of users are in the order of the ratings' users.
    bound : float
        Entries are within plus or minus this.
    link : str
        What turns an entry into a probability.
    privacy : PrivacyStatement
        For one rating: the rows may be published.
    """

    users: Array
    items: Array
    bound: float
    link: str
    privacy: PrivacyStatement

    def at(self, rows: Array, columns: Array) -> NDArray[np.float64]:
        """Entries at some cells."""
        from hushrec.kernels.one_bit import cell_scores

        scores = cell_scores(rows, columns, np.vstack([self.users, self.items]), len(self.users))
        return np.clip(scores, -self.bound, self.bound)

    def matrix(self) -> NDArray[np.float64]:
        """All entries, shape (n_users, n_items)."""
        return np.clip(product(self.users, self.items), -self.bound, self.bound)


# ---------------------------------------------------------------------- on the user's side


def randomize_labels(
    labels: Array, accountant: Accountant, *, flips: tuple[float, float] | None = None
) -> NDArray[np.bool_]:
    """What a client runs on her own labels before she sends them: local differential privacy.

    The server trains on the result with ``OneBitCompletion(mechanism="none", flips=...)`` and an infinite
    budget of its own, since what it holds is protected already; pass on the flip probabilities, which are
    public: (p, p) with p = 1 / (1 + e^epsilon), or the ``flips`` given here.

    Parameters
    ----------
    labels : ndarray of bool
        True for a like.
    accountant : Accountant
        The client's own, with a budget for unit "rating" and relation "replace"; epsilon is that of a label.
    flips : (float, float), optional
        Probabilities with which likes and dislikes are flipped; both 1 / (1 + e^epsilon) by default.

    Returns
    -------
    ndarray of bool
        The labels, some of them flipped.

    Privacy
    -------
    Randomized response (Warner 1965): epsilon-DP for every label with delta 0, whoever sees the result. Any
    ``flips`` within epsilon are the symmetric ones followed by more flips (docs/proofs/one_bit.md).
    """
    budget = accountant.budget
    epsilon = pure_epsilon_share(budget, accountant.part())
    check_cost(flips, epsilon)
    mechanism = RandomizedResponse(epsilon)
    bounded = Bounded(np.asarray(labels, dtype=bool), counted(1.0), norm="labels", unit=budget.unit)
    seen = accountant.release(bounded, mechanism, "labels")
    if flips is None:
        return np.asarray(seen)
    fresh = np.random.default_rng()
    return garbled(seen, mechanism.flip_probability(1.0), flips, fresh) > 0.5


def flips_epsilon(to_dislike: float, to_like: float) -> float:
    """What flipping likes and dislikes with these probabilities costs: the largest of four log-ratios.

    The paper's condition (Theorem 1) bounds two of them and lets (0, e^-epsilon) pass, which costs infinity.
    """
    seen_like, seen_dislike = (1 - to_dislike, to_like), (to_dislike, 1 - to_like)
    ratios = [_log_ratio(*pair) for pair in (seen_like, seen_dislike)]
    return max(abs(ratio) for ratio in ratios)


def check_flips(flips: tuple[float, float]) -> None:
    """Refuse what are no two probabilities, or flips after which labels would tell the opposite."""
    good = isinstance(flips, tuple) and len(flips) == 2 and all(0 <= flip <= 1 for flip in flips)
    if not good or sum(flips) >= 1:
        raise InputError(f"flips={flips!r} must be two probabilities that add up to less than 1.")


def check_cost(flips: tuple[float, float] | None, epsilon: float) -> None:
    """Refuse flips that cost more than epsilon a label."""
    if flips is None:
        return
    check_flips(flips)
    if flips_epsilon(*flips) > epsilon * (1 + 1e-12):
        raise InputError(
            f"flips={flips} cost epsilon = {flips_epsilon(*flips):.6g} a label, more than {epsilon:.6g};"
            " flip more often, or leave flips out."
        )


def _log_ratio(one: float, other: float) -> float:
    if one == other:
        return 0.0
    return math.log(one) - math.log(other) if one > 0 and other > 0 else math.inf


def garbled(
    seen: Array, flip: float, flips: tuple[float, float], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Flip symmetrically flipped labels once more, so that likes and dislikes were flipped with ``flips``.

    This is post-processing, so its randomness need not be secret.
    """
    first, second = flips
    again_like = ((1 - flip) * (first - flip) + flip * (second - flip)) / (1 - 2 * flip)
    again_dislike = ((1 - flip) * (second - flip) + flip * (first - flip)) / (1 - 2 * flip)
    chance = np.where(seen > 0.5, again_like, again_dislike)
    return np.logical_xor(seen > 0.5, generator.random(len(seen)) < chance).astype(np.float64)


def fold_in_labels(
    arrays: Mapping[str, Array], labels: Any, link: str, regularization: float, offsets: bool = True
) -> UserState:
    """Local: every user's factors and offset, from her own labels and the released item factors."""
    from hushrec.kernels.one_bit import solve_rows

    factors = np.asarray(arrays["item_factors"], dtype=np.float64)
    width = factors.shape[1]
    if offsets:
        factors = np.column_stack([factors, np.ones(len(factors))])
    ridge = np.full(factors.shape[1], regularization)
    ridge[width:] *= _OFFSET_WEIGHT
    bias = np.asarray(arrays["item_bias"], dtype=np.float64)
    users = np.zeros((labels.shape[0], width + 1))
    if factors.shape[1]:
        solved = solve_rows(labels.indptr, labels.indices, labels.data, factors, bias, ridge, link)
        users[:, : factors.shape[1]] = solved
    return UserState(offset=users[:, width], factors=users[:, :width])


def likes(ratings: Ratings, threshold: float | None) -> sp.csr_array:
    """The rows with 1 for ratings above the threshold and 0 for all others (stored too)."""
    matrix = ratings.matrix
    threshold = ratings.domain.midpoint if threshold is None else threshold
    labels = (matrix.data > threshold).astype(np.float64)
    return sp.csr_array((labels, matrix.indices, matrix.indptr), shape=matrix.shape)


# ---------------------------------------------------------------------- parts


def check_optional_threshold(threshold: float | None) -> None:
    """Refuse a threshold that is no number."""
    if threshold is not None and not is_number(threshold):
        raise InputError(
            f"threshold={shown(threshold)} is not a number; declare above which rating a user likes an item,"
            " for example threshold=3.5."
        )


def pure_epsilon_share(budget: Budget, fraction: float) -> float:
    """Epsilon (delta 0) that a fraction of the budget buys: all of it, or what has that part of its mu^2."""
    from scipy.special import log_ndtr

    if fraction >= 1 or not budget.private:
        return budget.epsilon
    half = budget.mu * math.sqrt(fraction) / 2
    return float(log_ndtr(half) - log_ndtr(-half)) * (1 - 1e-12)


def level(seen: Array, flips: tuple[float, float], link: str) -> float:
    """The log-odds (or probit) of the overall rate of likes, as released labels tell it."""
    from scipy.special import logit, ndtri

    to_dislike, to_like = flips
    rate = (float(np.mean(seen)) - to_like) / (1 - to_dislike - to_like) if len(seen) else 0.5
    rate = min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)
    return float(logit(rate) if link == "logistic" else ndtri(rate))


def public_weights(positions: Array, count: int, power: float) -> NDArray[np.float64]:
    """Numbers of ratings in rows or columns, relative to their mean, to a power; a row has at least one."""
    numbers = np.maximum(np.bincount(positions, minlength=count), 1.0)
    return (numbers / numbers.mean()) ** power


def product(users: Array, items: Array) -> NDArray[np.float64]:
    """The matrix of factors with offsets in their last columns."""
    return users[:, :-1] @ items[:, :-1].T + users[:, -1:] + items[:, -1]


def split_matrix(matrix: Array) -> tuple[Array, Array]:
    """Balanced factors of a matrix, with offsets of 0 in a last column."""
    if matrix.shape[0] > matrix.shape[1]:
        return split_matrix(matrix.T)[::-1]
    values, vectors = np.linalg.eigh(matrix @ matrix.T)  # many times faster than singular vectors
    singular = np.sqrt(np.maximum(values, 0.0))
    kept = singular > _NEGLIGIBLE * max(singular[-1], 1e-300)
    root, left = np.sqrt(singular[kept]), vectors[:, kept]
    users, items = left * root, matrix.T @ left / root
    return np.pad(users, ((0, 0), (0, 1))), np.pad(items, ((0, 0), (0, 1)))
