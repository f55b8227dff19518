"""Summaries of a data set and its runs in a ledger."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from hushrec import notebook
from hushrec.checks import plural
from hushrec.privacy.budget import Budget, guarantee
from hushrec.privacy.release import Release


@dataclass(frozen=True)
class LedgerSummary:
    """All charges of one data set, taken together.

    Attributes
    ----------
    epsilon, delta, mu : float
        Cost of all charges together; the promise is the budget.
    charges, runs : int
        Their numbers.
    reserved : float
        Mu squared that open seasons may still spend.
    promised : float or None
        Epsilon at `delta` of all charges and reserves of open seasons; None without an open season.
    running : float
        Mu squared that running trainings reserve. No statement or file holds it.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> summary = book.summary("shop", delta=1e-6)
    >>> summary.dataset, summary.runs, round(summary.epsilon, 2)
    ('shop', 1, 5.0)
    """

    dataset: str
    unit: str
    relation: str
    epsilon: float
    delta: float
    mu: float
    charges: int
    runs: int
    budget: Budget | None
    closed: bool = False
    reserved: float = 0.0
    promised: float | None = None
    running: float = 0.0

    @property
    def shares(self) -> dict[str, float | None] | None:
        """Parts of the budget's mu squared, or without a budget of the total; None if that is zero."""
        held = self.reserved + self.running
        whole = self.mu**2 + held if self.budget is None else self.budget.mu**2
        if not 0 < whole < math.inf:
            return None
        spent, reserved = self.mu**2 / whole, held / whole
        free = None if self.budget is None else 0.0 if self.closed else max(0.0, 1 - spent - reserved)
        return {"spent": spent, "reserved": reserved, "free": free}

    def _repr_html_(self) -> str:
        return notebook.shares(f"{self.dataset}: {self}", self.shares or {}, "Parts are of mu squared.")

    def __str__(self) -> str:
        total = guarantee(self.epsilon, self.delta, self.unit, self.relation)
        limit = "no budget is set" if self.budget is None else f"its budget is {self.budget}"
        if self.promised is not None:
            both = guarantee(self.promised, self.delta, self.unit, self.relation)
            limit = f"with the rest of open seasons, {both}; {limit}"
        limit += ", and it is closed" if self.closed else ""
        runs = plural(self.runs, "run")
        warning = "NOT PRIVATE, " if self.epsilon == math.inf else ""
        return f'{warning}{runs} on data set "{self.dataset}" charged {total} together; {limit}'

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; infinity stays a float."""
        words = ("epsilon", "delta", "failure")
        budget = None if self.budget is None else {word: getattr(self.budget, word) for word in words}
        entry = asdict(self) | {"budget": budget}
        del entry["running"]  # which is over soon
        return entry

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> LedgerSummary:
        limit, protects = entry["budget"], (entry["unit"], entry["relation"])
        if limit is not None:
            limit = Budget(limit["epsilon"], limit["delta"], *protects, limit["failure"])
        if not all(isinstance(entry[word], int | float | None) for word in ("reserved", "promised")):
            raise TypeError("not what seasons reserve")
        return cls(**entry | {"budget": limit})


class Share(NamedTuple):
    """The mu squared of a season, of a running training, or of all other runs."""

    what: str
    spent: float
    reserved: float


class Row(NamedTuple):
    """A row of the table of charges, with file and digest of its noisy value, if kept."""

    number: int
    dataset: str
    run: str
    time: str
    label: str
    mechanism: str
    sensitivity: float
    mu: float
    epsilon: float | None
    failure: float
    unit: str
    relation: str
    season: str | None
    step: int | None
    previous: str
    hash: str
    file: str | None = None
    digest: str | None = None

    @property
    def release(self) -> Release:
        return Release.from_ledger(self.label, self.mechanism, self.sensitivity, self.unit, self.relation)


@dataclass(frozen=True)
class RunSummary:
    """A run: `time` (UTC) is of its first charge, `epsilon` and `mu` are of it and all earlier ones."""

    run: str
    time: str
    charges: int
    epsilon: float
    mu: float
