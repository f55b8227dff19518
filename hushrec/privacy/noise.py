"""Privacy noise: the one place that draws it, from the operating system's generator, without a seed.

Every call takes a fresh 128- or 256-bit key from ``os.urandom`` for a stream cipher, so there is no state
that a fork, a thread or a copied object could share. The cipher is AES-128 in counter mode where the
processor has AES instructions (100 million normals per second on one core) and ChaCha20 elsewhere (33
million); tests compare both with independent implementations. numpy's ziggurat turns the stream into normals
and exponentials.
"""

import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

_CHUNK = 1 << 15  # entries drawn at a time: the buffer stays in the cache


class NoiseSource(Protocol):
    """What the accountant draws from. Anything but `SystemNoise` makes the results NOT PRIVATE.

    Each method returns a new array, equal to its input bit for bit where there is no noise to add; integers
    become float64.
    """

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + N(0, sd^2), independent entries; `sd` broadcasts to `value`."""

    def add_laplace(self, value: np.ndarray, scale: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + Laplace(scale), independent entries; `scale` broadcasts to `value`."""

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        """Return the labels, each flipped with `probability`."""


class GeneratorNoise:
    """The arithmetic shared by all sources: noise from `_generator`, added in float64, a chunk at a time."""

    def _generator(self) -> np.random.Generator:
        raise NotImplementedError

    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + N(0, sd^2), independent entries; `sd` broadcasts to `value`."""
        generator = self._generator()
        return _add(value, sd, lambda out: generator.standard_normal(out=out))

    def add_laplace(self, value: np.ndarray, scale: npt.ArrayLike, label: str) -> np.ndarray:
        """Return value + Laplace(scale), independent entries; `scale` broadcasts to `value`."""
        generator = self._generator()

        def draw(
            out: np.ndarray,
        ) -> None:  # the difference of two exponentials: no logarithm of a coarse uniform
            generator.standard_exponential(out=out)
            out -= generator.standard_exponential(out.shape)

        return _add(value, scale, draw)

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        """Return the labels, each flipped with `probability`; never less, as uniforms are multiples of 2^-53.

        Bool and unsigned labels are 0 and 1, signed and floating ones -1 and +1; any other entry counts as
        the label on its side of zero (NaN as -1): refusing it would tell that it is there.
        """
        labels = np.asarray(labels)
        if probability == 0:
            return labels.copy()
        ones = labels > 0
        low, high = labels.dtype.type(0 if labels.dtype.kind in "bu" else -1), labels.dtype.type(1)
        flipped = self._generator().random(labels.shape) < probability
        return np.where(ones ^ flipped, high, low)


class SystemNoise(GeneratorNoise):
    """Noise from the operating system's cryptographic generator: the only secure source, and the default."""

    def _generator(self) -> np.random.Generator:
        return np.random.Generator(stream_cipher())


def stream_cipher() -> np.random.BitGenerator:
    """Return a stream cipher with a fresh full-entropy key."""
    from randomgen import AESCounter, ChaCha

    aes = AESCounter(key=int.from_bytes(os.urandom(16), "little"))
    return aes if aes.use_aesni else ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20)


def _add(value: np.ndarray, amount: npt.ArrayLike, draw: Callable[[np.ndarray], object]) -> np.ndarray:
    """Return value + amount * noise; float32 and float64 keep their type, the sum is formed in float64."""
    value = np.asarray(value)
    dtype = value.dtype if value.dtype in (np.float32, np.float64) else np.float64
    result = np.array(value, dtype=dtype, order="C")
    amount = np.asarray(amount, dtype=np.float64)
    if not amount.any() or result.size == 0:
        return result
    rows = result.reshape(-1, 1) if result.ndim < 2 else result
    amounts = np.broadcast_to(amount, result.shape).reshape(rows.shape) if amount.ndim else amount
    step = max(1, _CHUNK // (rows.size // len(rows)))
    buffer = np.empty((min(step, len(rows)), *rows.shape[1:]))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        noise = buffer[: len(part)]
        draw(noise)
        with np.errstate(all="ignore"):  # a warning would tell what the rows hold
            noise *= amounts[start : start + step] if amounts.ndim else amounts
            part += noise
    return result
