"""One training, from rows to a model: what is checked, planned, kept for a crash, released, and stated.

An :class:`~hushrec.Estimator` says what an algorithm is; here it is run. :func:`fit` trains a first
model, :func:`next_week` goes on from one of a season, and :func:`train` does what ``hushrec train`` does: it
chooses settings from public figures, releases the number of users where nobody declared it, then fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hushrec.checks import check_domain, check_kind, check_numbers, names_of, parts_of, settings_of
from hushrec.data import Domain, Ratings, Store, split_by_time
from hushrec.errors import HushrecError, InputError
from hushrec.kernels.fixed_point import LARGEST_COUNT
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import (
    Accountant,
    Budget,
    Plan,
    PrivacyStatement,
    Release,
    SeasonAccountant,
    counted,
)
from hushrec.privacy.journal import VERSION
from hushrec.privacy.statement import library_version
from hushrec.registry import ESTIMATORS
from hushrec.serving.billboard import Billboard
from hushrec.serving.extending import moved
from hushrec.training.gate import LabelledGate, LocalGate
from hushrec.training.partitioned import Engine, PartitionedUsers, Streaming
from hushrec.training.users import Users
from hushrec.types import Parts

#: What every privacy statement says is assumed public.
_PUBLIC = "item catalogue", "rating range", "cap on ratings per user", "hyper-parameters"
#: What it says besides where single ratings are protected, and where user ids are row numbers.
_PUBLIC_CELLS = "which cells are observed"
_PUBLIC_ROWS = "number of rows (user ids are row numbers, and a user is left out by emptying their row)"
#: And where a model looks at item features, and what it says if an earlier week did.
_PUBLIC_FEATURES = "item features"
_KEPT_FEATURES = "The item features are those of an earlier week; what was made of them is kept."
#: An :class:`~hushrec.training.estimator.Estimator`, which is defined above this.
Algorithm = Any


@runtime_checkable
class Public(Protocol):
    """Public ratings beside the private ones: what :class:`hushrec.PublicRatings` does around a training."""

    def check(self, estimator: Algorithm, ratings: Ratings | Store) -> None:
        """Refuse what could not be used, before anything is spent."""

    def notes(self, ratings: Ratings | Store) -> tuple[str, ...]:
        """Say in the privacy statement what is public."""

    def beside(self, board: Billboard, ratings: Ratings | Store, state: Mapping[str, Any]) -> Billboard:
        """Put a public model beside the private one, whose state is released too."""


# ---------------------------------------------------------------------- a first model, and the next week's


def fit(
    estimator: Algorithm,
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    seed: int = 0,
    progress: bool = False,
    share: float = 1.0,
    engine: Engine | None = None,
    public: Public | None = None,
) -> Billboard:
    """Train, spending whatever is left of the accountant's budget.

    Parameters
    ----------
    ratings : Ratings or Store
        The private rows. Those of a store are read a block of users at a time, where the estimator can do
        with that, and the bytes of the result are the same.
    accountant : Accountant
        The only way out for anything computed from the rows.
    seed : int
        Governs initialisation and sampling, never privacy noise.
    progress : bool
        Show a bar with the number of releases made and the time, nothing else.
    share : float
        Part of what is left (of mu squared) to spend, in (0, 1].
    engine : Engine, optional
        Where the partitions of a store are worked on; by default in this process.
    public : PublicRatings, optional
        Public ratings, for a public model beside the private one, which stays as it is. Nothing is
        charged for them.

    Returns
    -------
    Billboard
        Released values only.

    Raises
    ------
    InputError
        If a declaration is missing or a hyper-parameter is out of range; nothing is spent.
    BudgetError
        If the plan does not fit into the budget or the ledger; nothing is spent.
    """
    plan = check(estimator, ratings, accountant, seed, share)
    if public is not None:
        check_kind(public, Public, "public", "pass hushrec.PublicRatings(donors=[...])")
        public.check(estimator, ratings)
    _check_season(estimator, accountant)
    journal = journaled(estimator, ratings.domain, accountant, plan, seed)
    gate = LocalGate(accountant, plan, progress)
    with _asked(estimator, ratings, accountant, engine) as users, journal, gate, one_blas_thread():
        parts = estimator.train(users, gate, int(seed))
    return _model(estimator, ratings, accountant, parts, public=public)


def next_week(
    board: Billboard,
    ratings: Ratings | Store,
    accountant: SeasonAccountant,
    *,
    since: Any = None,
    retire: bool = False,
    progress: bool = False,
    engine: Engine | None = None,
    public: Public | None = None,
) -> Billboard:
    """Train the next week's model of a season, as :meth:`Billboard.continue_training` says."""
    estimator: Algorithm = board.estimator
    notes: tuple[str, ...] = ()
    if since is not None:
        if isinstance(ratings, Store):
            raise InputError("A window is taken from ratings with their times; pass those, not a store.")
        ratings = split_by_time(ratings, since)[1]
        notes = (f"Of this week only ratings given since {since}, which was declared, count.",)
    _check_follows(board, accountant)
    check_rows(estimator, ratings, accountant)
    before = " ".join((*board.privacy.public, *board.privacy.notes))
    if "item feature" in before and ratings.domain.item_features is None:
        notes = (*notes, _KEPT_FEATURES)
    if public is not None:
        check_kind(public, Public, "public", "pass hushrec.PublicRatings(donors=[...])")
        public.check(estimator, ratings)
    last = _over(ratings.domain, board, retire)
    suffix = f", week {accountant.week.number}"  # labels differ from those of all other weeks
    planned = estimator.weekly_releases(accountant.budget, ratings.domain, accountant.part())
    plan = planned.labelled(suffix=suffix)
    accountant.check(plan)
    gate = LocalGate(accountant, plan, progress)
    with _asked(estimator, ratings, accountant, engine) as users, gate, one_blas_thread():
        parts = estimator.week(users, LabelledGate(gate, suffix=suffix), last)
    return _model(estimator, ratings, accountant, parts, notes, public)


