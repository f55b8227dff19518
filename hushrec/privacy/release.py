"""Planned and charged releases, which hold no data."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from hushrec import notebook
from hushrec.checks import RELATIONS, UNITS, check_choice, check_kind, check_numbers, line_of_text, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import total_mu
from hushrec.privacy.bounded import Bounded
from hushrec.privacy.budget import Budget, composed_epsilon
from hushrec.privacy.mechanisms import Gaussian, Laplace, Mechanism, RandomizedResponse
from hushrec.privacy.selection import RepeatAndSelect

_MECHANISMS: dict[str, type[Mechanism | RepeatAndSelect]] = {
    kind.__name__: kind for kind in (Gaussian, Laplace, RandomizedResponse, RepeatAndSelect)
}
SMALLEST_NOISE = 1e-290  # an sd below it may be rounded to zero
_ROUNDING = 1e-9  # relative: bound times scale and planned sensitivity are equal but for it


@dataclass(frozen=True)
class Release:
    """One release: its public label, its noise, and its sensitivity in the mechanism's norm.

    Examples
    --------
    >>> release = hushrec.Release("item counts", hushrec.Gaussian(2.0), 1.5, "user", "add-remove")
    >>> release.noise_sd, release.mu                              # noise: multiplier times sensitivity
    (3.0, 0.5)
    """

    label: str
    mechanism: Mechanism | RepeatAndSelect
    sensitivity: float
    unit: str
    relation: str

    def __post_init__(self) -> None:
        line_of_text("label", self.label)
        check_kind(self.mechanism, tuple(_MECHANISMS.values()), "mechanism", "pass Gaussian(2.0), say")
        check_numbers(sensitivity=(self.sensitivity, float, "(0, inf)"))
        object.__setattr__(self, "sensitivity", float(self.sensitivity))
        check_choice(unit=(self.unit, UNITS), relation=(self.relation, RELATIONS))
        if self.mu < math.inf and not SMALLEST_NOISE < self.noise_sd < math.inf:
            raise InputError(
                f"The noise of release {self.label!r} has sd {self.noise_sd:g}, which a float cannot draw; "
                "bring the sensitivity near 1."
            )

    @property
    def mu(self) -> float:
        """Cost in Gaussian differential privacy."""
        return self.mechanism.mu

    @property
    def epsilon(self) -> float | None:
        """Pure epsilon, or None."""
        return self.mechanism.epsilon

    @property
    def failure(self) -> float:
        """Chance of failure."""
        return self.mechanism.failure

    @property
    def noise_sd(self) -> float:
        """Standard deviation of the noise on one entry (before a scale)."""
        return self.mechanism.noise_sd(self.sensitivity)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "label": self.label,
            "mechanism": type(self.mechanism).__name__,
            "norm": self.mechanism.norm,
            "sensitivity": self.sensitivity,
            "noise_multiplier": getattr(self.mechanism, "noise_multiplier", None),
            **(asdict(self.mechanism) if isinstance(self.mechanism, RepeatAndSelect) else {}),
            "noise_sd": self.noise_sd,
            "epsilon": self.epsilon,
            "mu": self.mu,
            "unit": self.unit,
            "relation": self.relation,
        }

    def check(self, bounded: Bounded, private: bool) -> None:
        """Refuse a value that is not bounded as planned; without privacy, accept any bound."""
        declared = bounded.sensitivity(self.relation)
        fits = bounded.unit == self.unit and bounded.norm == self.mechanism.norm
        if not fits or (private and not math.isclose(declared, self.sensitivity, rel_tol=_ROUNDING)):
            raise InputError(
                f"Release {self.label!r} was planned with sensitivity {self.sensitivity:.9g} (unit:"
                f" {self.unit}, norm: {self.mechanism.norm}), but bound times scale is {declared:.9g}"
                f" (unit: {bounded.unit}, norm: {bounded.norm}); plan what is clipped."
            )

    def amounts(self, bounded: Bounded) -> np.ndarray:
        """Return each entry's noise (see `Mechanism.amount`); refuse noise that vanishes or overflows."""
        mechanism: Any = self.mechanism
        amounts: np.ndarray = mechanism.amount(self.sensitivity, bounded.entry_scale)
        fits = np.all((amounts > SMALLEST_NOISE) & (amounts < bounded.largest_noise))
        if mechanism.norm != "labels" and self.mu < math.inf and not fits:
            raise InputError(
                f"scale makes the noise of release {self.label!r} vanish or overflow; bring it near 1."
            )
        return amounts

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "Release":
        """Inverse of `to_dict`."""
        kind = _MECHANISMS.get(entry["mechanism"])
        if kind is None:
            raise InputError(f"There is no mechanism {shown(entry['mechanism'])}.")
        mechanism = kind(*(entry[field.name] for field in fields(kind)))
        return cls(entry["label"], mechanism, entry["sensitivity"], entry["unit"], entry["relation"])

    @classmethod
    def from_ledger(
        cls, label: str, mechanism: str, sensitivity: float, unit: str, relation: str
    ) -> "Release":
        """Return the release of a ledger's row, where `mechanism` is a repr."""
        kind, _, values = mechanism.rstrip(")").partition("(")
        numbers = [float(part.partition("=")[2]) for part in values.split(", ")]
        return cls(label, _MECHANISMS[kind](*numbers), sensitivity, unit, relation)


