"""Privacy noise: the one place that draws it, from the operating system's generator, without a seed.

Every call takes a fresh key from ``os.urandom`` for AES-256 in counter mode, which OpenSSL computes. So a
fork, a thread or a copy shares no state.

Noise is exact: the result is the real number value + sd * N, N standard normal, rounded to a grid that
depends on sd only (docs/proofs/noise.md). Rounding after the noise costs no privacy, and the last bits of a
result reveal nothing.
"""

import os
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from hushrec.checks import Single
from hushrec.errors import InputError

if TYPE_CHECKING:
    from hushrec.privacy.sampler import Law, Words

_CHUNK = 1 << 14  # entries drawn at a time: their words stay in the cache


class NoiseSource(Protocol):
    """A source of noise. All but `SystemNoise` make the results NOT PRIVATE.

    Each method returns a new array. Integers become float64.

    Examples
    --------
    >>> from hushrec.privacy.testing import SeededNoise             # for tests alone: NOT PRIVATE
    >>> def trained():
    ...     accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), noise=SeededNoise(0))
    ...     return hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> trained().to_bytes() == trained().to_bytes(), trained().privacy.private
    (True, False)
    """

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + N(0, sd^2), independent entries; `sd` broadcasts to `value`."""

    def add_laplace(self, value: np.ndarray, scale: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + Laplace(scale), independent entries; `scale` broadcasts to `value`."""

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        """Return the labels, each flipped with `probability`."""


class GeneratorNoise(Single):
    """Exact noise from the words of `_stream`.

    The real sum of value and noise is rounded to a grid, the power of two that is 2^-25 to 2^-24 of the sd or
    scale, then to the type of the value. Values that are not finite stay.
    """

    _instead = "noise that is drawn twice hides nothing; make a source where it is needed"

    def _stream(self) -> "Words":
        raise NotImplementedError

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        from hushrec.privacy.sampler import gaussian

        return _add(value, sd, gaussian(), self._stream())

    def add_laplace(self, value: np.ndarray, scale: npt.ArrayLike, label: str) -> np.ndarray:
        from hushrec.privacy.sampler import exponential

        return _add(value, scale, exponential(), self._stream())

    def rounded_gaussian(self, sd: np.ndarray, label: str) -> npt.NDArray[np.int64]:
        """Return N(0, sd^2) rounded to integers, independent entries; sd is at most 2^40."""
        from hushrec.privacy.sampler import LARGEST_SCALE, add_noise, gaussian

        sd = np.asarray(sd, dtype=np.float64)
        if not np.all((sd >= 0) & (sd <= LARGEST_SCALE)):
            raise InputError(f"sd must be from 0 to {LARGEST_SCALE:g}.")
        result = np.zeros(sd.shape)
        add_noise(result, sd, np.zeros(sd.shape, np.int32), gaussian(), self._stream())
        return result.astype(np.int64)

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        """Return the labels, each flipped with `probability`, rounded up to a multiple of 2^-64.

        Bool and unsigned labels are 0 and 1, others -1 and +1. Another entry counts as the label on its side
        of zero (NaN as -1): a refusal would reveal it.
        """
        labels = np.asarray(labels)
        if probability == 0:
            return labels.copy()
        ones = labels > 0
        low, high = labels.dtype.type(0 if labels.dtype.kind in "bu" else -1), labels.dtype.type(1)
        last = -int(-Fraction(probability) * 2**64 // 1) - 1  # of the words that flip
        flipped = self._stream()(labels.size).reshape(labels.shape) <= np.uint64(last)
        return np.asarray(np.where(ones ^ flipped, high, low))


class SystemNoise(GeneratorNoise):
    """Noise from the operating system's cryptographic generator: the only secure source.

    Examples
    --------
    >>> noise = hushrec.privacy.SystemNoise()
    >>> noise.add_gaussian(np.zeros(3), 1.0, "three numbers").shape
    (3,)
    """

    def _stream(self) -> "Words":
        return stream_cipher(os.urandom(32))


def stream_cipher(key: bytes) -> "Words":
    """Return a function that draws words of AES-256 in counter mode."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(count: int) -> npt.NDArray[np.uint64]:
        buffer = np.empty(count + 2, np.uint64)  # the library asks for almost a block more than it fills
        encryptor.update_into(bytes(8 * count), buffer.data.cast("B"))
        return buffer[:count]

    return words


def _add(value: np.ndarray, amount: npt.ArrayLike, law: "Law", words: "Words") -> np.ndarray:
    from hushrec.privacy.sampler import GRID_BITS, add_noise

    value = np.asarray(value)
    dtype = np.float32 if value.dtype == np.float32 else np.float64
    result = np.array(value, dtype=dtype, order="C")
    amount = np.asarray(amount, dtype=np.float64)
    if not np.all((amount >= 0) & (amount < np.inf)):
        raise InputError("The sd or scale of noise must be finite and at least 0.")
    if not amount.any() or result.size == 0:
        return result
    fractions, exponents = np.frexp(amount)
    scales, grids = np.ldexp(fractions, GRID_BITS).reshape(-1), (exponents - GRID_BITS).reshape(-1)
    rows = result.reshape(-1, 1) if result.ndim < 2 else result
    step = max(1, _CHUNK // (rows.size // len(rows)))
    if amount.size > 1:
        scales, grids = (
            np.broadcast_to(array.reshape(amount.shape), result.shape).reshape(rows.shape)
            for array in (scales, grids)
        )
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        noisy = part.reshape(-1).astype(np.float64, copy=False)  # float64 in place
        chunk = slice(start, start + step) if amount.size > 1 else slice(None)
        add_noise(noisy, scales[chunk].flatten(), grids[chunk].flatten(), law, words)
        if dtype != np.float64:
            with np.errstate(all="ignore"):  # a warning would reveal rows
                part[...] = noisy.reshape(part.shape)
    return result
