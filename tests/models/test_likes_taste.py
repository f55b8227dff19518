"""Rounds of sums put together, against what the sums are of: a matrix of users' rows times the probes."""

import math

import numpy as np
import pytest

from hushrec.models.likes_taste import Known, Sums, apart, beyond_chance, relative_weights

N_USERS, ITEMS, RANK = 500.0, 30, 3
RNG = np.random.default_rng(7)
ROWS = RNG.normal(size=(80, ITEMS))
MATRIX = ROWS.T @ ROWS
PROBES = RNG.normal(size=(3, ITEMS, RANK)) * np.array([1.0, 2.0, 0.5])[:, None, None]


def exact(probe: np.ndarray, noise_sd: float) -> Sums:
    """Return a round's release without noise: the matrix times its probe, over the mean length."""
    length = np.sqrt(np.trace(probe.T @ MATRIX @ probe) / N_USERS)
    return Sums(probe, MATRIX @ probe / length, noise_sd)


def test_all_rounds_say_what_each_says() -> None:
    """The probe is in the span of the last one; where rounds agree, the sums are the matrix times it."""
    found = Sums.of_all([exact(probe, sd) for probe, sd in zip(PROBES, (0.1, 0.2, 0.05))], N_USERS)
    span = np.linalg.qr(PROBES[2])[0]
    assert found.probe == pytest.approx(span @ (span.T @ found.probe), abs=1e-9)
    same = Sums.of_all([exact(PROBES[2] * size, 0.1) for size in (1.0, 3.0, 0.2)], N_USERS)
    assert MATRIX @ same.probe == pytest.approx(same.sums * same.lengths / N_USERS, rel=1e-9)


def chance(size: float, ratio: float) -> float:
    """Donoho, Gavish and Johnstone: the spike whose eigenvalue is seen there, found by bisection."""
    if size <= (1 + math.sqrt(ratio)) ** 2:
        return 0.0
    low, high = 1 + math.sqrt(ratio), size
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * (1 + ratio / (middle - 1)) < size else (low, middle)
    cosine = (1 - ratio / (low - 1) ** 2) / (1 + ratio / (low - 1))
    return cosine * (1 - 1 / low)


def test_what_of_a_direction_is_beyond_chance() -> None:
    """Up to the edge of what rows without taste show nothing, and nothing divides by nothing there."""
    sizes = np.array([0.0, 0.5, 1.0, 1.69, 1.75, 2.3, 4.0, 9.5, 300.0])
    for ratio in (0.09, 0.1, 0.7, 1.0, 6.0):
        with np.errstate(all="raise"):
            found = beyond_chance(sizes, np.full(len(sizes), ratio))
        assert found == pytest.approx([chance(size, ratio) for size in sizes], abs=1e-9)


def known(n_users: float = 200.0, noise_sd: float = 0.5) -> Known:
    """Twelve items, of which two are not learned."""
    noisy = np.r_[np.linspace(60, 9, 10), 0.2, -1.0]
    learned, popularity = np.arange(12) < 10, relative_weights(noisy, noise_sd)
    scale = np.where(learned, popularity**-0.3, 0.0)
    return Known(n_users, noisy, noise_sd, learned, popularity, scale, popularity * scale / 2)


@pytest.mark.parametrize(
    ("likes", "told"), [(1.0, 0.0), (2.0, 0.0), (3.0, 0.25), (5.2, 0.8), (6.0, 1.0), (9.0, 1.0)]
)
def test_what_so_few_likes_tell(likes: float, told: float) -> None:
    """From two likes a user to six, by the square of the learned items' weights a user."""
    weights = known().noisy[:10].sum()
    assert known(n_users=weights / math.sqrt(likes)).told == told


def flat(given: Known, direction: np.ndarray, certain: float) -> float:
    """How sure a direction is that of 1 - exp(-3 p) less its part along popularity: odds to the fourth."""
    scale, first = given.scale[:10], given.first[:10]
    row = (1 - np.exp(-3 * given.popularity[:10])) * scale
    row = row - first * (first @ row) / (first @ first)
    cosine = min((row @ direction) ** 2 / ((row @ row) * (certain + 0.03)), 1.0)
    return cosine**4 / (cosine**4 + (1 - cosine) ** 4)


