"""A3 (the noise law) and D7 (who draws it): a million draws each, alarms at p < 1e-9."""

import math
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import numpy as np
import pytest
from scipy import stats

from hushrec.errors import InputError
from hushrec.privacy import SystemNoise
from hushrec.privacy.noise import stream_cipher
from hushrec.privacy.testing import SeededNoise
from tests.privacy.laws import ALARM, check_law

DRAWS = 1_000_000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_law(dtype, record_property):
    """Killed: sd halved, sd squared, one chunk's noise used for all chunks."""
    value = np.linspace(-5, 5, DRAWS).reshape(-1, 20).astype(dtype)
    noisy = SystemNoise().add_gaussian(value, 3.0, "a")
    assert (noisy.dtype, noisy.shape) == (dtype, value.shape)
    check_law((noisy.astype(float) - value).ravel() / 3, stats.norm, record_property)


def test_gaussian_law_with_a_scale(record_property):
    """Killed: scale multiplied instead of divided, scale of the first chunk used for all."""
    value = np.zeros((1000, 1000))
    for sd in (np.geomspace(0.1, 10, 1000), np.geomspace(0.1, 10, 1000)[:, np.newaxis]):
        noisy = SystemNoise().add_gaussian(value, sd, "a")
        check_law((noisy / sd).ravel(), stats.norm, record_property)
        check_law((noisy / sd).T.ravel(), stats.norm, record_property)


def test_laplace_law(record_property):
    """Killed: scale sqrt(2) too small."""
    noisy = SystemNoise().add_laplace(np.full(DRAWS, 7.0), 0.5, "a")
    check_law((noisy - 7) / 0.5, stats.laplace, record_property)


@pytest.mark.full
@pytest.mark.parametrize("law", [stats.norm, stats.laplace], ids=["gaussian", "laplace"])
def test_laws_in_many_draws(law, record_property):
    source = SystemNoise()
    add = source.add_gaussian if law is stats.norm else source.add_laplace
    check_law(add(np.zeros(50 * DRAWS), 1.0, "a"), law, record_property)