@dataclass(frozen=True)
class Plan:
    """The releases of an algorithm under a budget, computed without data.

    Examples
    --------
    >>> domain = hushrec.Domain(["alien", "matrix"], rating_range=(1, 5))
    >>> budget = hushrec.Budget(epsilon=5, delta=1e-6)
    >>> plan = hushrec.PrivateALS.planned(budget, domain, n_users=6000).plan(budget, domain)
    >>> round(hushrec.privacy.total_mu(release.mu for release in plan.releases) / budget.mu, 6)
    1.0
    """

    budget: Budget
    releases: tuple[Release, ...]

    def __init__(self, budget: Budget, releases: Iterable[Release]) -> None:
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "releases", tuple(releases))

    def __repr__(self) -> str:
        return f"Plan({len(self.releases)} releases: {self.budget.spell(self.epsilon)})"

    def _repr_html_(self) -> str:
        head = ("release", "mechanism", "sensitivity", "mu")
        rows = []
        for one in self.releases:
            cells = one.label, type(one.mechanism).__name__, f"{one.sensitivity:.4g}", f"{one.mu:.4g}"
            rows.append((cells, one.mu**2 if one.mu < math.inf else 0.0))
        return notebook.bars(repr(self), head, rows)

    @cached_property
    def mu(self) -> float:
        return total_mu(release.mu for release in self.releases)

    @cached_property
    def epsilon(self) -> float:
        """Epsilon of all releases together at the budget's delta."""
        return composed_epsilon(self.releases, self.budget.delta)

    def labelled(self, *, prefix: str = "", suffix: str = "") -> "Plan":
        """Return the plan with something before or after each label."""
        labels = ((release, prefix + release.label + suffix) for release in self.releases)
        return Plan(self.budget, [replace(release, label=label) for release, label in labels])

    def check(self) -> None:
        """Raise BudgetError if the releases do not fit the budget."""
        check_fit(self.budget, (), self.releases)


def check_bounded(label: str, value: Any) -> None:
    if not isinstance(value, Bounded):
        raise InputError(
            f"Release {label!r} is not a Bounded; pass the result of the function that clips it."
        )


def check_fit(budget: Budget, done: Iterable[Release], coming: Iterable[Release]) -> None:
    done, coming = tuple(done), tuple(coming)
    for release in coming:
        if (release.unit, release.relation) != (budget.unit, budget.relation):
            raise InputError(
                f"Release {release.label!r} has its sensitivity for unit {release.unit!r} and relation "
                f"{release.relation!r}, but the budget is for {budget.unit!r} and {budget.relation!r}; "
                "compute the sensitivity for the budget's."
            )
    budget.check_reserve(done + coming)
    if not budget.allows(done + coming):
        total = composed_epsilon(done + coming, budget.delta)
        what = f"Release {coming[0].label!r}" if len(coming) == 1 else f"A plan of {len(coming)} releases"
        raise BudgetError(
            f"{what} would bring the total to {budget.spell(total)}, past the budget of "
            f"epsilon = {budget.epsilon:g}; add more noise or declare a larger budget."
        )
