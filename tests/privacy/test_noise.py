"""A3 (the noise law) and D7 (who draws it): a million draws each, alarms at p < 1e-9."""

import math
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from hushrec.errors import InputError
from hushrec.privacy import SystemNoise
from hushrec.privacy.testing import SeededNoise
from tests.privacy.laws import ALARM, check_law

DRAWS = 1_000_000


@pytest.mark.parametrize("draws", [DRAWS, pytest.param(50 * DRAWS, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("law", "dtype"), [("norm", np.float32), ("norm", np.float64), ("laplace", np.float64)]
)
def test_gaussian_and_laplace_law(law, dtype, draws, record_property):
    """Killed: sd halved, sd squared, a scale sqrt(2) too small, one chunk's noise used for all chunks."""
    value = np.linspace(-5, 5, draws).reshape(-1, 20).astype(dtype)
    add = SystemNoise().add_gaussian if law == "norm" else SystemNoise().add_laplace
    noisy = add(value, 3.0, "a")
    assert (noisy.dtype, noisy.shape) == (dtype, value.shape)
    check_law((noisy.astype(float) - value).ravel() / 3, getattr(stats, law), record_property)


def test_gaussian_law_with_a_scale(record_property):
    """Killed: scale multiplied instead of divided, scale of the first chunk used for all."""
    value = np.zeros((1000, 1000))
    for sd in (np.geomspace(0.1, 10, 1000), np.geomspace(0.1, 10, 1000)[:, np.newaxis]):
        noisy = SystemNoise().add_gaussian(value, sd, "a")
        check_law((noisy / sd).ravel(), stats.norm, record_property)
        check_law((noisy / sd).T.ravel(), stats.norm, record_property)


@pytest.mark.parametrize("labels", [[-1.0, 1.0], [-1, 1], np.array([0, 1], np.uint8), [False, True]])
def test_flips(labels):
    """Killed: probability e^epsilon/(1+e^epsilon), a flip of 0/1 labels to -0/-1."""
    labels = np.tile(labels, DRAWS // 2)
    probability = 1 / (1 + math.exp(1.0))
    flipped = SystemNoise().flip(labels, probability, "a")
    assert flipped.dtype == labels.dtype
    assert set(np.unique(flipped)) == set(np.unique(labels))
    for side in (0, 1):
        changed = int(np.sum(flipped[side::2] != labels[side::2]))
        assert stats.binomtest(changed, DRAWS // 2, probability).pvalue > ALARM
    assert stats.binomtest(int(np.sum((flipped != labels)[1:] == (flipped != labels)[:-1])), DRAWS - 1,
                           probability**2 + (1 - probability) ** 2).pvalue > ALARM  # fmt: skip


class Words:
    """A stream of given words."""

    def __init__(self, *words):
        self.words = np.array(words, dtype=np.uint64)

    def __call__(self, size):
        assert size == len(self.words)
        return self.words


@pytest.mark.parametrize(
    ("probability", "last"),
    [(0.5, 2**63 - 1), (0.25, 2**62 - 1), (1.0, 2**64 - 1), (1e-30, 0), (math.ldexp(2**52 + 1, -120), 0),
     (math.ldexp(2**52 + 1, -112), 16)],
)  # fmt: skip
def test_flips_are_no_rarer_than_asked(probability, last, monkeypatch):
    """ceil(2^64 p) of the 2^64 words flip. Killed: a probability rounded down."""
    assert last + 1 == math.ceil(Fraction(probability) * 2**64)
    edge = min(last + 1, 2**64 - 1)
    monkeypatch.setattr(SystemNoise, "_stream", lambda self: Words(0, last, edge))
    flipped = SystemNoise().flip(np.array([True, True, True]), probability, "a")
    assert flipped.tolist() == [False, False, edge > last]


def draw(_=None):
    return SystemNoise().add_gaussian(np.zeros(4), 1.0, "a").tolist()


SHARED = SystemNoise()


def test_no_two_streams_are_equal(record_property):
    """Fork, spawn, threads, copies and repeated calls. Killed: one generator kept in the source."""
    import copy

    draws = [draw(), draw(), SHARED.add_gaussian(np.zeros(4), 1.0, "a").tolist()]
    draws.append(SystemNoise().add_gaussian(np.zeros(4), 1.0, "a").tolist())
    with pytest.raises(InputError, match="drawn twice"):
        copy.deepcopy(SHARED)
    for method, workers in (("fork", 2), ("spawn", 1)):
        if method == "fork" and not hasattr(os, "fork"):
            continue
        with ProcessPoolExecutor(workers, mp_context=get_context(method)) as pool:
            draws += pool.map(draw_from_shared, range(4))
    threads = [threading.Thread(target=lambda: draws.append(draw_from_shared(0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [number for four in draws for number in four]
    assert len(set(numbers)) == len(numbers)
    record_property("streams", len(draws))


def draw_from_shared(_):
    return SHARED.add_gaussian(np.zeros(4), 1.0, "a").tolist()


def test_numpy_seeds_do_not_reach_the_noise():
    np.random.seed(0)
    first = draw()
    np.random.seed(0)
    assert draw() != first
    assert (
        SeededNoise(1).add_gaussian(np.zeros(4), 1.0, "a").tolist()
        == SeededNoise(1).add_gaussian(np.zeros(4), 1.0, "a").tolist()
    )


def test_what_gets_no_noise_keeps_every_bit():
    """The result is a new array, also for NaN and for numbers so large that noise is below their last bit."""
    value = np.array([math.nan, math.inf, -math.inf, -0.0, 1 / 3, 1e300, -1e300])
    sd, source = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1e-280]), SystemNoise()
    for noisy in (
        source.add_gaussian(value, 0.0, "a"), source.add_laplace(value, 0.0, "a"),
        source.flip(value, 0.0, "a"), source.add_gaussian(value, sd, "a"), source.add_laplace(value, sd, "a"),
    ):  # fmt: skip
        assert noisy.tobytes() == value.tobytes() and not np.shares_memory(noisy, value)
    for wrong in (-1.0, math.nan, math.inf, [1.0, -1.0]):
        for add in (source.add_gaussian, source.add_laplace):
            with pytest.raises(InputError, match="at least 0") as caught:
                add(np.array([12345.5, 0.0]), wrong, "a")
            assert "12345" not in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (2, 3, 4), (1, 100_000), (70_001, 2)])
def test_any_shape(shape):
    """Killed: the last chunk left without noise."""
    source, value = SystemNoise(), np.zeros(shape)
    for noisy in (source.add_gaussian(value, 1.0, "a"), source.add_laplace(value, np.ones(shape), "a")):
        assert noisy.shape == shape
        assert np.count_nonzero(noisy) >= value.size - 5  # on a grid: 0 in 2^-25 of the draws
        assert np.unique(noisy).size > 0.99 * value.size or value.size == 0
    assert source.add_gaussian(np.zeros((4, 6))[::2, ::3], 1.0, "a").shape == (2, 2)


def test_types_and_hostile_values(recwarn):
    """Integers become float64, float32 is rounded once more; no warning reveals the rows."""
    for dtype in (np.float32, np.float64, np.int32, np.bool_):
        noisy = SystemNoise().add_gaussian(np.ones(1000, dtype), 2.0**-30, "a")
        assert noisy.dtype == (np.float32 if dtype is np.float32 else np.float64)
        assert np.all(np.abs(noisy - 1.0) < 2.0**-23)
        steps = noisy.astype(float) * 2.0**54
        assert dtype is np.float32 or np.all(steps == np.rint(steps))
    for dtype in (np.float32, np.float64):
        hostile = np.array([np.finfo(dtype).max, -np.inf, np.nan, 1e-30, np.finfo(dtype).min], dtype)
        before = hostile.tobytes()
        SystemNoise().add_gaussian(hostile, np.finfo(dtype).max / 8, "a")
        SystemNoise().add_laplace(hostile, 1.0, "a")
        SystemNoise().flip(hostile, 0.3, "a")
        assert hostile.tobytes() == before and not recwarn


def test_integers_of_a_large_sd():
    """A node's integers get noise down to every last bit, at any sd."""
    source = SystemNoise()
    for sd in (40.0, 2.0**32 / 3):
        draws = source.rounded_gaussian(np.full(100_000, sd), "a")
        assert draws.dtype == np.int64 and stats.chisquare(np.bincount(draws & 15)).pvalue > ALARM
        assert abs(np.mean(draws.astype(float) ** 2) / (sd**2 + 1 / 12) - 1) < 0.06
    assert not source.rounded_gaussian(np.zeros(5), "a").any()
    assert np.abs(source.rounded_gaussian(np.array([2.0**40]), "a")) < 2**44
    for wrong in (-1e-300, math.nan, math.inf, math.nextafter(2.0**40, math.inf)):
        with pytest.raises(InputError, match="sd must be"):
            source.rounded_gaussian(np.array([1.0, wrong]), "a")


# the stream cipher


def test_the_stream_is_aes256_in_counter_mode_under_a_fresh_key(monkeypatch):
    """Each block is AES of the block's number, also where requests end within a block.

    Killed: fewer key bits, a counter that does not start at 0, a key that is used twice.
    """
    keys, real = [], os.urandom
    monkeypatch.setattr("os.urandom", lambda size: keys.append(real(size)) or keys[-1])
    for _ in range(2):
        words = SystemNoise()._stream()
        drawn = np.concatenate([words(count) for count in (1, 4, 0, 7, 20_000)])
        numbers = b"".join(number.to_bytes(16, "big") for number in range(len(drawn) // 2))
        aes = Cipher(algorithms.AES(keys[-1]), modes.ECB()).encryptor()
        assert drawn.astype(np.uint64).tobytes() == aes.update(numbers)
    assert [len(key) for key in keys] == [32, 32] and keys[0] != keys[1]
    assert len(set(draw())) == 4