def _model(
    estimator: Algorithm,
    ratings: Ratings | Store,
    accountant: Accountant,
    parts: Parts | Mapping[str, Any],
    notes: tuple[str, ...] = (),
    public: Public | None = None,
) -> Billboard:
    """Put a model together; of a season, the ledger has its digest before its file gets a name."""
    if public is not None:
        notes = (*notes, *public.notes(ratings))
    privacy = replace(statement(estimator, ratings, accountant, notes), public_ratings=public is not None)
    board = Billboard.of(estimator, ratings.domain, parts, privacy)
    if public is not None:
        board = public.beside(board, ratings, Parts.of(parts).state)
    if isinstance(accountant, SeasonAccountant):
        accountant.wrote(board)
    return board


def journaled(
    estimator: Algorithm, domain: Domain, accountant: Accountant, plan: Plan, seed: int
) -> AbstractContextManager[Callable[[], None]]:
    """Open the accountant's journal of this training, which only the same can take up."""
    settings = settings_of(estimator)
    return accountant.training(
        plan, model=estimator.name, settings=settings, seed=int(seed), **public_inputs(domain)
    )


def public_inputs(domain: Domain) -> dict[str, str]:
    """Return what a training is bound to besides its settings: hashes, since a catalogue is long."""
    features = b"" if domain.item_features is None else np.ascontiguousarray(domain.item_features).tobytes()
    return {
        "catalogue and range": domain.fingerprint,
        "item features": hashlib.sha256(features).hexdigest(),
        VERSION: library_version(),
    }


def statement(
    estimator: Algorithm, ratings: Ratings | Store, accountant: Accountant, notes: tuple[str, ...] = ()
) -> PrivacyStatement:
    """Say what the accountant did in a run on these rows; reads nothing of them but public marks."""
    budget, public = accountant.budget, list(_PUBLIC)
    if ratings.domain.likes:
        public.remove("rating range")
    public += [_PUBLIC_CELLS] * (budget.unit == "rating") + [_PUBLIC_ROWS] * ratings.by_position
    told = _KEPT_FEATURES in notes or goes_by_features(estimator, budget, ratings.domain)
    public += [_PUBLIC_FEATURES] * told
    exact = estimator.exact_arithmetic and budget.private
    notes = (*estimator.notes(budget, ratings.domain), *notes)
    return accountant.statement(public, notes, exact_arithmetic=exact)


