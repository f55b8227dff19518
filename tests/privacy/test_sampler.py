"""A4: noise is an exact sample of the rounded ideal law, and what breaks float noise does not break it."""

import itertools
import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from scipy import stats

from hushrec.audit.bounds import mu_lower_bound
from hushrec.models import ItemBias
from hushrec.privacy import Accountant, Budget, SystemNoise, exact, sampler
from hushrec.privacy.sampler import draw_exactly
from hushrec.privacy.testing import RecordingNoise
from hushrec.testing import DOMAIN, ratings_of

ALARM = 1e-9
UNDECIDED = sampler.Margins(acceptance=2.0, rounding=1.0, sum=1.0)
LAWS = ["gaussian", "exponential"]


def law_of(name):
    return getattr(sampler, name)()


def distribution(name, z):
    """P(|Z| < z)."""
    return mpmath.erf(z / mpmath.sqrt(2)) if name == "gaussian" else -mpmath.expm1(-z)


def draw(name, count, *, value=0.0, scale=2.0**24, grid=0, margins=None):
    values = np.full(count, value)
    words = SystemNoise()._stream()
    sampler.add_noise(values, np.array([scale]), np.array([grid], np.int32), law_of(name), words, margins)
    return values


def prepared(*chunks):
    """A source of words that returns these arrays, in order, and fails when asked for more."""
    rest = iter(chunks)
    return lambda count: np.array(next(rest), dtype=np.uint64)


@pytest.fixture
def slow_draws(monkeypatch):
    """The draws that are done in integers of any length."""
    calls = []
    spy = lambda *arguments: calls.append(arguments[:3]) or draw_exactly(*arguments)  # noqa: E731
    monkeypatch.setattr(sampler, "draw_exactly", spy)
    return calls


# the tables


@pytest.mark.parametrize("name", LAWS)
def test_thresholds(name, record_property):
    """Every one, also of finer tables, against a proven enclosure (ball arithmetic)."""
    law = law_of(name)
    with flint.ctx.workprec(900):
        for bits in (128, 256, 512):
            for k, threshold in enumerate(law.finer(bits)):
                z = flint.arb(k + 1) / 2**law.cell_bits
                exact = (z / flint.arb(2).sqrt()).erf() if name == "gaussian" else -(-z).expm1()
                off = int((exact * 2**bits).floor().unique_fmpz()) - threshold
                assert off == 0 or (bits > 128 and abs(off) == 1), k
            assert law.finer(bits)[-1] == 2**bits - 1
        assert law.thresholds == law.finer(128)
    with mpmath.workdps(120):
        for k, quick in enumerate(law.quick.tolist()):
            h = mpmath.ldexp(1, -law.cell_bits)
            largest = h * h * (k + mpmath.mpf(1) / 2) if name == "gaussian" else h
            assert quick == int(mpmath.floor(2**31 * (1 - largest))) < 2**31 * mpmath.exp(-largest)
    record_property("table entries", len(law.thresholds))


def alternating(x, weights):
    """Bounds in fractions of the sum of (-x)^n w_n / n! with falling w_n >= 0: the rest is below one term."""
    least, common = len(weights) - 1, math.lcm(*(weight.denominator for weight in weights))
    total, product = 0, 1
    for n in range(least, -1, -1):  # Horner's scheme over one denominator
        total = total * -x.numerator + product * common // weights[n].denominator
        product *= max(n, 1) * x.denominator
    denominator = common * product // x.denominator
    rest = x**least / math.factorial(least)
    assert least > x and rest < Fraction(1, 2**160)
    return Fraction(total, denominator) - rest, Fraction(total, denominator) + rest


def pi_bounds():
    """Machin's formula, cut after an even and an odd number of terms."""
    inverse = lambda x, count: sum(Fraction((-1) ** n, (2 * n + 1) * x ** (2 * n + 1)) for n in range(count))  # noqa: E731
    return [16 * inverse(5, 80 + odd) - 4 * inverse(239, 81 - odd) for odd in (0, 1)]


@pytest.mark.parametrize("name", LAWS)
def test_thresholds_in_rational_arithmetic(name):
    """Every entry is the floor, in whole numbers alone: no float, and no package, computes the law."""
    least_pi, largest_pi = pi_bounds()
    for k, threshold in enumerate(law_of(name).thresholds[:-1]):
        z, terms = Fraction(k + 1, 32), 3 * (k + 1) // 32 + 120
        low, high = Fraction(threshold, 2**128), Fraction(threshold + 1, 2**128)
        if name == "gaussian":  # its square is 2 z^2 / pi times that of the sum
            terms = 2 * (k + 1) ** 2 // 1024 + 120
            small, large = alternating(z * z / 2, [Fraction(1, 2 * n + 1) for n in range(terms)])
            assert (
                low**2 * largest_pi <= 2 * (z * small) ** 2 and 2 * (z * large) ** 2 < high**2 * least_pi
            ), k
        else:
            small, large = alternating(z, [Fraction(1)] * terms)
            assert low <= 1 - large and 1 - small < high, k


