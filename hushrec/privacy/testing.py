"""Noise sources for tests. They make releases NOT PRIVATE."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hushrec.privacy.noise import GeneratorNoise, NoiseSource

if TYPE_CHECKING:
    from hushrec.privacy.sampler import Words


class SeededNoise(GeneratorNoise):
    """Noise that a seed reproduces. NOT PRIVATE: anyone who knows the seed can subtract the noise.

    Examples
    --------
    >>> from hushrec.privacy.testing import SeededNoise
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), noise=SeededNoise(0))
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.privacy.private                                     # anyone may draw the same noise
    False
    """

    def __init__(self, seed: int) -> None:
        self._words = np.random.PCG64(seed).random_raw

    def _stream(self) -> "Words":
        return self._words


@dataclass(frozen=True)
class NoiseCall:
    """One call of a noise source; its kind is "gaussian", "laplace" or "flip".

    `amount` is the sd, the Laplace scale or the flip probability.
    """

    kind: str
    label: str
    amount: np.ndarray
    value: np.ndarray
    output: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        """Noise in units of its sd or scale, flattened, for tests of the law."""
        noise = (self.output.astype(np.float64) - self.value) / self.amount
        return np.ravel(noise)


class _EveryCall:
    def add_gaussian(self, value: np.ndarray, sd: npt.ArrayLike, label: str) -> np.ndarray:
        return self._call("gaussian", value, sd, label)

    def add_laplace(self, value: np.ndarray, scale: npt.ArrayLike, label: str) -> np.ndarray:
        return self._call("laplace", value, scale, label)

    def flip(self, labels: np.ndarray, probability: float, label: str) -> np.ndarray:
        return self._call("flip", labels, probability, label)

    def _call(self, kind: str, value: np.ndarray, amount: Any, label: str) -> np.ndarray:
        raise NotImplementedError


class RecordingNoise(_EveryCall):
    """Keeps every call of `source` with its exact values. NOT PRIVATE.

    ``then(label, output)`` is called after each call, and may change the output.
    """

    def __init__(
        self, source: NoiseSource, then: Callable[[str, np.ndarray], object] = lambda label, output: None
    ) -> None:
        self._source, self._then = source, then
        self.calls: list[NoiseCall] = []

    def _call(self, kind: str, value: np.ndarray, amount: Any, label: str) -> np.ndarray:
        method = "flip" if kind == "flip" else f"add_{kind}"
        output: np.ndarray = getattr(self._source, method)(value, amount, label)
        self.calls.append(NoiseCall(kind, label, np.array(amount), np.array(value), output.copy()))
        self._then(label, output)
        return output


class ReplayNoise(_EveryCall):
    """Returns the outputs that a `RecordingNoise` kept, for any values. NOT PRIVATE.

    A training on other data that differs then depends on more than the releases. A call of another kind,
    label, amount or shape raises AssertionError.
    """

    def __init__(self, calls: Sequence[NoiseCall]) -> None:
        self._calls = list(calls)
        self._next = 0

    @property
    def finished(self) -> bool:
        return self._next == len(self._calls)

    def _call(self, kind: str, value: np.ndarray, amount: Any, label: str) -> np.ndarray:
        if self.finished:
            raise AssertionError(f"release {label!r} comes after the {len(self._calls)} recorded ones")
        call = self._calls[self._next]
        self._next += 1
        now = (kind, label, value.shape, value.dtype, np.array(amount).tolist())
        then = (call.kind, call.label, call.value.shape, call.value.dtype, call.amount.tolist())
        if now != then:
            raise AssertionError(
                f"release {self._next} is {now[:4]} now and was {then[:4]}, or its amount differs"
            )
        return call.output.copy()
