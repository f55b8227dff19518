"""The accountant: values from private rows leave only as releases, charged before noise is drawn."""

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from hushrec.checks import Single, check_flags, check_kind, check_numbers, line_of_text
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import ROUNDING
from hushrec.privacy.bounded import Bounded
from hushrec.privacy.budget import Budget
from hushrec.privacy.journal import Draft, Journal
from hushrec.privacy.ledger import Ledger
from hushrec.privacy.mechanisms import Mechanism
from hushrec.privacy.noise import NoiseSource, SystemNoise
from hushrec.privacy.release import Plan, Release, check_bounded, check_fit
from hushrec.privacy.reservation import Reservation
from hushrec.privacy.selection import RepeatAndSelect
from hushrec.privacy.statement import PUBLIC_DATA, PrivacyStatement, library_version

Result = TypeVar("Result")
_LEFTOVER = 1e-9  # of mu^2: less is a remainder of rounding


class Accountant(Single):
    """Spends one budget, release by release: check, record durably, and only then draw the noise.

    Parameters
    ----------
    budget : Budget
        ``Budget(math.inf, delta)`` lets values pass unchanged and stamps everything NOT PRIVATE.
    ledger : Ledger, optional
    dataset : str
        Name of the users in the ledger; snapshots of the same users share it.
    noise : NoiseSource, optional
        For tests: stamps the statement NOT PRIVATE, and is refused with a ledger.
    data_is_public : bool
        Declares that no row is private: NOT PRIVATE, and no ledger is charged.
    resume : bool
        Continue the last unfinished training, without charging its releases again.
    reservation : Reservation, optional
        From :meth:`Ledger.reserve`, for several accountants; by default each training has its own.
    allow_composition : bool
        Allow a cost in addition to an open season, where the data set has no budget.

    Privacy
    -------
    All releases, of adaptively chosen mechanisms, together satisfy the budget (docs/proofs/accounting.md,
    section 4). An accountant belongs to one process, since a fork could spend the same budget again.

    Examples
    --------
    >>> budget = hushrec.Budget(epsilon=3, delta=1e-6)
    >>> accountant = hushrec.Accountant(budget)              # recorded nowhere: pass a ledger for real data
    >>> accountant.remaining_fraction
    1.0
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> round(accountant.remaining_fraction, 6)
    0.0
    """

    _keeps_journal = True
    _instead = "a copy could spend the same budget again; make another Accountant with the same ledger"

    def __init__(
        self,
        budget: Budget,
        *,
        ledger: Ledger | None = None,
        dataset: str = "default",
        noise: NoiseSource | None = None,
        data_is_public: bool = False,
        resume: bool = False,
        allow_composition: bool = False,
        reservation: Reservation | None = None,
    ) -> None:
        check_kind(budget, Budget, "budget", "pass Budget(epsilon=..., delta=...)")
        check_kind(ledger, (Ledger, NoneType), "ledger", "pass Ledger(path)")
        check_flags(data_is_public=data_is_public, resume=resume, allow_composition=allow_composition)
        self.budget = budget
        self.ledger = ledger
        self.dataset = line_of_text("dataset", dataset)
        self.data_is_public = data_is_public
        self.allow_composition = allow_composition
        self.run = os.urandom(16).hex()
        self._noise: NoiseSource = SystemNoise() if noise is None else noise
        self._secure = type(self._noise) is SystemNoise
        self._releases: list[Release] = []
        self._lock, self._one_training = threading.RLock(), threading.RLock()
        self._reservation, self._reserves = reservation, reservation is None
        self._process = os.getpid()
        self._resume, self._lost = resume, 0
        self._journal: Journal | None = None
        if resume and (ledger is None or not budget.private):
            raise InputError(
                "Only a training with a finite epsilon and a ledger keeps a journal; train again, without"
                " resuming."
            )
        if ledger is not None and not self._secure:
            raise InputError(
                "A ledger records private runs only: leave out the injected noise source or the ledger."
            )
        if ledger is not None and data_is_public:
            raise InputError(
                "Public data are not charged to a ledger: leave out data_is_public or the ledger."
            )

    def __repr__(self) -> str:
        book = "no ledger" if self.ledger is None else f'data set "{self.dataset}" of {self.ledger.path}'
        stamp = "NOT PRIVATE, " if self._reasons else ""
        return f"{type(self).__name__}({stamp}{self.budget.spell_spent(self.releases)}; {book})"

    @property
    def _reasons(self) -> tuple[str, ...]:
        reasons = {
            "the budget is infinite": not self.budget.private,
            "the noise came from an injected source": not self._secure,
            PUBLIC_DATA: self.data_is_public,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    @property
    def releases(self) -> tuple[Release, ...]:
        """The charged releases, in order."""
        with self._lock:
            return tuple(self._releases)

    @property
    def spent_mu(self) -> float:
        """Mu of all releases."""
        return Plan(self.budget, self.releases).mu

    @property
    def remaining_fraction(self) -> float:
        """Part of the budget's mu^2 that is left, from 0 to 1; always 1 of an infinite budget."""
        return self.budget.part_left(self.releases)

    def part(self, share: float = 1.0) -> float:
        """Return a share of the remaining fraction, or raise BudgetError if only rounding is left."""
        check_numbers(share=(share, float, "[0, 1]"))
        left = self.remaining_fraction
        if left < _LEFTOVER:
            raise BudgetError(
                f"This accountant is used up: its releases have spent {self.budget}; further ones need"
                " another accountant, whose budget adds to this one."
            )
        return share * left

    def check(self, plan: Plan) -> None:
        """Refuse a plan that does not fit next to earlier releases; in a training, reserve it."""
        with self._lock:
            self._check_fit(plan.releases)
            if self.ledger is None or (self._resume and self._journal is None):
                return  # the journal of a resumed training knows which charges are missing
            coming = plan.releases if self._journal is None else self._journal.uncharged(plan.releases)
            words: dict[str, Any] = {"run": self.run, "allow_composition": self.allow_composition}
            words["reservation"] = self._reservation
            try:
                if self._journal is not None and self._reserves:
                    self._reservation = self.ledger.reserve(self.dataset, coming, **words)
                else:
                    self.ledger.check(self.dataset, coming, **words)
            except BudgetError as error:
                if not self._lost:
                    raise
                raise BudgetError(
                    "The noisy value of a release was charged but lost in the kill, so it must be"
                    f" charged again. {error}"
                ) from None

    @contextmanager
    def training(self, plan: Plan, **binding: Any) -> Iterator[Callable[[], None]]:
        """Reserve a training's plan and keep its noisy values, from which the same training can resume.

        It yields a function to call when the model is saved. That removes the values; otherwise the data
        set's next training does. A second thread waits. `binding` are public values that identify the
        training.
        """
        with self._one_training:
            if self.ledger is None or not self.budget.private or not self._keeps_journal:
                self.check(plan)
                yield lambda: None
                return
            binding["plan"] = [release.to_dict() for release in plan.releases]
            saved: list[bool] = []
            resume, self._resume = self._resume, False
            journal = Journal(self.ledger, self.dataset, self.run, binding, resume=resume)
            self._journal, self.run, self._lost = journal, journal.run, journal.lost
            try:
                self.check(plan)
                yield lambda: saved.append(True)
                journal.close(saved=bool(saved))
            finally:
                self._journal = None
                if self._reserves and self._reservation is not None:
                    self._reservation.close()
                    self._reservation = None
                journal.leave()

    def release(
        self, bounded: Bounded, mechanism: Mechanism, label: str, *, sensitivity: float | None = None
    ) -> np.ndarray:
        """Charge for the value, durably, then return it with noise.

        Parameters
        ----------
        bounded : Bounded
            The private value.
        mechanism : Gaussian, Laplace or RandomizedResponse
        label : str
            Public words for the privacy statement and the ledger.
        sensitivity : float, optional
            Bound times scale, as planned.

        Returns
        -------
        ndarray
            Float32 and float64 keep their type.

        Raises
        ------
        BudgetError
            It does not fit the budget of the accountant or the data set; nothing is released.
        LedgerError
            The charge could not be recorded; nothing is released.
        InputError
            Unit, relation, norm or bound is wrong; nothing is spent.

        Privacy
        -------
        Unit and relation: the budget's. One release, whose sensitivity is the bound of `bounded` under that
        relation. The charge follows from `mechanism` and is on disk before noise is drawn.
        """
        check_bounded(label, bounded)
        relation = self.budget.relation
        if bounded.norm == "labels" and relation != "replace":
            raise InputError(f"Labels need relation 'replace'; release {label!r} has {relation!r}.")
        planned = bounded.sensitivity(relation) if sensitivity is None else sensitivity
        release = Release(label, mechanism, planned, bounded.unit, relation)
        release.check(bounded, self.budget.private)
        amounts = release.amounts(bounded)
        journal = self._journal
        if journal is not None and (kept := self._kept(journal, release, bounded)) is not None:
            return kept
        value, draft = self._charge(release, bounded._take, journal)
        # the charge is durable: only now may noise be drawn
        noisy = bounded._completed(mechanism.apply(self._noise, value, amounts, label))
        return noisy if journal is None or draft is None else journal.keep(draft, label, noisy)

    def _kept(self, journal: Journal, release: Release, bounded: Bounded) -> np.ndarray | None:
        self._check_process()
        with self._lock:
            kept = journal.next(release, np.shape(bounded._take()))
            if kept is not None:
                self._check_fit((release,))
                self._releases.append(release)
        return kept

    def select(
        self, mechanism: RepeatAndSelect, label: str, run: Callable[["Accountant"], tuple[Result, float]]
    ) -> Result:
        """Charge for the best of a random number of runs, durably, then make them and return the best.

        Parameters
        ----------
        mechanism : RepeatAndSelect
        label : str
            Public words for the privacy statement and the ledger.
        run : callable
            It gets an accountant with the budget of one run, for all that it computes from private rows. It
            returns its result and its score. The lowest score wins, of equal ones the first; NaN counts as
            infinity. A run that raises ranks last.

        Returns
        -------
        The best run's result. The number of runs is secret, and their warnings are dropped.

        Raises
        ------
        BudgetError, LedgerError
            As `release`; nothing is run.
        Exception
            The first run's, if every run raised.

        Privacy
        -------
        Unit and relation: the budget's. Charged as the mechanism states, with its probability of failure.
        """
        check_kind(mechanism, RepeatAndSelect, "mechanism", "pass RepeatAndSelect.within(budget, mean_runs)")
        unit, relation = self.budget.unit, self.budget.relation
        self._charge(Release(label, mechanism, 1.0, unit, relation))
        budget = Budget(mechanism.run_epsilon, mechanism.delta, unit, relation)
        noise = None if self._secure else self._noise
        best: tuple[tuple[bool, float], Any, Exception | None] = (True, math.inf), None, None
        with warnings.catch_warnings(action="ignore"):
            for _ in range(mechanism.draw_number_of_runs()):
                self._check_process()
                inner = _RunAccountant(budget, noise=noise, data_is_public=self.data_is_public)
                try:
                    result, score = run(inner)
                    rank, failure = (False, math.inf if math.isnan(score) else float(score)), None
                except Exception as error:  # which neither ends others nor reveals its number
                    rank, result, failure = (True, 0.0), None, error
                if rank < best[0]:
                    best = rank, result, failure
        self._check_process()
        if best[2] is not None:
            raise best[2]
        chosen: Result = best[1]
        return chosen

    def _charge(
        self, release: Release, take: Callable[[], Any] = lambda: None, journal: Journal | None = None
    ) -> tuple[Any, Draft | None]:
        self._check_process()
        with self._lock:
            self._check_fit((release,))
            value = take()
            draft = None if journal is None else journal.prepare(value)
            if self.ledger is not None:
                self._record(self.ledger, release, None if draft is None else draft.step)
                if journal is not None:
                    journal.charged()
            self._releases.append(release)
        return value, draft

    def _record(self, ledger: Ledger, release: Release, step: int | None) -> None:
        ledger.charge(
            self.dataset,
            self.run,
            release,
            step=step,
            allow_composition=self.allow_composition,
            reservation=self._reservation,
        )

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise BudgetError(
                "This accountant was copied by a fork, where its budget could be spent twice; make a new one."
            )

    def _check_fit(self, coming: Iterable[Release]) -> None:
        check_fit(self.budget, self._releases, coming)

    def statement(
        self, public: Iterable[str] = (), notes: Iterable[str] = (), *, exact_arithmetic: bool = False
    ) -> PrivacyStatement:
        """Return the privacy statement.

        The caller lists public data and promises `exact_arithmetic`: the released sums had no rounding.
        """
        if self._lost:
            notes = (
                *notes,
                f"a killed training lost {self._lost} noisy values, which nobody saw: they stay charged, and"
                " were drawn and charged again",
            )
        summary = None
        if self.ledger is not None and self.releases:
            summary = self.ledger.summary(self.dataset, unless_declared=self.budget.delta)
            summary = replace(summary, running=0.0)
        return PrivacyStatement(
            budget=self.budget,
            releases=self.releases,
            public=tuple(public),
            notes=tuple(notes),
            reasons=self._reasons,
            secure_noise=self._secure,
            ledger=summary,
            version=library_version(),
            exact_arithmetic=exact_arithmetic,
            exact_noise=self._secure,
        )


class _RunAccountant(Accountant):
    """Adds up mu in one run of a selection (docs/proofs/selection.md)."""

    _keeps_journal = False  # how many runs there are is secret

    def _check_fit(self, coming: Iterable[Release]) -> None:
        releases = (*self._releases, *coming)
        if any(release.failure for release in releases):
            raise BudgetError(
                "A run of a selection cannot make a selection itself; make one selection, outside of the run."
            )
        super()._check_fit(coming)
        mu = Plan(self.budget, releases).mu
        if mu * mu > self.budget.mu**2 * (1 + ROUNDING):
            raise BudgetError(
                f"The releases of a run of a selection would bring mu to {mu:.6g}, past the run's"
                f" {self.budget.mu:.6g}, and pure epsilons do not count there; add more noise."
            )
