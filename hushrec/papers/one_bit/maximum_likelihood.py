"""Maximum likelihood of a matrix of log-odds from some of its cells' signs.

Minimise ``sum over observed cells of loss(x_ij, target_ij)`` over matrices with nuclear norm at most
``radius`` and entries at most ``bound`` in absolute value (Davenport, Plan, van den Berg and Wootters 2014):
on the dense matrix, or on two factors, for which the nuclear ball is Euclidean and the caller applies the
entrywise bound.

Cells are given as ``rows, columns, target`` of one length (`hushrec.kernels.one_bit`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from hushrec.kernels.arrays import BiasedFactors
from hushrec.kernels.one_bit import likelihood, soft_threshold_for
from hushrec.kernels.residuals import predict_pairs
from hushrec.kernels.sweeps import with_ones

Array = NDArray[np.float64]
#: ``rows, columns, target`` of the observed cells.
Cells = tuple[NDArray[np.integer], NDArray[np.integer], Array]


#: Constants of Birgin, Martinez and Raydan 2000.
_ARMIJO, _MEMORY = 1e-4, 10
_SHORTEST_STEP, _LONGEST_STEP = 1e-10, 1e10
#: Earlier tolerances of the dense solver.
_LEVELS = tuple(10.0**-power for power in range(1, 16))


def label_sensitivity(link: str, bound: float) -> float:
    """Most that a label changes a derivative: the supremum of h' / (h (1 - h)), |x| <= bound."""
    if link == "logistic":
        return 1.0
    _, slope = likelihood(np.array([bound, bound]), np.array([0.0, 1.0]), link)
    return float(slope[0] - slope[1])  # grows with |x|


def project_nuclear(matrix: Array, radius: float) -> Array:
    """Return the nearest matrix of nuclear norm at most ``radius``."""
    if matrix.shape[0] > matrix.shape[1]:
        return project_nuclear(matrix.T, radius).T
    if np.linalg.norm(matrix) * math.sqrt(matrix.shape[0]) <= radius:
        return matrix  # the nuclear norm is at most that
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    singular = np.sqrt(np.maximum(values, 0.0))
    threshold = soft_threshold_for(singular, radius)
    if threshold == 0:
        return matrix
    kept = singular > threshold
    basis = vectors[:, kept]
    return (basis * (1 - threshold / singular[kept])) @ (basis.T @ matrix)


class Projection:
    """Projection onto {nuclear norm <= radius} and {entries within +-bound}, from where the last one ended.

    Dykstra's alternating projections, as proximal gradient steps in the dual with Nesterov's momentum and
    restarts. The result respects the bound exactly. It differs from the projection by about ``tolerance``
    (root mean square of the last change), or stops after ``rounds`` eigendecompositions.
    """

    def __init__(self, radius: float, bound: float, tolerance: float = 1e-9, rounds: int = 500) -> None:
        self.radius, self.bound, self.tolerance, self.rounds = radius, bound, tolerance, rounds
        self._multiplier: Array | None = None

    def __call__(self, matrix: Array, step: float = 1.0) -> Array:
        """Project a point less ``step`` times the gradient there.

        At an optimum the dual is ``step`` times the nuclear ball's multiplier for any step, so the search
        begins there.
        """
        dual = np.zeros_like(matrix) if self._multiplier is None else step * self._multiplier
        ahead, momentum = dual, 1.0
        nearest = np.clip(matrix - ahead, -self.bound, self.bound)
        for _ in range(self.rounds):
            # dual part of the nuclear ball, given the box's
            stepped = ahead + nearest
            new = stepped - project_nuclear(stepped, self.radius)
            if np.vdot(ahead - new, new - dual) > 0:
                momentum = 1.0  # restart: it points uphill
            weight = (momentum - 1) / (momentum_next := (1 + math.sqrt(1 + 4 * momentum**2)) / 2)
            ahead, dual, momentum = new + weight * (new - dual), new, momentum_next
            previous, nearest = nearest, np.clip(matrix - ahead, -self.bound, self.bound)
            if np.linalg.norm(nearest - previous) <= self.tolerance * math.sqrt(nearest.size):
                break
        self._multiplier = dual / step
        return np.clip(matrix - dual, -self.bound, self.bound)


class Solution(NamedTuple):
    point: Array
    value: float
    iterations: int