# the decisions, with words that are known


def words_for(law, k, place, coin, sign=0):
    """Words that lead to cell k, a place, and a coin of 95 bits."""
    low = int(law.high[k - 1]) if k else 0
    cell = (low + int(law.high[k])) // 2
    return [cell << 32 | (coin >> 64) << 1 | sign, place, coin & (2**64 - 1)]


@pytest.mark.parametrize("k", [0, 30, 180])
@pytest.mark.parametrize("name", LAWS)
def test_acceptance_is_at_exp_minus_t(name, k, slow_draws):
    """A coin 2^-55 of the bound away is decided by `draw_exactly`, one 2^-35 away without it."""
    law, rng = law_of(name), np.random.default_rng(k)
    for place, other in rng.integers(2**62, 2**64, (20, 2), dtype=np.uint64).tolist():
        with mpmath.workdps(60):
            h, x = mpmath.ldexp(1, -law.cell_bits), mpmath.ldexp(place, -64)
            t = h * h * (k * x + x * x / 2) if name == "gaussian" else h * x
            bound = int(mpmath.ldexp(mpmath.exp(-t), 95))
        for distance in (2**40, 2**60):
            for coin, expected in ((bound - distance, place), (bound + distance, other)):
                words = words_for(law, k, place, coin) + [0, other] + [0] * 100
                values = np.zeros(1)
                slow_draws.clear()
                further = [0, other, 0, 0, 0, 0, 0, 0]
                source = prepared(words, further)
                scale = np.array([2.0**35])
                sampler.add_noise(values, scale, np.zeros(1, np.int32), law, source)
                assert len(slow_draws) == (distance == 2**40)
                size = 2**35 * Fraction(2**64 * k + expected, 2**64 << law.cell_bits)
                assert values[0] == (size + Fraction(1, 2)).__floor__()
                assert values[0] == draw_exactly(0.0, 2.0**35, 0, law, iter(words))


def cell_drawn(law, uniform):
    """The cell that a uniform number leads to, and how many of its bits were drawn."""
    words = iter(int(mpmath.ldexp(uniform, 96 + 64 * n)) & (2**64 - 1) for n in range(40))
    drawn = exact.Uniform(int(mpmath.ldexp(uniform, 32)), 32, words)
    return sampler._cell(law, drawn), drawn.count


@pytest.mark.parametrize("distance", [100, 130, 290, 700])
@pytest.mark.parametrize("k", [0, 100])
@pytest.mark.parametrize("name", LAWS)
def test_ties_of_the_cell_are_broken_by_further_bits(name, k, distance):
    """A uniform number 2^-distance below a threshold is in cell k, above it in the next.

    Killed: thresholds that are cut to 128 bits.
    """
    law = law_of(name)
    with mpmath.workdps(300):
        threshold = distribution(name, mpmath.ldexp(k + 1, -law.cell_bits))
        for sign, expected in ((-1, k), (1, k + 1)):
            cell, count = cell_drawn(law, threshold + sign * mpmath.ldexp(1, -distance))
            assert cell == expected and distance - 32 <= count <= 2 * distance + 160


@pytest.mark.parametrize("name", LAWS)
def test_the_tail_has_its_law(name):
    """Killed: a last cell that takes the tail beyond 2^-128."""
    law = law_of(name)
    with mpmath.workdps(300):
        for distance in (120, 127, 140, 300):
            uniform, cell = 1 - mpmath.ldexp(1, -distance), 0
            while distribution(name, mpmath.ldexp(cell + 1, -law.cell_bits)) <= uniform:
                cell += 1
            assert cell_drawn(law, uniform)[0] == cell