def goes_by_features(estimator: Algorithm, budget: Budget, domain: Domain) -> bool:
    """Tell whether a model looks at the domain's item features: one that does says so in its notes."""
    if domain.item_features is None:
        return False
    without = replace(domain, item_features=None)
    return bool(estimator.notes(budget, domain) != estimator.notes(budget, without))


# ---------------------------------------------------------------------- where the private side is


@contextmanager
def _asked(
    estimator: Algorithm, ratings: Ratings | Store, accountant: Accountant, engine: Engine | None
) -> Iterator[Any]:
    """Make the private side of these rows; of a store, one that asks its partitions."""
    partitioned = _in_partitions(estimator, ratings, accountant, engine)
    _check_store(ratings, engine)
    if isinstance(ratings, Store):
        if partitioned:
            with (engine or Streaming()).asking(estimator.users, ratings) as ask:
                yield PartitionedUsers(estimator.users, ratings.domain, ask)
            return
        ratings = ratings.ratings()
    yield estimator.users(ratings.rated())


def _in_partitions(
    estimator: Algorithm, ratings: Ratings | Store, accountant: Accountant, engine: Engine | None
) -> bool:
    """Tell whether the users may lie in partitions; refuse an engine that this training could not use."""
    may = estimator.streams and estimator.exact_arithmetic and accountant.budget.private
    if engine is not None and not (may and isinstance(ratings, Store)):
        raise InputError(
            f"An engine works on a store, for a private model whose sums are exact; {estimator.name} here is"
            " trained without one.",
            parameter="engine",
        )
    return may


# ---------------------------------------------------------------------- what is refused before a charge


def check(
    estimator: Algorithm,
    ratings: Ratings | Store,
    accountant: Accountant,
    seed: int = 0,
    share: float = 1.0,
) -> Plan:
    """Return the releases of a run, or refuse whatever can be refused before anything is spent."""
    check_rows(estimator, ratings, accountant)
    check_domain(estimator, ratings.domain)
    check_numbers(seed=(seed, int, "[0, inf)"))
    plan = estimator.releases(accountant.budget, ratings.domain, accountant.part(share))
    accountant.check(plan)
    return plan


def check_rows(estimator: Algorithm, ratings: Ratings | Store, accountant: Accountant) -> None:
    """Refuse what is no rows, or no accountant for them."""
    loading = "load them with Ratings.read(table, domain), which takes files and data frames"
    check_kind(ratings, (Ratings, Store), "ratings", loading)
    check_kind(accountant, Accountant, "accountant", "pass Accountant(budget)")
    budget = accountant.budget
    accountant.part()  # refused where nothing is left
    check_users(ratings, accountant)
    if budget.private and not (ratings.domain.declared or accountant.data_is_public):
        raise InputError(
            "The catalogue and rating range of these ratings were read from the ratings themselves, which"
            " leaks them; declare Domain(items=..., rating_range=(low, high)) and load them with it."
        )
    if ratings.n_users > LARGEST_COUNT:
        raise InputError(
            f"Sums are exact for up to {LARGEST_COUNT:,} users and these are more; train on a part."
        )
    if budget.unit not in estimator.units:
        raise InputError(
            f"{estimator.name} has a guarantee for unit {estimator.units[0]!r}, but the budget's unit is"
            f" {budget.unit!r}",
            parameter="unit",
            value=estimator.units[0],
        )


def check_users(ratings: Ratings | Store, accountant: Accountant) -> None:
    """Refuse ratings in which a user is not one row of their own, chosen without regard to the others."""
    if not ratings.users_differ:
        raise InputError("A user has several rows in these ratings; pass ratings with one row for each user.")
    if ratings.hand_picked and accountant.budget.private and not accountant.data_is_public:
        raise InputError(
            "These users or ratings were chosen by a rule of your own (where, rows, for_users), in which"
            " one user may decide what others have; train on all, on parts by split_ratings, leave_k_out or"
            " strong_generalization, say keyed=True there if each user was chosen by themselves alone, or"
            " declare public data with Accountant(..., data_is_public=True)."
        )