def spectral_projected_gradient(
    objective: Callable[[Array], tuple[float, Array]],
    project: Callable[[Array, float], Array],
    start: Array,
    iterations: int,
    tolerance: float,
    window: int = 10,
) -> Solution:
    """Minimise over a convex set: projected Barzilai-Borwein steps with nonmonotone line search.

    Birgin, Martinez and Raydan 2000, algorithm SPG2, with a memory of 10 values. ``objective`` returns value
    and gradient, and ``project`` takes a point less a step times the gradient there, and that step. It stops
    when the last ``window`` values (2 to 10) differ by at most ``tolerance`` times the value at the start.
    """
    value, gradient = objective(start)
    first = abs(value) + 1e-300
    step = 1 / max(float(np.abs(gradient).max(initial=0.0)), 1e-12)
    point = project(start - step * gradient, step)
    value, gradient = objective(point)
    best, best_value, recent = point, value, [value]
    count = 0
    while count < iterations:
        count += 1
        direction = project(point - step * gradient, step) - point
        slope = float(np.vdot(gradient, direction))
        if slope >= 0:
            break
        length = 1.0
        while True:
            moved = point + length * direction
            moved_value, moved_gradient = objective(moved)
            if moved_value <= max(recent) + _ARMIJO * length * slope or length < 1e-12:
                break
            parabola = -0.5 * length**2 * slope / (moved_value - value - length * slope)
            length = parabola if 0.1 * length <= parabola <= 0.9 * length else length / 2
        change, turn = moved - point, moved_gradient - gradient
        step = barzilai_borwein(change, turn)
        point, value, gradient = moved, moved_value, moved_gradient
        if value < best_value:
            best, best_value = point, value
        recent = [*recent[1 - _MEMORY :], value]
        last = recent[-window:]
        if len(last) == window and max(last) - min(last) <= tolerance * first:
            break
    return Solution(best, best_value, count)


def barzilai_borwein(change: Array, turn: Array) -> float:
    curvature = float(np.vdot(change, turn))
    if curvature <= 0:
        return _LONGEST_STEP if np.any(turn) else 1.0
    return min(max(float(np.vdot(change, change)) / curvature, _SHORTEST_STEP), _LONGEST_STEP)


def solve_dense(
    cells: Cells,
    shape: tuple[int, int],
    radius: float,
    bound: float,
    link: str,
    flips: tuple[float, float] = (0.0, 0.0),
    *,
    iterations: int = 200,
    tolerance: float = 1e-6,
) -> Solution:
    """Maximum likelihood over dense matrices within the nuclear and the entrywise bound.

    ``cells`` occur once each; ``link`` and ``flips`` are those of :func:`likelihood`, ``tolerance`` that of
    :func:`spectral_projected_gradient`. Projections are ten times as accurate.
    """
    rows, columns, target = cells

    def objective(matrix: Array) -> tuple[float, Array]:
        loss, slope = likelihood(matrix[rows, columns], target, link, flips)
        gradient = np.zeros(shape)
        gradient[rows, columns] = slope
        return float(loss.sum()), gradient

    project = Projection(radius, bound)
    solution = Solution(np.zeros(shape), 0.0, 0)
    # rough projections far from the optimum: most of the work is in them
    for level in [*itertools.takewhile(lambda rough: rough > 2 * tolerance, _LEVELS), tolerance]:
        project.tolerance = level / 10
        left = iterations - solution.iterations
        last = spectral_projected_gradient(objective, project, solution.point, left, level, window=3)
        solution = last._replace(iterations=solution.iterations + last.iterations)
    return solution


def solve_factored(
    cells: Cells,
    shape: tuple[int, int],
    radius: float,
    start: Array,
    link: str,
    flips: tuple[float, float] = (0.0, 0.0),
    *,
    center: float = 0.0,
    scale: Array | None = None,
    iterations: int = 200,
    tolerance: float = 1e-6,
) -> Solution:
    """Maximum likelihood over products of factors: the nuclear norm is at most half their squared norm.

    The matrix is ``center + user factors . item factors + user offset + item offset``. Without offsets and
    weights, and with enough columns, it is the dense problem without its entrywise bound (Srebro, Rennie and
    Jaakkola 2004).

    Parameters
    ----------
    start : (n_rows + n_columns, rank + 1) array
        Factors and offset of the rows, then of the columns; the factors not zero. The result is alike.
    scale : (n_rows + n_columns, rank + 1) array, optional
        The ball bounds half the squared norm of factors and offsets divided by it: weights of a weighted
        nuclear norm (Srebro and Salakhutdinov 2010). By default 1 for factors and 0 for offsets, which means
        none.
    cells, shape, radius, link, flips, iterations, tolerance
        As in :func:`solve_dense`.
    """
    rows, columns, target = cells
    if scale is None:
        scale = np.ones_like(start)
        BiasedFactors(scale).biases[:] = 0.0

    def project(scaled: Array, _: float) -> Array:
        squared = 0.5 * float(np.vdot(scaled, scaled))
        return scaled * min(1.0, math.sqrt(radius / squared)) if squared else scaled

    def objective(scaled: Array) -> tuple[float, Array]:
        point = scaled * scale
        scores = cell_scores(rows, columns, point, shape[0]) + center
        loss, slope = likelihood(scores, target, link, flips)
        gradient: Any = sp.csr_array((slope, (rows, columns)), shape=shape)
        left, right = with_ones(point[: shape[0]]), with_ones(point[shape[0] :])
        return float(loss.sum()), np.vstack([gradient @ right, gradient.T @ left]) * scale

    solution = spectral_projected_gradient(objective, project, start, iterations, tolerance)
    return solution._replace(point=solution.point * scale)


def cell_scores(
    rows: NDArray[np.integer], columns: NDArray[np.integer], stacked: Array, n_rows: int
) -> Array:
    left, right = BiasedFactors(stacked[:n_rows]), BiasedFactors(stacked[n_rows:])
    fitted = predict_pairs(rows, columns, left.factors, right.factors)
    return fitted + left.biases[rows] + right.biases[columns]
