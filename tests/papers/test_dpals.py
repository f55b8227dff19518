"""DPALS against a slow twin that is given the noise of the run, and its options at work."""

import math

import numpy as np
import pytest

from hushrec.data import realistic
from hushrec.kernels import sweeps
from hushrec.papers.dpals import DPALS
from hushrec.privacy import Accountant, Budget
from tests.models.twins import full, run, small, start


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


@pytest.mark.parametrize("sampling", ["tail", "uniform", "weights"])
def test_rows_that_are_chosen_hold_frequent_items_alone(sampling: str) -> None:
    """A user keeps at most k ratings, the k rarest ones from the tail, or all where cells are weighted."""
    ratings, rng = realistic(80, 20, 700, seed=5), np.random.default_rng(3)
    frequent, weights = rng.random(20) < 0.6, rng.permutation(20) + 1.0
    users = DPALS.of(sampling=sampling, item_fraction=0.6, max_ratings_per_user=3).users(ratings)
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
    """Oracle: a user's normal equations; their own mean is added again where it was taken off."""
    ratings = small()
    model = DPALS.of(rank=2, iterations=1, center=center, regularization=0.7)
    trained = model.fit(ratings, Accountant(Budget(math.inf, 1e-5)))
    assert trained.arrays["center"] == (3.0 if center == "middle" else 0.0)
    assert trained.arrays["supported"].all()  # nothing was released that says otherwise
    assert trained.item_bias.dtype == np.float64 and not trained.item_bias.any()
    items = trained.item_factors.astype(np.float64)
    found = trained.predict(ratings, ratings.domain.items)
    for row, scores in zip(ratings.matrix.toarray().astype(np.float64), found):
        seen = np.flatnonzero(row)
        level = 3.0 if center == "middle" else row[seen].mean()
        design = items[seen]
        user = np.linalg.solve(design.T @ design + 0.7 * np.eye(2), design.T @ (row[seen] - level))
        assert scores == pytest.approx(np.clip(level + items @ user, 1, 5), abs=1e-6)


def test_factors_are_orthonormal_where_that_is_asked_for() -> None:
    for wanted in (True, False):
        model = DPALS.of(rank=3, iterations=2, orthonormalize=wanted)
        factors = model.fit(small(), Accountant(Budget(math.inf, 1e-5))).item_factors.astype(np.float64)
        assert np.allclose(factors.T @ factors, np.eye(3), atol=1e-5) == wanted


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("cells", [1, 9])
def test_one_user_replaced_moves_the_statistics_by_no_more(share: float, cells: int) -> None:
    """Oracle: unit vectors at every angle, with products and sums of either sign compared, cell by cell;
    of a joint clip any two contributions, where Gramians cannot point away from each other."""
    cosine, odds = np.linspace(0, 1, 100_001), share / (1 - share)
    settings = {"gramian_share": share, "max_ratings_per_user": cells}
    bound = DPALS.of(**settings).statistics_bound
    assert bound.under("add-remove") == pytest.approx(math.sqrt(cells * (odds + 1)))
    moved = cells * (odds * (2 - 2 * cosine**2) + 2 + 2 * cosine).max()
    assert bound.under("replace") == pytest.approx(math.sqrt(moved))
    bound = DPALS.of(clipping="user", **settings).statistics_bound
    assert bound.under("add-remove") == pytest.approx(math.sqrt(odds + 1))
    assert bound.under("replace") == pytest.approx(math.sqrt(2 * odds + 4))
    bound = DPALS.of(sampling="weights", **settings).statistics_bound  # cells of norm 1 together
    assert bound.under("add-remove") == pytest.approx(math.sqrt(odds + 1))
    assert bound.under("replace") == pytest.approx(math.sqrt(moved / cells))
