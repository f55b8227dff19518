"""The integers and the streams in which two servers add up."""

from dataclasses import replace

import numpy as np
import pytest

from hushrec.errors import HushrecError, InputError
from hushrec.privacy import Bounded, Gaussian, Release, counted, positive
from hushrec.privacy.noise import stream_cipher
from hushrec.privacy.testing import SeededNoise

grid = pytest.importorskip("hushrec.engines.two_servers.grid", exc_type=ImportError)
shares = pytest.importorskip("hushrec.engines.two_servers.shares", exc_type=ImportError)
SUMS = Release("sums", Gaussian(3.0), 2.0, "user", "add-remove")


def test_integers_and_noise_are_on_one_grid():
    """Oracle: by hand. A step is at most 2^-20 of the noise and divides the step of the sums."""
    values, weight = np.array([[3.0, 0.5], [-2.25, 0.125]]), np.array([1.0, 0.01])
    step = np.array([0.25, 2.0**-20])
    bounded = Bounded(values, counted(8.0), scale=0.25, weight=weight, step=step)
    found = grid.Grid.of(SUMS, bounded, values.shape)
    steps, sds = found.steps.reshape(2, 2), found.noise_sd.reshape(2, 2)
    assert (np.frexp(steps)[0] == 0.5).all() and (step % steps == 0).all()
    assert (steps[:, 0] < 0.25).all() and (steps[:, 1] == 2.0**-20).all()
    assert (found.coarse.reshape(2, 2) * steps == step).all()
    assert sds * steps == pytest.approx(np.broadcast_to(3.0 * 2.0 / (0.25 * weight), (2, 2)), rel=1e-12)
    assert (sds >= 2**20).all()
    integers = (values / steps).astype(np.int64)
    total = integers.ravel() + SeededNoise(1).rounded_gaussian(found.noise_sd, "sums")
    assert found.value("sums", total.view(np.uint64)).tolist() == (total * found.steps).tolist()
    assert (integers * steps == values).all()


@pytest.mark.parametrize("told", [[1 << 54, 0], [0, (1 << 64) - (1 << 54)], [1 << 63, 0], [0], [0, 0, 0]])
def test_a_total_that_nothing_can_make_is_refused(told):
    """Before any computation with a server's values. Killed: totals that are believed."""
    sums = Bounded(np.zeros(2), positive(1.0), step=2.0**-28)
    found = grid.Grid.of(replace(SUMS, sensitivity=1.0), sums, (2,))
    assert found.value("sums", np.full(2, 1 << 50, np.uint64))[0] == 2.0**22
    with pytest.raises(HushrecError, match="No sum and noise can make this total"):
        found.value("sums", np.array(told, np.uint64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": 0.0}, "not an exact sum"),
        ({"step": [0.5, 0.0]}, "not an exact sum"),
        ({"step": 2.0**-28, "weight": [1.0, 1e300]}, "makes the noise of release 'sums' vanish"),
    ],
)
def test_what_has_no_grid_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        grid.Grid.of(SUMS, Bounded(np.zeros(2), positive(1.0), **changes), (2,))


def test_a_seed_hides_every_word_by_its_stream():
    """In pieces, too."""
    seed = bytes(range(32))
    for size in (3, 4, 10_001, (1 << 15) + 1, (1 << 16) + 3):
        words = np.arange(size, dtype=np.uint64)
        shares.add_stream(words, seed)
        np.testing.assert_array_equal(words, np.arange(size, dtype=np.uint64) + stream_cipher(seed)(size))
        shares.add_stream(words, seed, negative=True)
        np.testing.assert_array_equal(words, np.arange(size))
