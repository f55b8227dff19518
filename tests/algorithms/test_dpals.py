"""DPALS against a slow twin that is given the noise of the run, and its options at work."""

import math

import numpy as np
import pytest

from hushrec.data import realistic
from hushrec.errors import InputError
from hushrec.kernels import sweeps
from hushrec.papers.dpals import DPALS
from hushrec.papers.dpals.dpals import SampledUsers
from hushrec.privacy import Accountant, Budget
from hushrec.privacy.testing import RecordingNoise, SeededNoise
from tests.algorithms.twins import full, run, small, start


@pytest.mark.usefixtures("plain_sums")
def test_it_matches_a_slow_twin() -> None:
    ratings = small()
    rank, steps, ridge, norm, bound, half = 2, 3, 0.8, 0.3, 0.4, 2.0
    model, noise, _ = run(
        DPALS(
            rank=rank,
            iterations=steps,
            max_ratings_per_user=12,
            user_norm=norm,
            clip=bound,
            regularization=ridge,
        ),
        ratings,
    )
    dense = ratings.matrix.toarray().astype(np.float64)
    items = start(12, rank)
    for step in range(1, steps + 1):
        added = noise[f"item statistics {step}"]
        grams = [full(row, rank) for row in added[:, :3]]
        sums = [row.copy() for row in added[:, 3:]]
        for row in dense:
            seen = np.flatnonzero(row)
            target = row[seen] - 3.0
            design = items[seen]
            user = np.linalg.solve(design.T @ design + ridge * np.eye(rank), design.T @ target)
            user *= min(1.0, norm * half / np.linalg.norm(user))
            for item, value in zip(seen, np.clip(target, -bound * half, bound * half)):
                grams[item] = grams[item] + np.outer(user, user)
                sums[item] = sums[item] + value * user
        for item in range(12):
            values, vectors = np.linalg.eigh(grams[item])
            projected = (vectors * np.maximum(values, 0)) @ vectors.T
            items[item] = np.linalg.solve(projected + ridge * np.eye(rank), sums[item])
    np.testing.assert_allclose(model.item_factors, items, rtol=2e-4, atol=2e-5)