def test_the_test_has_teeth():
    """A noise law off by one per cent, or used twice, does not pass."""
    draws = SystemNoise().add_gaussian(np.zeros(DRAWS), 1.0, "a")
    for wrong in (
        draws * 1.01,
        draws * 0.99,
        np.tile(draws[: DRAWS // 2], 2) * np.r_[1, 0.5].repeat(DRAWS // 2),
    ):
        with pytest.raises(AssertionError):
            check_law(wrong, stats.norm)
    with pytest.raises(AssertionError):
        check_law(np.repeat(draws[: DRAWS // 2], 2), stats.norm)


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


def test_no_noise_leaves_every_bit():
    value = np.array([[1 / 3, -0.0], [math.nan, math.inf]])
    for dtype in (np.float64, np.float32):
        for noisy in (
            SystemNoise().add_gaussian(value.astype(dtype), 0.0, "a"),
            SystemNoise().add_laplace(value.astype(dtype), 0.0, "a"),
            SystemNoise().flip(value.astype(dtype), 0.0, "a"),
        ):
            assert noisy.tobytes() == value.astype(dtype).tobytes()
            assert not np.shares_memory(noisy, value)


@pytest.mark.parametrize(
    "shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 3, 4), (1, 100_000), (40_000,), (70_001, 2)]
)
def test_any_shape(shape):
    """Killed: the last chunk left without noise."""
    value = np.zeros(shape)
    for noisy in (
        SystemNoise().add_gaussian(value, 1.0, "a"),
        SystemNoise().add_laplace(value, np.ones(shape), "a"),
    ):
        assert noisy.shape == shape
        assert np.count_nonzero(noisy) >= value.size - 5  # on a grid: 0 in 2^-25 of the draws
        assert np.unique(noisy).size > 0.99 * value.size or value.size == 0
    assert SystemNoise().add_gaussian(np.zeros((4, 6))[::2, ::3], 1.0, "a").shape == (2, 2)
    assert SystemNoise().add_gaussian(np.asfortranarray(np.zeros((4, 6))), 1.0, "a").flags.c_contiguous


def test_hostile_values_raise_and_warn_nothing(recwarn):
    """What the rows hold must not be told by a warning; the value is not changed in place either."""
    for dtype in (np.float32, np.float64):
        hostile = np.array([np.finfo(dtype).max, -np.inf, np.nan, 1e-30, np.finfo(dtype).min], dtype)
        before = hostile.tobytes()
        SystemNoise().add_gaussian(hostile, np.finfo(dtype).max / 8, "a")
        SystemNoise().add_laplace(hostile, 1.0, "a")
        SystemNoise().flip(hostile, 0.3, "a")
        assert hostile.tobytes() == before
    assert not recwarn


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, [1.0, -1.0]])
def test_an_sd_that_is_no_number_in_range_is_refused(wrong):
    for add in (SystemNoise().add_gaussian, SystemNoise().add_laplace):
        with pytest.raises(InputError, match="at least 0"):
            add(np.zeros(2), wrong, "a")


def test_what_cannot_be_rounded_stays():
    """No number, no sd in an entry, or so large that noise is below its last bit: bit for bit."""
    value = np.array([math.nan, math.inf, -math.inf, -0.0, 1 / 3, 1e300, -1e300])
    sd = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1e-280])
    for add in (SystemNoise().add_gaussian, SystemNoise().add_laplace):
        assert add(value, sd, "a").tobytes() == value.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
def test_types(dtype):
    """float32 is rounded once more, from the grid; integers become float64."""
    value = np.ones(1000, dtype)
    noisy = SystemNoise().add_gaussian(value, 2.0**-30, "a")
    assert noisy.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert np.all(np.abs(noisy - 1.0) < 2.0**-23)
    if dtype is not np.float32:
        steps = noisy * 2.0**54
        assert np.all(steps == np.rint(steps))


def test_integers_of_a_large_sd():
    """What a node adds to its integers: every last bit is noise, at any sd."""
    for sd in (0.3, 40.0, 2.0**32 / 3):
        draws = SystemNoise().rounded_gaussian(np.full(100_000, sd), "a")
        assert draws.dtype == np.int64
        assert abs(np.mean(draws.astype(float) ** 2) / (sd**2 + 1 / 12) - 1) < 0.06 if sd > 1 else True
        if sd > 1:
            assert stats.chisquare(np.bincount(draws & 15)).pvalue > ALARM
    assert not SystemNoise().rounded_gaussian(np.zeros(5), "a").any()
    assert np.abs(SystemNoise().rounded_gaussian(np.array([2.0**40]), "a")) < 2**44
    for wrong in (-1.0, -1e-300, math.nan, math.inf, 2.0**41, math.nextafter(2.0**40, math.inf)):
        with pytest.raises(InputError, match="sd must be"):
            SystemNoise().rounded_gaussian(np.array([1.0, wrong]), "a")


class Words:
    """A stream of given words."""

    def __init__(self, *words):
        self.words = np.array(words, dtype=np.uint64)

    def random_raw(self, size):
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


@pytest.mark.parametrize("sd", [-1.0, math.inf, math.nan])
def test_no_value_is_shown_where_the_noise_is_wrong(sd):
    with pytest.raises(InputError, match="at least 0") as caught:
        SystemNoise().add_gaussian(np.array([12345.5]), sd, "a")
    assert "12345" not in str(caught.value)


def test_numpy_seeds_do_not_reach_the_noise():
    np.random.seed(0)
    first = draw()
    np.random.seed(0)
    assert draw() != first
    assert (
        SeededNoise(1).add_gaussian(np.zeros(4), 1.0, "a").tolist()
        == SeededNoise(1).add_gaussian(np.zeros(4), 1.0, "a").tolist()
    )


# the stream ciphers, against their standards


def aes128(key, block):
    """FIPS 197, one block, written for reading."""

    def double(byte):
        return ((byte << 1) ^ 0x11B) & 0xFF if byte & 0x80 else byte << 1

    def times(a, b):
        product = 0
        while b:
            product ^= a if b & 1 else 0
            a, b = double(a), b >> 1
        return product

    inverse = [next((b for b in range(256) if times(a, b) == 1), 0) for a in range(256)]
    rotations = [[(x << n | x >> (8 - n)) & 0xFF for x in inverse] for n in range(5)]
    sbox = [a ^ b ^ c ^ d ^ e ^ 0x63 for a, b, c, d, e in zip(*rotations)]
    words, constant = [list(key[i : i + 4]) for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = words[-1]
        if i % 4 == 0:
            word = [sbox[byte] for byte in word[1:] + word[:1]]
            word[0] ^= constant
            constant = double(constant)
        words.append([a ^ b for a, b in zip(words[-4], word)])
    keys = [sum(words[i : i + 4], []) for i in range(0, 44, 4)]
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number in range(1, 11):
        state = [sbox[state[4 * ((i // 4 + i % 4) % 4) + i % 4]] for i in range(16)]
        if number < 10:
            state = [
                times(state[i], 2)
                ^ times(state[c + (i + 1) % 4], 3)
                ^ state[c + (i + 2) % 4]
                ^ state[c + (i + 3) % 4]
                for c in (0, 4, 8, 12)
                for i in range(c, c + 4)
            ]
        state = [a ^ b for a, b in zip(state, keys[number])]
    return bytes(state)


def chacha20(key, counter):
    """RFC 8439's block function, with Bernstein's 64-bit counter and nonce 0."""
    start = np.frombuffer(b"expand 32-byte k" + key + counter.to_bytes(16, "little"), "<u4")
    x = start.tolist()

    def add_rotate(a, b, c, n):
        x[a] = (x[a] + x[b]) % 2**32
        x[c] ^= x[a]
        x[c] = (x[c] << n | x[c] >> (32 - n)) % 2**32

    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in columns + diagonals:
            add_rotate(a, b, d, 16)
            add_rotate(c, d, b, 12)
            add_rotate(a, b, d, 8)
            add_rotate(c, d, b, 7)
    return (start + np.array(x, "<u4")).astype("<u4").tobytes()


def test_the_oracles_meet_the_standards():
    vector = aes128(bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff"))
    assert vector.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"  # FIPS 197, C.1
    assert chacha20(bytes(32), 0).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")  # RFC 8439, A.1


def test_the_ciphers_are_aes128_and_chacha20(monkeypatch):
    """The keystream of the source's own cipher, from its own key: all 10 and 20 rounds, all key bits."""
    from randomgen import AESCounter, ChaCha

    keys = []
    real = os.urandom
    monkeypatch.setattr("os.urandom", lambda size: keys.append(real(size)) or keys[-1])
    cipher = stream_cipher()
    if type(cipher) is AESCounter:
        expected = b"".join(aes128(keys[0], counter.to_bytes(16, "little")) for counter in range(6))
        assert len(keys[0]) == 16
        assert cipher.random_raw(12).astype("<u8").tobytes() == expected
    key = real(32)
    stream = ChaCha(key=int.from_bytes(key, "little"), rounds=20).random_raw(16).astype("<u8").tobytes()
    assert stream == chacha20(key, 0) + chacha20(key, 1)


def test_without_aes_instructions_it_is_chacha20(monkeypatch):
    import randomgen

    class SoftwareAES:
        use_aesni = False

        def __init__(self, key):
            pass

    keys, real = [], os.urandom
    monkeypatch.setattr("os.urandom", lambda size: keys.append(real(size)) or keys[-1])
    monkeypatch.setattr(randomgen, "AESCounter", SoftwareAES)
    cipher = stream_cipher()
    assert type(cipher) is randomgen.ChaCha
    assert cipher.state["state"]["rounds"] == 20
    assert len(keys[-1]) == 32
    assert cipher.random_raw(8).astype("<u8").tobytes() == chacha20(keys[-1], 0)  # its own key, all of it
    assert len(set(draw())) == 4