@pytest.mark.parametrize("name", LAWS)
def test_sums_next_to_a_half_integer(name, slow_draws):
    """Closer than float64 can resolve, on either side; 64 bits of the place do not always decide."""
    law, rng, scale = law_of(name), np.random.default_rng(0), 27182818.28459045
    for _ in range(100):
        k, sign = int(rng.integers(0, 150)), int(rng.integers(2))
        place = int(rng.integers(0, 2**64, dtype=np.uint64))
        noise = (1 - 2 * sign) * Fraction(scale) * Fraction(2**64 * k + place, 2**64 << law.cell_bits)
        for value in (float(Fraction(1, 2) - noise), float(Fraction(12345.5) - noise)):
            words = [words_for(law, k, place, 0, sign)[0], place] + [7] * 70
            values = np.array([value])
            slow_draws.clear()
            sampler.add_noise(
                values, np.array([scale]), np.zeros(1, np.int32), law, prepared(words, [2**63] * 8)
            )
            assert len(slow_draws) == 1
            exact = Fraction(value) + noise + Fraction(1, 2)
            unknown = Fraction(scale) / (2**64 << law.cell_bits)
            if abs(exact - round(exact)) > unknown:
                assert values[0] == exact.__floor__()
    # |Z| scale is 5 + V with a uniform V of which nothing is known yet
    for sign, further, expected in (
        (0, [0], 5), (0, [2**63 - 2], 5), (0, [2**63], 6), (1, [2**63 - 1], -5), (1, [2**63, 0, 1], -6)
    ):  # fmt: skip
        words = iter([words_for(law, 0, 0, 0, sign)[0], 5, *further])
        assert draw_exactly(0.0, 2.0 ** (64 + law.cell_bits), 0, law, words) == expected
        assert next(words, None) is None


@pytest.mark.parametrize("name", LAWS)
def test_the_compiled_function_is_the_exact_one(name, slow_draws, record_property):
    """Bit for bit, word for word, for any value and scale, except draws left to the exact sampler."""
    law, rng = law_of(name), np.random.default_rng(1)
    settings = rng.integers(-290, 291, (1500, 2))
    for number, (size, power) in enumerate(settings.tolist()):
        power = power if number % 2 else size + power % 30 - 15
        scale, grid = np.frexp(float(f"{rng.uniform(1, 9)}e{max(-290, min(290, power))}"))
        scale, grid = np.ldexp(scale, sampler.GRID_BITS), int(grid) - sampler.GRID_BITS
        value = rng.choice([-1, 1]) * float(f"{rng.uniform(1, 9)}e{size}")
        words = rng.integers(0, 2**64, 80, dtype=np.uint64)
        values = np.array([value])
        before = len(slow_draws)
        sampler.add_noise(
            values, np.array([scale]), np.array([grid], np.int32), law, prepared(words, words[70:])
        )
        if len(slow_draws) == before:
            assert values[0] == draw_exactly(value, scale, grid, law, iter(words.tolist()))
    assert len(slow_draws) < 3
    for k in (0, 5, 100):  # a tie with a threshold is not decided by 32 bits
        words, values = [int(law.high[k]) << 32, *[0] * 99], np.zeros(1)
        source = prepared(words, [0] * 8)
        sampler.add_noise(values, np.array([2.0**24]), np.zeros(1, np.int32), law, source)
        assert values[0] == draw_exactly(0.0, 2.0**24, 0, law, iter(words)) == k * 2 ** (24 - law.cell_bits)
    record_property("draws compared", len(settings) - len(slow_draws))


@pytest.mark.parametrize("name", LAWS)
def test_few_draws_are_undecided(name, slow_draws):
    for scale in (2.0**24, 2.0**25 - 1):
        draw(name, 1_000_000, scale=scale)
    assert len(slow_draws) < 20  # 1e-5


def test_a_source_that_runs_out_of_words_is_asked_for_more():
    """Rejections use up words; no draw reads the same words again."""
    law, asked = law_of("gaussian"), []
    rejecting = np.array(words_for(law, 100, 2**64 - 1, 2**95 - 1), dtype=np.uint64)

    def words(count):
        asked.append(count)
        return np.resize(rejecting, count) if len(asked) < 5 else SystemNoise()._stream()(count)

    values = np.zeros(1000)
    sampler.add_noise(values, np.array([2.0**24]), np.zeros(1, np.int32), law, words)
    assert np.all(values != 0)
    assert len(asked) > 5


# the law


def check_pmf(name, scale, value, draws, record=lambda *_: None):
    """Chi-square of integers against mpmath's integrals."""
    reach = int(scale * (7 if name == "gaussian" else 25)) + 3

    def below(x):
        z = (mpmath.mpf(x) - value) / scale
        tail = (1 - distribution(name, abs(z))) / 2
        return tail if z < 0 else 1 - tail

    ends = [below(n - mpmath.mpf(1) / 2) for n in range(-reach, reach + 2)]
    chances = np.array([float(b - a) for a, b in itertools.pairwise(ends)])
    counts = np.bincount((draws + reach).astype(int).clip(0, 2 * reach), minlength=2 * reach + 1)
    cells, total = [0], 0.0
    for n, chance in enumerate(chances):  # at least 20 draws are expected in each cell
        total += chance * len(draws)
        if total >= 20:
            cells.append(n + 1)
            total = 0.0
    expected = np.add.reduceat(chances, cells[:-1])
    observed = np.add.reduceat(counts, cells[:-1])
    expected[-1] += 1 - expected.sum()
    p_value = stats.chisquare(observed, expected * len(draws)).pvalue
    record("draws", len(draws))
    record("smallest p-value", p_value)
    assert p_value > ALARM


