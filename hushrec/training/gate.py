"""The gate: values from private rows leave only as releases, charged before noise is drawn.

Noise is drawn in this process (:class:`LocalGate`) or at two servers (:mod:`hushrec.engines.two_servers`).
"""

from __future__ import annotations

from typing import Protocol

from hushrec.errors import InputError
from hushrec.privacy import Accountant, Bounded, Mechanism, Plan, Release
from hushrec.privacy.release import check_bounded
from hushrec.progress import Advance
from hushrec.types import Array


class Gate(Protocol):
    """The object that a training releases its values through.

    Examples
    --------
    >>> def train(gate: hushrec.Gate, clipped):                     # the server's side of a training
    ...     return gate.release("total", hushrec.Bounded([clipped.sum()], hushrec.privacy.signed(1.0)))
    >>> from hushrec.training.gate import LocalGate
    >>> budget = hushrec.Budget(5, 1e-6)
    >>> release = hushrec.Release("total", hushrec.Gaussian(1 / budget.mu), 1.0, "user", "add-remove")
    >>> gate = LocalGate(hushrec.Accountant(budget), hushrec.Plan(budget, [release]))
    >>> train(gate, np.clip([0.3, 2.0, -0.4], -1, 1)).shape
    (1,)
    """

    @property
    def private(self) -> bool:
        """False under an infinite budget: clips may then be off, and sums in float32."""

    def release(self, label: str, bounded: Bounded) -> Array:
        """Release a planned value: charge, add the planned noise, return the noisy array."""

    def planned(self, label: str) -> Release | None:
        """Return the planned release with this label, or None."""

    def noise_sd(self, label: str) -> float:
        """Standard deviation of the planned noise, in units of the release's scale."""


class LabelledGate:
    """Adds a prefix or a suffix to the labels of releases."""

    def __init__(self, gate: Gate, prefix: str = "", suffix: str = "") -> None:
        self._gate, self._prefix, self._suffix, self.private = gate, prefix, suffix, gate.private

    def _called(self, label: str) -> str:
        return self._prefix + label + self._suffix

    def release(self, label: str, bounded: Bounded) -> Array:
        return self._gate.release(self._called(label), bounded)

    def planned(self, label: str) -> Release | None:
        return self._gate.planned(self._called(label))

    def noise_sd(self, label: str) -> float:
        return self._gate.noise_sd(self._called(label))


class PlannedGate:
    """Takes sensitivity, unit, relation and mechanism from the plan."""

    def __init__(self, plan: Plan) -> None:
        self.private = plan.budget.private
        self._planned = {release.label: release for release in plan.releases}

    def planned(self, label: str) -> Release | None:
        return self._planned.get(label)

    def noise_sd(self, label: str) -> float:
        return self._planned[label].noise_sd

    def _as_planned(self, label: str, bounded: Bounded) -> Release:
        planned = self._planned.get(label)
        if planned is None:
            raise InputError(f"Release {label!r} is not planned; list it in the estimator's `releases`.")
        check_bounded(label, bounded)
        planned.check(bounded, self.private)
        return planned


class LocalGate(PlannedGate):
    """Draws noise by :meth:`Accountant.release`; a bar of the releases may advance."""

    def __init__(self, accountant: Accountant, plan: Plan, advance: Advance | None = None) -> None:
        super().__init__(plan)
        self._accountant, self._advance = accountant, advance

    def release(self, label: str, bounded: Bounded) -> Array:
        planned = self._as_planned(label, bounded)
        assert isinstance(planned.mechanism, Mechanism), "a selection is made of whole runs"
        noisy = self._accountant.release(bounded, planned.mechanism, label, sensitivity=planned.sensitivity)
        if self._advance is not None:
            self._advance(1)
        return noisy
