"""The attack recovers the masked ratings, or reports that it did not."""

import importlib.util
import json
import time

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.papers.masked import reconstruction as audit
from hushrec.papers.masked.masking import draw_coefficients, masked, public_key
from hushrec.papers.masked.messages import Record
from tests.command_line import invoke

needs_lattice = pytest.mark.skipif(importlib.util.find_spec("flint") is None, reason="python-flint")


def upload(n_ratings, mask_rank, seed, *, noise_sd=240.0, low=1.0, step=1.0, levels=5):
    """A masked upload: true ratings, the sent values, and the public rows."""
    generator = np.random.default_rng(seed)
    items = np.sort(generator.choice(1682, n_ratings, replace=False))
    ratings = low + step * generator.integers(0, levels, n_ratings)
    key = public_key(1682, mask_rank, seed)
    sent = masked(ratings, items, [key], [draw_coefficients(mask_rank, noise_sd)])
    return ratings, sent, key[items]


@needs_lattice
@pytest.mark.parametrize("n_ratings", [15, 41, 500])
def test_every_rating_at_mask_rank_5_within_two_seconds(n_ratings):
    for seed in range(2):
        ratings, sent, rows = upload(n_ratings, 5, seed)
        start = time.thread_time()  # other processes do not count
        found = audit.reconstruct(sent, rows, rating_range=(1, 5))
        assert time.thread_time() - start < 2
        np.testing.assert_array_equal(found.ratings, ratings)
        assert found.recovered == n_ratings and found.exact_combinations == n_ratings - 5


@needs_lattice
@pytest.mark.parametrize(
    ("n_ratings", "mask_rank", "settings"),
    [
        (11, 10, {}),
        (60, 10, {"noise_sd": 1e5}),
        (40, 20, {}),
        (30, 10, {"low": 0.5, "step": 0.5, "levels": 10}),
    ],
)
def test_larger_masks_noise_and_half_stars(n_ratings, mask_rank, settings):
    ratings, sent, rows = upload(n_ratings, mask_rank, 1, **settings)
    step, low = settings.get("step", 1.0), settings.get("low", 1.0)
    found = audit.reconstruct(sent, rows, rating_range=(low, 5), step=step)
    np.testing.assert_array_equal(found.ratings, ratings)


@needs_lattice
def test_both_rounds_together_are_opened_too():
    ratings, _, rows = upload(60, 5, 2)
    second = np.linalg.qr(np.random.default_rng(1).standard_normal((60, 8)))[0]
    both = np.hstack([rows, second])
    sent = ratings + both @ np.random.default_rng(2).normal(0, 200, 13)
    np.testing.assert_array_equal(audit.reconstruct(sent, both, rating_range=(1, 5)).ratings, ratings)


@needs_lattice
def test_ratings_off_the_grid_are_not_claimed():
    ratings, sent, rows = upload(40, 5, 3)
    sent = sent + np.random.default_rng(0).uniform(-0.3, 0.3, 40)
    found = audit.reconstruct(sent, rows, rating_range=(1, 5))
    assert found.ratings is None and found.recovered == 0 and found.reason


def test_projection_needs_no_library(monkeypatch):
    monkeypatch.setattr(audit, "find_spec", lambda name: None)
    ratings, sent, rows = upload(40, 5, 3)
    found = audit.reconstruct(sent, rows, rating_range=(1, 5))
    assert found.ratings is None and "python-flint" in found.reason and found.exact_combinations == 35
    equations, targets = audit._equations(sent, rows)
    np.testing.assert_allclose(equations @ ratings, targets, atol=1e-10)


def test_few_ratings_are_covered():
    _, sent, rows = upload(10, 10, 0)
    found = audit.reconstruct(sent, rows, rating_range=(1, 5))
    assert found.exact_combinations == 0 and found.ratings is None


def test_bad_input():
    with pytest.raises(InputError):
        audit.reconstruct(np.zeros(3), np.zeros((4, 2)), rating_range=(1, 5))
    _, sent, rows = upload(20, 5, 0)
    ranges = (1, np.inf), (-np.inf, 5), (-1e308, 1e308), (1, 1e300), (5, 1), (np.nan, 5)
    steps = np.inf, 1e-310, 0.0, -1.0, np.nan
    for low, high, step in [(*ends, 1.0) for ends in ranges] + [(1, 5, step) for step in steps]:
        with pytest.raises(InputError, match="finite"):
            audit.reconstruct(sent, rows, rating_range=(low, high), step=step)
    for spoilt in ((sent * 1e300, rows), (-sent * 1e305, rows), (sent, rows * 1e308)):
        with pytest.raises(InputError, match="too large"):
            audit.reconstruct(*spoilt, rating_range=(1, 5), step=0.5)


@needs_lattice
def test_command(tmp_path):
    ratings, sent, rows = upload(30, 5, 0)
    path = tmp_path / "upload.json"
    path.write_bytes(Record(sent, rows).to_json())
    line = ["papers", "audit-masked", str(path), "--rating-range", "1", "5"]
    assert "Recovered 30 of 30 ratings exactly." in invoke(*line).output
    printed = json.loads(invoke(*line, "--json").output)
    assert printed["ratings"] == ratings.tolist()
    path.write_text("{}")
    assert invoke(*line).exit_code != 0