def test_the_statistics_of_all_items_are_solved_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed: the first block of items alone, which in small catalogues are all."""
    model = DPALS(rank=2, iterations=2, user_norm=0.3, clip=0.4)
    whole = model.fit(small(), Accountant(Budget(math.inf, 1e-5)))
    for room in (1, 100):
        monkeypatch.setattr(sweeps, "_BLOCK_BYTES", room)
        assert model.fit(small(), Accountant(Budget(math.inf, 1e-5))).to_bytes() == whole.to_bytes()


def test_rare_items_fall_back_to_the_level() -> None:
    ratings = realistic(1000, 300, 40_000, seed=3)
    model = DPALS(rank=3, iterations=2, item_fraction=0.3).fit(ratings, Accountant(Budget(8.0, 1e-6)))
    trained = np.any(model.item_factors != 0, axis=1)
    assert trained.sum() == 90
    counts = np.bincount(ratings.matrix.indices, minlength=300)
    assert counts[trained].mean() > 3 * counts[~trained].mean()


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 0},
        {"rank": 2.5},
        {"iterations": 0},
        {"regularization": float("nan")},
        {"clip": -1.0},
        {"clipping": None},
        {"sampling": "popular"},
        {"center": "mean"},
        {"weight_exponent": 0.5},
        {"item_fraction": 0.0},
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings: dict) -> None:
    with pytest.raises(InputError) as error:
        DPALS(**settings)
    assert next(iter(settings)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["clip", "user_norm"])
def test_no_clip_is_refused_in_a_private_run(name: str) -> None:
    accountant = Accountant(Budget(1.0, 1e-6))
    with pytest.raises(InputError, match=name):
        DPALS(**{name: None}).fit(small(), accountant)
    assert accountant.releases == ()


@pytest.mark.parametrize("exponent", [-0.25, -0.9, 0.0])
def test_weights_of_cells_are_powers_of_two_near_that_of_the_released_ones(exponent, monkeypatch) -> None:
    """And of no rows at all where the exponent is 0: nothing is released to weigh by."""
    asked, noise, half_width = [], RecordingNoise(SeededNoise(2)), 2.0
    weigh = SampledUsers.weigh
    monkeypatch.setattr(
        SampledUsers, "weigh", lambda self, *given: asked.append(given) or weigh(self, *given)
    )
    accountant = Accountant(Budget(20.0, 1e-5), noise=noise)
    model = DPALS(rank=1, iterations=1, sampling="weights", weight_exponent=exponent, user_norm=0.3)
    model.fit(realistic(300, 40, 3000, seed=1), accountant)
    [(center, relative)] = asked
    assert center == 1 + half_width
    released = [call.output for call in noise.calls if call.label == "item weights"]
    assert len(released) == (exponent != 0)
    for each in released:
        usable = np.maximum(each, max(accountant.releases[0].noise_sd, 1e-2))
        wanted = exponent * (np.log2(usable) - np.log2(usable.max()))
        assert np.abs(np.log2(relative) - wanted).max() <= 0.5 + 1e-9
        assert set(np.frexp(relative)[0]) == {0.5} and len(set(relative)) > 1
    if not released:
        assert relative.tolist() == [1.0] * 40


@pytest.mark.parametrize("sampling", ["tail", "uniform", "weights"])
def test_rows_that_are_chosen_hold_frequent_items_alone(sampling: str) -> None:
    """At most k of a user's, but where cells are weighted; from the tail the k rarest ones."""
    ratings, rng = realistic(80, 20, 700, seed=5), np.random.default_rng(3)
    frequent, weights = rng.random(20) < 0.6, rng.permutation(20) + 1.0
    users = DPALS(sampling=sampling, item_fraction=0.6, max_ratings_per_user=3).users(ratings)
    users.sample(1)
    users.choose(frequent, weights, 1)
    kept, dense = users._rows.matrix.toarray() != 0, ratings.matrix.toarray() != 0
    assert kept.shape == dense.shape and not kept[:, ~frequent].any() and not (kept & ~dense).any()
    most = 20 if sampling == "weights" else 3
    assert (kept.sum(axis=1) == np.minimum((dense & frequent).sum(axis=1), most)).all()
    if sampling == "tail":
        for mine, hers in zip(kept, dense & frequent):
            rarest = sorted(np.flatnonzero(hers), key=lambda item: weights[item])[:3]
            assert np.flatnonzero(mine).tolist() == sorted(rarest)


@pytest.mark.parametrize("center", ["middle", "user"])
def test_a_user_is_served_from_the_level_that_ratings_were_taken_from(center: str) -> None:
    """Oracle: her normal equations; her own mean is added again where it was taken off."""
    ratings = small()
    model = DPALS(rank=2, iterations=1, center=center, regularization=0.7)
    board = model.fit(ratings, Accountant(Budget(math.inf, 1e-5)))
    assert board.arrays["center"] == (3.0 if center == "middle" else 0.0)
    assert board.arrays["supported"].all()  # nothing was released that says otherwise
    assert board.item_bias.dtype == np.float64 and not board.item_bias.any()
    items = board.item_factors.astype(np.float64)
    found = board.predict(ratings, ratings.domain.items)
    for row, scores in zip(ratings.matrix.toarray().astype(np.float64), found):
        seen = np.flatnonzero(row)
        level = 3.0 if center == "middle" else row[seen].mean()
        design = items[seen]
        user = np.linalg.solve(design.T @ design + 0.7 * np.eye(2), design.T @ (row[seen] - level))
        assert scores == pytest.approx(np.clip(level + items @ user, 1, 5), abs=1e-6)