@pytest.mark.parametrize("count", [600_000, pytest.param(10_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("scale", [0.1, 3.3, 64.0])
@pytest.mark.parametrize("name", LAWS)
def test_pmf_on_a_coarse_grid(name, scale, count, record_property):
    check_pmf(name, scale, 0.3, draw(name, count, value=0.3, scale=scale), record_property)


@pytest.mark.parametrize("name", LAWS)
def test_pmf_where_float64_decides_nothing(name, slow_draws):
    draws = draw(name, 10_000, value=0.3, scale=3.3, margins=UNDECIDED)
    assert len(slow_draws) == 10_000
    check_pmf(name, 3.3, 0.3, draws)


@pytest.mark.parametrize("name", LAWS)
def test_places_within_the_cells(name):
    """Killed: places drawn without the acceptance step; 9 sigma in a million draws."""
    law = law_of(name)
    cells = np.abs(draw(name, 1_000_000)) * 2.0 ** (law.cell_bits - 24)
    k, place = np.divmod(cells, 1)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    nodes, weights = (nodes + 1) / 2, weights / 2
    density = weights * np.exp(
        -nodes * (law.base + law.slope * np.arange(k.max() + 1)[:, None] + law.curve * nodes)
    )
    density /= density.sum(axis=1, keepdims=True)
    mean = density @ nodes
    variance = density @ nodes**2 - mean**2
    weight = k if name == "gaussian" else np.ones_like(k)
    score = weight @ (place - mean[k.astype(int)]) / np.sqrt(weight**2 @ variance[k.astype(int)])
    assert abs(score) < 6


# the attacks


def fineness(values):
    """The least j such that the value is a multiple of 2^-j: where its last bit is."""
    fractions, exponents = np.frexp(values.astype(np.float64))
    integers = np.abs(np.ldexp(fractions, 53)).astype(np.int64)
    last = np.log2(np.maximum(integers & -integers, 1))
    return np.where(values == 0, -2000, 53 - last - exponents)


def refuted_mu(add, value, sd, dtype):
    """The largest mu that the place of the last bit refutes, either way, in 200,000 draws."""
    scores = [fineness(add(np.full(200_000, one, dtype), sd)) for one in (0.0, value)]
    thresholds = np.arange(-30, 130)
    return max(mu_lower_bound(*pair, thresholds, ALARM) for pair in (scores, scores[::-1]))


def added_in_floating_point(value, sd):
    noise = np.random.default_rng().standard_normal(value.shape, dtype=value.dtype)
    return value + value.dtype.type(sd) * noise


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("value", "sd"), [(1e6, 1e6), (1e6, 1e3)])
def test_precision_attack(value, sd, dtype):
    """Haney et al. 2022. Killed: noise added in floating point, a grid chosen by the value."""
    source = SystemNoise()
    claimed = value / sd
    if claimed == 1:
        assert refuted_mu(added_in_floating_point, value, sd, dtype) > 2
    assert refuted_mu(lambda exact, sd: source.add_gaussian(exact, sd, "a"), value, sd, dtype) <= claimed
    grid = 2.0 ** (np.frexp(sd)[1] - sampler.GRID_BITS)
    counts = []
    for one in (0.0, value, value / 3):
        steps = source.add_gaussian(np.full(200_000, one), sd, "a") / grid
        assert np.all(steps == np.rint(steps))
        counts.append(np.bincount(steps.astype(np.int64) & 255, minlength=256))
        assert stats.chisquare(counts[-1]).pvalue > ALARM
    assert stats.chi2_contingency(counts).pvalue > ALARM


def test_two_fits_with_one_seed():
    """Killed: noise that a seed gives. The difference of two releases would be that of the data."""

    class Seeded:
        def add_gaussian(self, value, sd, label):
            return value + sd * np.random.default_rng(0).standard_normal(value.shape)

    for source, tells in ((Seeded(), True), (SystemNoise(), False)):
        values, outputs = [], []
        for last in (4, 2):
            rows = {"one": [("one", DOMAIN.items[0], 5)], "two": [("two", DOMAIN.items[1], last)]}
            noise = RecordingNoise(source)
            ItemBias().fit(ratings_of(rows), Accountant(Budget(1.0, 1e-6), noise=noise), seed=0)
            values.append(np.concatenate([np.ravel(call.value) for call in noise.calls]))
            outputs.append(np.concatenate([np.ravel(call.output) for call in noise.calls]))
        data, released = values[1] - values[0], outputs[1] - outputs[0]
        assert np.any(data)
        assert np.abs(released - data).max() < 1e-9 if tells else np.abs(released - data).min() > 1e-6