@pytest.mark.parametrize("kind", ["taste", "noise", "nothing", "turned round", "long histories"])
@pytest.mark.parametrize("n_users", [90.0, 200.0])
def test_what_is_said_of_taste(kind: str, n_users: float) -> None:
    """A slow twin, direction by direction; also where what was released is nothing, or all noise."""
    given, rng = known(n_users), np.random.default_rng(3)
    probe = apart(rng.normal(size=(10, 3)), given.first[:10])
    strong = rng.normal(size=(10, 2))
    if kind == "long histories":
        strong[:, 0] = 3 * (1 - np.exp(-3 * given.popularity[:10])) * given.scale[:10]
    strong = apart(strong, given.first[:10])
    sums = strong @ strong.T @ probe * 6 + rng.normal(size=(10, 3))
    sums = {"nothing": 0 * sums, "turned round": -sums}.get(kind, sums)
    noise_sd = {"noise": 90.0, "nothing": 0.0}.get(kind, 0.5)
    with np.errstate(all="raise"):
        found = given.taste(Sums(probe, sums, noise_sd))
    left, values, right = np.linalg.svd(sums, full_matrices=False)
    spread = given.popularity[:10] * given.scale[:10] ** 2
    lengths = max((probe * sums).sum(), 1e-9)
    rows = []
    for k in range(3):
        value = max(values[k], 1e-3 * values[0], 1e-100)
        reach = probe @ right[k]
        own = sum(left[:, k] * spread / spread.sum() * reach) * n_users**2 / lengths
        own = max(own, 1e-9 * value)
        ratio = min(max(left[:, k] @ reach * n_users / lengths / own, 0.1), 10.0)
        clear = max(0.0, 1 - ((math.sqrt(10) + math.sqrt(3)) * noise_sd / value) ** 2)
        above = max(0.0, 1 - 10 * (noise_sd / value) ** 2)
        rows.append((value, own, ratio, clear, above, chance(value * clear / own, ratio)))
    first_certain = [row[3] * row[5] for row in rows]
    flatness = [flat(given, left[:, k], first_certain[k]) for k in range(3)]
    other = sum(c * (1 - f) for c, f in zip(first_certain, flatness))
    flatness = [each / (1 + other**2) for each in flatness]
    certain = [c * (1 - f) for c, f in zip(first_certain, flatness)]
    sure = sum(c * row[5] for c, row in zip(certain, rows)) ** 2
    trust, rich = sure / (1 + sure), sure / (25 + sure)
    gains = []
    for c, f, (value, own, ratio, _, above, taste) in zip(certain, flatness, rows):
        lenient = above * chance(value / own, (1 - rich) * ratio)
        gains.append(given.told * (trust * lenient * (1 - f) + (1 - trust) * c * taste))
    order = sorted(range(3), key=lambda k: -certain[k])
    assert found.certain == pytest.approx([certain[k] for k in order], abs=1e-9)
    assert found.gains == pytest.approx([gains[k] for k in order], abs=1e-9)
    assert found.values == pytest.approx([rows[k][0] for k in order])
    assert found.flat == pytest.approx(sum(c * f for c, f in zip(first_certain, flatness)), abs=1e-9)
    if kind != "nothing":
        assert np.abs((found.vectors * left[:, order]).sum(axis=0)) == pytest.approx(np.ones(3))
        assert (found.vectors[np.abs(found.vectors).argmax(axis=0), range(3)] > 0).all()
    assert (sum(certain) > 0) == (kind != "noise")
    assert (found.flat > 0.1) == (kind == "long histories")


@pytest.mark.parametrize(
    ("seed", "noise_sd", "shows"),
    [(3, 0.5, True), (3, 0.8, True), (4, 4.0, True), (3, 1.6, False), (4, 0.5, False)],
)
def test_how_much_less_noise_lets_one_more_stand_out(seed: int, noise_sd: float, shows: bool) -> None:
    """Told with a margin of a quarter, up to three tenths too much; what hides is not told."""
    given, rng = known(200.0), np.random.default_rng(seed)
    probe = apart(rng.normal(size=(10, 3)), given.first[:10])
    strong = apart(rng.normal(size=(10, 2)) * (6, 3), given.first[:10])
    sums = strong @ strong.T @ probe + rng.normal(size=(10, 3))

    def standing(less: float) -> int:
        return int((given.taste(Sums(probe, sums, noise_sd / less)).certain > 0.5).sum())

    found = given.taste(Sums(probe, sums, noise_sd)).sharper
    assert (found > 0) == shows
    if shows:
        least = next(less for less in np.geomspace(1, 10, 200) if standing(less) > standing(1))
        assert 1.24 * least < found < 1.25 * 1.3 * least