def test_factors_are_orthonormal_where_that_is_asked_for() -> None:
    for wanted in (True, False):
        model = DPALS(rank=3, iterations=2, orthonormalize=wanted)
        factors = model.fit(small(), Accountant(Budget(math.inf, 1e-5))).item_factors.astype(np.float64)
        assert np.allclose(factors.T @ factors, np.eye(3), atol=1e-5) == wanted


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("cells", [1, 9])
def test_one_user_replaced_moves_the_statistics_by_no_more(share: float, cells: int) -> None:
    """Oracle: unit vectors at every angle, whose products and sums of either sign are compared, cell by cell;
    of a joint clip any two contributions, where Gramians cannot point away from each other."""
    cosine, odds = np.linspace(0, 1, 100_001), share / (1 - share)
    settings = {"gramian_share": share, "max_ratings_per_user": cells}
    bound = DPALS(**settings).statistics_bound
    assert bound.under("add-remove") == pytest.approx(math.sqrt(cells * (odds + 1)))
    moved = cells * (odds * (2 - 2 * cosine**2) + 2 + 2 * cosine).max()
    assert bound.under("replace") == pytest.approx(math.sqrt(moved))
    bound = DPALS(clipping="user", **settings).statistics_bound
    assert bound.under("add-remove") == pytest.approx(math.sqrt(odds + 1))
    assert bound.under("replace") == pytest.approx(math.sqrt(2 * odds + 4))
    bound = DPALS(sampling="weights", **settings).statistics_bound  # cells of norm 1 together
    assert bound.under("add-remove") == pytest.approx(math.sqrt(odds + 1))
    assert bound.under("replace") == pytest.approx(math.sqrt(moved / cells))


def test_what_enters_the_statistics_and_where_likes_begin() -> None:
    with_likes = DPALS(unobserved_weight=0.1, center="level")
    budget, domain = Budget(1.0, 1e-6), small().domain
    labels = [each.label for each in with_likes.plan(budget, domain).releases]
    assert "level" not in labels and with_likes.scores == "likes" and DPALS().scores == "ratings"
    for settings, weighed in (
        ({"sampling": "weights"}, True),
        ({"sampling": "weights", "weight_exponent": 0.0}, False),
        ({"sampling": "tail"}, True),
        ({"item_fraction": 0.9}, True),
        ({}, False),
        ({"weight_exponent": -1.0}, False),
    ):
        labels = [each.label for each in DPALS(**settings).plan(budget, domain).releases]
        assert ("item weights" in labels) == weighed


@pytest.mark.parametrize("sampling", ["uniform", "weights"])
def test_what_enters_the_statistics_is_taken_from_a_users_own_mean(sampling: str) -> None:
    """Of all her ratings, whichever of them are sampled; the middle is taken off elsewhere."""
    ratings = small()
    for center in ("user", "middle"):
        users = DPALS(center=center, sampling=sampling, max_ratings_per_user=3).users(ratings)
        users.sample(2)
        found = users._rows.matrix
        assert np.diff(found.indptr).tolist() == [7 if sampling == "weights" else 3] * ratings.n_users
        for row, begin, stop in zip(ratings.matrix.toarray(), found.indptr, found.indptr[1:]):
            mean = row[row > 0].mean() if center == "user" else 0.0
            wanted = row[found.indices[begin:stop]] - mean
            assert found.data[begin:stop] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("clipping", "terms"), [("rating", 2.0**-28), ("user", 2.0**-27)])
def test_statistics_are_whole_steps_of_what_a_user_may_add(clipping: str, terms: float, monkeypatch) -> None:
    """Of the powers of two above her factors' norm, 0.6, and above 1.5 * 0.6, or 1.5 where she is clipped."""
    found, real = [], SampledUsers.item_statistics

    def seen(self, clip: float, user_norm: float):
        found.append(real(self, 1.5, 0.6).step)
        return real(self, clip, user_norm)

    monkeypatch.setattr(SampledUsers, "item_statistics", seen)
    settings = {"max_ratings_per_user": 10, "user_norm": 0.5, "clip": 1.0, "regularization": 5.0}
    model = DPALS(rank=2, iterations=1, clipping=clipping, **settings)
    model.fit(small(), Accountant(Budget(1.0, 1e-6)))
    assert found[0].tolist() == [2.0**-28] * 3 + [terms] * 2
