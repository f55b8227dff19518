"""One-bit completion: exact enumeration of possible releases, measured sensitivities, planted faults."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.special import expit, logit, ndtr

from hushrec.data import Domain, Ratings
from hushrec.errors import BudgetError, InputError
from hushrec.papers.one_bit import OneBitCompletion, randomize_labels
from hushrec.papers.one_bit.flips import flips_epsilon, garbled
from hushrec.privacy import Accountant, Budget, Laplace, RandomizedResponse
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from tests.opening import opened

MECHANISMS = {
    "input": {},
    "objective": {},
    "gradient": {"gradient_steps": 2, "clamp": 0.1},
    "gradient, probit": {"gradient_steps": 2, "clamp": 0.2, "link": "probit"},
    "output": {"output_steps": 4, "strong_convexity": 0.5},
    "output, probit": {"output_steps": 4, "strong_convexity": 0.5, "link": "probit"},
}


def budget(epsilon: float, delta: float = 1e-6) -> Budget:
    return Budget(epsilon, delta, unit="rating", relation="replace")


def estimator(name: str, **changes) -> OneBitCompletion:
    settings = {"rank": 2, "iterations": 5, "threshold": 3.5} | MECHANISMS[name] | changes
    return OneBitCompletion.of(**{"mechanism": name.split(",")[0]} | settings)


def cells(n_users: int = 6, n_items: int = 5) -> list[tuple[int, int]]:
    """Two thirds of the cells, every user with one at least."""
    return [(i, j) for i in range(n_users) for j in range(n_items) if (i + 2 * j) % 3]


def rated(labels, places=None, n_items: int = 5) -> Ratings:
    """Ratings of 4 and 3 at public places."""
    places = cells() if places is None else places
    users, items = zip(*places)
    domain = Domain(range(n_items), rating_range=(1, 5), max_ratings_per_user=50)
    return Ratings.from_any((users, items, np.where(labels, 4.0, 3.0)), domain)


# ---------------------------------------------------------------------- exact enumeration (B3)


class Coins:
    """A noise source with given coins; it keeps the flip probability."""

    def __init__(self, coins) -> None:
        self.coins, self.probability = np.array(coins, dtype=bool), 0.0

    def flip(self, labels, probability, label):
        self.probability = probability
        return labels ^ self.coins


def laws(run, size: int):
    """Exact distribution of what ``run(labels, noise)`` returns, for every input, over all coins."""
    result = {}
    for labels in itertools.product((False, True), repeat=size):
        law: dict[bytes, Fraction] = {}
        for coins in itertools.product((False, True), repeat=size):
            noise = Coins(coins)
            output = run(np.array(labels), noise)
            flip = Fraction(noise.probability)
            chance = flip ** sum(coins) * (1 - flip) ** (size - sum(coins))
            law[output] = law.get(output, Fraction(0)) + chance
        result[labels] = law
    return result


def excess(by_input, epsilon: float) -> mpmath.mpf:
    """Largest log-ratio of the probabilities of an output under neighbouring labels, less epsilon."""
    worst = Fraction(0)
    for labels, law in by_input.items():
        assert sum(law.values()) == 1
        for place in range(len(labels)):
            other = by_input[(*labels[:place], not labels[place], *labels[place + 1 :])]
            assert law.keys() == other.keys()
            worst = max(worst, *(law[output] / other[output] for output in law))
    with mpmath.workdps(60):
        return mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator) - mpmath.mpf(epsilon)


def send(epsilon):
    return lambda labels, noise: randomize_labels(labels, Accountant(budget(epsilon), noise=noise)).tobytes()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_whole_released_matrix(epsilon):
    """Every solve of every input and coin: the matrix leaks no more than the flipped labels."""
    places = [(0, 0), (0, 1), (1, 0)]

    def run(labels, noise):
        fit = estimator("input", rank=1, iterations=2)
        done = fit.complete(rated(labels, places, 2), Accountant(budget(epsilon), noise=noise))
        return done.users.tobytes() + done.items.tobytes()

    assert -1e-6 * epsilon <= excess(laws(run, 3), epsilon) <= 0


# ---------------------------------------------------------------------- two flip probabilities


def test_condition_on_two_flip_probabilities():
    """All four ratios count; Theorem 1 of the paper bounds two of them."""
    for epsilon in (0.5, 1.0, 3.0):
        bound = math.exp(epsilon)
        for first, second in itertools.product(np.linspace(0, 0.6, 31), repeat=2):
            ratios = [(1 - first, second), (second, 1 - first), (first, 1 - second), (1 - second, first)]
            allowed = all(a <= bound * b * (1 + 1e-12) for a, b in ratios)
            assert allowed == (flips_epsilon(first, second) <= epsilon + 1e-9)
        first, second = 0.0, math.exp(-epsilon)  # passes 1 - p2 e^eps <= p1 <= (1 - p2) e^eps
        assert 1 - second * bound <= first + 1e-12 <= (1 - second) * bound
        with pytest.raises(InputError, match="inf a label"):
            estimator("input", flips=(first, second)).plan(budget(epsilon), rated([0] * 20).domain)


@pytest.mark.parametrize("flips", [(0.3, 0.3), (0.5, 0.2), (0.2, 0.45)])
def test_allowed_flips_are_symmetric_ones_followed_by_more(flips):
    epsilon = max(1.0, flips_epsilon(*flips))
    flip = RandomizedResponse(epsilon).flip_probability(1.0)

    class Threshold:
        """Uniforms on a grid: exact probabilities by counting."""

        def random(self, size):
            return (np.arange(size) + 0.5) / size

    count = 200_000
    for label, wanted in ((True, flips[0]), (False, flips[1])):
        changed = 0.0
        for seen, chance in ((label, 1 - flip), (not label, flip)):
            final = garbled(np.full(count, seen), flip, flips, Threshold())
            changed += chance * np.mean((final > 0.5) != label)
        assert changed == pytest.approx(wanted, abs=1e-5)


# ---------------------------------------------------------------------- sensitivities, measured


def test_objective_perturbation_minimises_the_likelihood_plus_the_noise_once():
    """If neither bound nor rank of the matrix binds, the optimum of l(x) + H x is known cell by cell."""
    labels = np.arange(20) % 3 == 0
    noise = RecordingNoise(SeededNoise(3))
    fit = OneBitCompletion.as_published(
        mechanism="objective", threshold=3.5, nuclear_norm=50.0, bound=2.0, tolerance=1e-12, iterations=500
    )
    done = fit.complete(rated(labels), Accountant(budget(3.0), noise=noise))
    drawn = labels - noise.calls[0].output  # H, of scale Delta / epsilon with Delta = 1
    assert noise.calls[0].amount == pytest.approx(1 / 3.0)
    best = np.clip(logit(np.clip(labels - drawn, 1e-12, 1 - 1e-12)), -2, 2)
    rows, columns = np.array(cells()).T
    assert done.at(rows, columns) == pytest.approx(best, abs=1e-4)
    grid = np.linspace(-2, 2, 4001)
    for cell in range(20):
        objective = np.logaddexp(0, grid) - labels[cell] * grid + drawn[cell] * grid
        assert grid[np.argmin(objective)] == pytest.approx(best[cell], abs=2e-3)


# ---------------------------------------------------------------------- output perturbation as published


def test_published_output_is_refused_unless_its_cost_is_acknowledged():
    settings = {"mechanism": "output-published", "entry_epsilon": 2.0, "n_users": 6, "rank": 2}
    with pytest.raises(InputError, match="each entry"):
        OneBitCompletion.of(**settings)
    fit = OneBitCompletion.of(**settings, acknowledge_cost=True, bound=1.0)
    labels = np.arange(20) % 2 == 0
    with pytest.raises(BudgetError, match="past the budget"):
        fit.complete(rated(labels), Accountant(budget(2.0)))
    noise = RecordingNoise(SeededNoise(0))
    done = fit.complete(rated(labels), Accountant(budget(60.0), noise=noise))
    assert noise.calls[0].amount == pytest.approx(1.0)  # 2 alpha / entry_epsilon, as published
    assert done.privacy.pure_epsilon == pytest.approx(60.0)
    assert "cost of one of 30 entries" in " ".join(done.privacy.text().split())
    with pytest.raises(InputError, match="declared"):
        fit.complete(rated(labels[:16], cells()[:16]), Accountant(budget(60.0)))


# ---------------------------------------------------------------------- the estimator


def low_rank(n_users: int = 60, n_items: int = 40, seed: int = 0):
    rng = np.random.default_rng(seed)
    truth = 2.5 * np.outer(rng.standard_normal(n_users), rng.standard_normal(n_items))
    seen = rng.random(truth.shape) < 0.5
    labels = (rng.random(truth.shape) < expit(truth))[seen]
    return truth, rated(labels, list(zip(*np.nonzero(seen))), n_items)


def test_users_are_served_from_the_item_factors_with_their_own_labels():
    truth, ratings = low_rank()
    fit = OneBitCompletion.of(threshold=3.5, rank=3, nuclear_norm=2.0)
    model = fit.fit(ratings, Accountant(budget(4.0), noise=SeededNoise(0)))
    assert set(model.arrays) == {"center", "item_bias", "item_factors"}  # nothing of any user
    scores = model.predict(ratings, list(range(40)))
    assert np.mean((scores > 0) == (truth > 0)) > 0.75
    assert np.isfinite(model.predict({0: 5.0}, [1])).all()


def test_the_statement_claims_exact_sums_only_of_labels():
    _, ratings = low_rank()
    for mechanism, exact in {"input": True, "objective": True, "gradient": False, "output": False}.items():
        statement = estimator(mechanism).complete(ratings, Accountant(budget(4.0))).privacy
        assert statement.exact_arithmetic == exact
        assert ("sums: exact integers" in statement.text()) == exact


@pytest.mark.parametrize("name", ["gradient", "gradient, probit"])
def test_slopes_are_those_at_scores_within_the_bound_and_within_the_clamp(name):
    """Score by score, against the derivatives of both links; in either direction."""
    fit, labels = estimator(name, clamp=0.6, bound=1.5), np.arange(20) % 2 == 0
    users, scores = fit.users(rated(labels)), np.linspace(-6, 6, 20)
    liked, inside = labels, np.minimum(np.maximum(scores, -1.5), 1.5)
    if fit.link == "logistic":
        expected = expit(inside) - liked
    else:
        density = np.exp(-(inside**2) / 2) / math.sqrt(2 * math.pi)
        expected = np.where(liked, -density / ndtr(inside), density / ndtr(-inside))
    found = users.slopes(scores)
    assert opened(found) == pytest.approx(np.minimum(np.maximum(expected, -0.6), 0.6))
    assert (np.abs(opened(found)) == 0.6).any() and (np.abs(opened(found)) < 0.6).any()
    assert found.unit == "rating" and found.norm == "l1"


def test_entries_of_the_strongly_convex_optimum_take_all_their_steps():
    """Computed by hand inside the nuclear ball and the bound: each step is 1 / (1/4 + 0.5)."""
    model = estimator("output", nuclear_norm=1e3, bound=50.0, output_steps=7)
    labels = np.random.default_rng(0).integers(0, 2, len(cells()))
    users = model.users(rated(labels))
    matrix, places = np.zeros((6, 5)), tuple(np.array(cells()).T)
    for _ in range(7):
        slope = expit(matrix[places]) - labels
        matrix *= 1 - 0.5 / 0.75
        matrix[places] -= slope / 0.75
    found = users.observed_entries()
    assert opened(found) == pytest.approx(matrix[places], abs=1e-9)
    assert found.sensitivity("replace") == pytest.approx(1 / 0.5 * (1 - (1 - 0.5 / 0.75) ** 7))


PUBLISHED = {"entry_epsilon": 0.5, "n_users": 6, "acknowledge_cost": True, "bound": 1.25}


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        ("input", {}, {"labels": (RandomizedResponse(2.0), 1.0)}),
        ("objective", {}, {"labels less the objective's noise": (Laplace(0.5), 1.0)}),
        ("gradient", {}, {f"gradient {step}": (Laplace(1.0), 0.2) for step in (1, 2)}),
        ("gradient", {"clamp": 9.0}, {f"gradient {step}": (Laplace(1.0), 1.0) for step in (1, 2)}),
        ("output", {}, {"observed entries": (budget(2.0).share(1.0), 2 * (1 - 3.0**-4))}),
        ("input", PUBLISHED | {"mechanism": "output-published"}, {"matrix": (Laplace(1 / 15), 2.5 * 30)}),
    ],
)
def test_what_a_mechanism_releases_and_what_for(name, changes, wanted):
    """Computed by hand for a budget of epsilon 2; without privacy no noise is planned."""
    domain = rated([0] * 20).domain
    fit = estimator(name, **changes)
    plan = fit.plan(budget(2.0 if fit.mechanism != "output-published" else 15.0), domain)
    assert [each.label for each in plan.releases] == list(wanted)
    for each, (law, sensitivity) in zip(plan.releases, wanted.values()):
        assert type(each.mechanism) is type(law) and each.sensitivity == pytest.approx(sensitivity)
        for field in ("epsilon", "noise_multiplier", "multiplier"):
            assert getattr(each.mechanism, field, None) == pytest.approx(getattr(law, field, None))
        assert (each.unit, each.relation) == ("rating", "replace")
    if fit.mechanism in ("output-published", "gradient", "output"):
        for each in fit.plan(budget(math.inf), domain).releases:
            assert each.noise_sd == 0
    [each] = estimator("input", mechanism="none").plan(budget(math.inf), domain).releases
    assert (each.label, each.noise_sd, each.sensitivity) == ("labels", 0.0, 1.0)


@pytest.mark.parametrize("mechanism", ["input", "output"])
def test_the_statement_says_what_all_ratings_of_a_user_cost(mechanism):
    """Oracle: dp-accounting at the noise of the cap's ratings together."""
    domain = Domain(range(30), rating_range=(1, 5), max_ratings_per_user=7)
    budget = Budget(2, 1e-6, unit="rating", relation="replace")
    (note,) = OneBitCompletion.of(mechanism=mechanism, threshold=3.5).notes(budget, domain)
    said = float(note.rsplit(" ", 1)[1].replace(",", ""))
    sd = gaussian_mechanism.get_sigma_gaussian(2, 1e-6)
    expected = 14 if mechanism == "input" else gaussian_mechanism.get_epsilon_gaussian(sd / 7, 1e-6)
    assert said == pytest.approx(expected, rel=1e-4) and said >= 14