def _check_store(ratings: Ratings | Store, engine: Engine | None) -> None:
    """Refuse a store whose files are not as they were written."""
    if isinstance(ratings, Store):
        (engine or Streaming()).verify(ratings)


def _check_season(estimator: Algorithm, accountant: Accountant) -> None:
    """Refuse a season whose later weeks could not go on."""
    if isinstance(accountant, SeasonAccountant) and not estimator.goes_on:
        raise InputError(f"{estimator.name} cannot go on from week to week; train both, or one of its parts.")


def _check_follows(board: Billboard, accountant: SeasonAccountant) -> None:
    """Refuse an accountant that is not of the week after a model, or a model that nothing follows."""
    following = "pass SeasonAccountant.following(model.privacy, ledger=...)"
    check_kind(accountant, SeasonAccountant, "accountant", following)
    estimator: Algorithm = board.estimator
    if not estimator.goes_on:
        raise InputError(f"{estimator.name} cannot go on from week to week; train it anew, or train both.")
    if accountant.after != board.privacy.week or board.privacy.week is None:
        raise InputError(
            "accountant is not of the week after this model; make it from the model's statement."
        )
    if not board.state:
        raise InputError("This model holds no state to go on from; train the season's first model anew.")
    accountant.check_model(board)


# ---------------------------------------------------------------------- a model over another catalogue


def _over(domain: Domain, board: Billboard, retire: bool) -> Parts:
    """All released values of a model over another catalogue; rows of new items are zero."""
    old = board.domain
    if (old.rating_range, old.likes) != (domain.rating_range, domain.likes):
        raise InputError(
            f"This model's ratings are from {old.low:g} to {old.high:g} and these are from {domain.low:g} to"
            f" {domain.high:g}; a season keeps its range."
        )
    position = old.index(domain.items)
    missing = old.n_items - int((position >= 0).sum())
    if missing and not retire:
        raise InputError(
            f"The catalogue lacks {missing} of the model's {old.n_items} items; pass --retire (retire=True)"
            " to drop them, or a catalogue that has them."
        )
    return moved(board, position)


# ---------------------------------------------------------------------- by name, as the command line does


#: Stand in for a number of users that is yet to be released, where settings are checked before that.
_PROBE_USER_COUNTS = tuple(8**power for power in range(10))


