"""The gate: the only way from private sums to released values, each as its plan says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushrec.privacy import Accountant, Aggregate, Mechanism, Plan, RandomizedResponse


class Gate:
    """Sends an estimator's aggregates through :meth:`Accountant.release`, each as its plan says.

    Sensitivity, unit, relation and mechanism come from the plan, so a release that was not planned,
    or not as planned, cannot happen.
    """

    def __init__(self, accountant: Accountant, plan: Plan, progress: bool = False) -> None:
        self._accountant = accountant
        self._planned = {release.label: release for release in plan.releases}
        self._progress = progress
        self._bar: Any = None
        #: False when the budget is the explicit "no privacy": clips may then be off and sums in float32.
        self.private = accountant.budget.private

    def __enter__(self) -> Gate:
        if self._progress:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=len(self._planned), desc="training", unit="release")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def release(
        self, label: str, value: NDArray[Any], *, scale: NDArray[Any] | float | None = None
    ) -> NDArray[Any]:
        """Release one planned statistic: charge, add the planned noise, return the noisy array."""
        noisy = self._send(label, value, scale)
        assert isinstance(noisy, np.ndarray)
        return noisy

    def release_blocks(
        self, label: str, blocks: Iterable[NDArray[Any]], *, scale: NDArray[Any] | float | None = None
    ) -> Iterator[NDArray[Any]]:
        """Release one planned statistic that is computed block by block; charged once, before the first."""
        noisy = self._send(label, iter(blocks), scale)
        assert not isinstance(noisy, np.ndarray)
        return noisy

    def plans(self, label: str) -> bool:
        """True if a release of this label is planned."""
        return label in self._planned

    def noise_sd(self, label: str) -> float:
        """Planned noise standard deviation of a release (public)."""
        return self._planned[label].noise_sd

    def flip_probability(self, label: str) -> float:
        """Planned probability with which a label is flipped (public)."""
        planned = self._planned[label]
        assert isinstance(planned.mechanism, RandomizedResponse)
        return planned.mechanism.flip_probability(planned.sensitivity)

    def _send(self, label: str, value: Any, scale: Any) -> NDArray[Any] | Iterator[NDArray[Any]]:
        planned = self._planned[label]
        assert isinstance(planned.mechanism, Mechanism), "a selection is made of whole runs"
        aggregate = Aggregate(
            value,
            sensitivity=planned.sensitivity,
            unit=planned.unit,
            relation=planned.relation,
            norm=planned.mechanism.norm,
            scale=scale,
        )
        noisy = self._accountant.release(aggregate, planned.mechanism, label)
        if self._bar is not None:
            self._bar.update()
        return noisy