def choose(
    name: str,
    budget: Budget,
    domain: Domain,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Algorithm:
    """An estimator by name, its hyper-parameters chosen from the budget, the domain and a number of users.

    Parameters
    ----------
    name : str
        A key of ``hushrec.models.ESTIMATORS``.
    budget : Budget
        The whole budget of the run.
    domain : Domain
        The declared catalogue and range.
    n_users : int, optional
        Declared or released number of users; needed by models that are tuned to it (private-als).
    settings : mapping of str to value, optional
        Hyper-parameters that override the choice.

    Raises
    ------
    InputError
        For a model or a setting that does not exist, or a value out of range.
    """
    cls = known(name)
    given = dict(settings or {})
    names = names_of(cls)
    for setting in given:
        if setting not in names and setting.partition(".")[0] not in parts_of(cls):
            raise InputError(
                f"{name} has no setting {setting!r}; it has {', '.join(names) if names else 'none'}."
            )
    if n_users is not None and "n_users" in names:
        given.setdefault("n_users", n_users)
    if "like_threshold" in names:
        given.setdefault("like_threshold", domain.like_threshold)
    if not cls.uses_user_count:
        return cls.of(given)
    n_users = given.pop("n_users", n_users)
    if n_users is None:
        what = f"{name} is tuned to the number of users; declare it or release it."
        raise InputError(what, parameter="n_users")
    return cls.planned(budget, domain, n_users, **given)


def known(name: str) -> type[Algorithm]:
    """The class of a model; refused where there is none of that name."""
    if name not in ESTIMATORS:
        words = ", ".join(ESTIMATORS)
        raise InputError(f"model {name!r} is not known; pass one of {words}.", parameter="model")
    return ESTIMATORS[name]


def needs_user_count(name: str) -> bool:
    """Tell whether a model's settings are chosen from the number of users."""
    return name in ESTIMATORS and ESTIMATORS[name].uses_user_count


def check_run(
    name: str, budget: Budget, domain: Domain, n_users: int | None, settings: Mapping[str, Any] | None
) -> None:
    """Refuse a run that could not be completed, before anything is spent on it."""
    unknown = n_users is None and needs_user_count(name)
    for count in _PROBE_USER_COUNTS if unknown else (n_users,):
        choose(name, budget, domain, n_users=count, settings=settings).plan(budget, domain)


def told_from_nobody(n_users: int, noise_sd: float) -> bool:
    """Tell whether a released number of users differs from 0 by more than noise."""
    return n_users > 4 * noise_sd


def train(
    name: str,
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    n_users: int | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: bool = False,
    share: float = 1.0,
    keep: Callable[[Billboard], None] | None = None,
    engine: Engine | None = None,
    stop_at_nobody: bool = False,
    public: Public | None = None,
) -> Billboard:
    """Train a model by name, as ``hushrec train`` does.

    Parameters
    ----------
    name, settings
        As in :func:`choose`.
    ratings : Ratings or Store
        The private rows.
    accountant : Accountant
        Its budget is spent.
    n_users : int, optional
        Declared number of users. Without it, a model that is tuned to the number of users first releases
        that number, for the share of the budget that ``hushrec.models.baselines`` documents.
    seed, progress, share, engine
        As in :meth:`hushrec.models.Estimator.fit`.
    keep : callable
        Puts the model away. A training that is killed before that is done can be resumed.
    stop_at_nobody : bool
        Stop with a `HushrecError` where the number of users was released and cannot be told from 0: that is
        a function of the release, and no more is charged.
    public : PublicRatings, optional
        As in :meth:`hushrec.models.Estimator.fit`.
    """
    budget, domain, part, found = accountant.budget, ratings.domain, accountant.part(share), True
    check_run(name, budget, domain, n_users, settings)
    anyone = choose(name, budget, domain, n_users=n_users or 1, settings=settings)
    _check_season(anyone, accountant)
    _in_partitions(anyone, ratings, accountant, engine)
    if public is not None:
        public.check(anyone, ratings)
    options: dict[str, Any] = {"seed": seed, "progress": progress, "share": share, "engine": engine}
    given = {"budget": repr(budget), "model": name, "settings": dict(settings or {}), "share": share}
    billboard = None
    with accountant.training(None, **given, users=n_users, seed=seed, **public_inputs(domain)) as saved:
        if n_users is None and needs_user_count(name):
            _check_store(ratings, engine)
            # any number of users costs all that is left: what does not fit is refused before a charge
            accountant.check(anyone.releases(budget, domain, part))
            n_users = release_user_count(ratings, accountant)
            found = told_from_nobody(n_users, accountant.releases[-1].noise_sd)
        if found or not stop_at_nobody:
            estimator = choose(name, budget, domain, n_users=n_users, settings=settings)
            billboard = fit(estimator, ratings, accountant, public=public, **options)
            if keep is not None:
                keep(billboard)
                saved()
    if billboard is None:
        raise HushrecError(
            f"The released number of users, {n_users:,}, cannot be told from 0. Training stopped there: 1% of"
            " the budget is charged, and no more. See what became of the rows with hushrec check; if there"
            " are so few users, declare their number with --users."
        )
    return billboard


def release_user_count(ratings: Ratings | Store, accountant: Accountant, share: float = 0.01) -> int:
    """Number of users, released for a share of the budget, to plan with.

    Parameters
    ----------
    ratings : Ratings or Store
        The private rows.
    accountant : Accountant
        Charged ``share`` of its budget's mu squared.
    share : float
        In (0, 1).

    Returns
    -------
    int
        At least 1.

    Privacy
    -------
    One Gaussian release. Unit: user. Sensitivity 1 under add-remove, and under replace too, since a
    user's rows may be replaced by rows of which none can be used.
    """
    check_users(ratings, accountant)
    budget = accountant.budget
    sensitivity = counted(1.0).under(budget.relation)
    planned = Release("number of users", budget.share(share), sensitivity, budget.unit, budget.relation)
    rows: Any = ratings.rated()
    noisy = LocalGate(accountant, Plan(budget, (planned,))).release(planned.label, Users(rows).count())
    return max(1, round(float(noisy[0])))
