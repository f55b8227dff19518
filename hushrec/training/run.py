"""One training in five steps: check, plan, journal, ask, state.

:func:`fit` trains a first model and :func:`next_week` the next one of a season.
:mod:`hushrec.training.named` trains a model by name.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hushrec.checks import check_domain, check_kind, check_numbers, settings_of
from hushrec.data import Domain, Ratings, Store, split_by_time
from hushrec.data.ratings import made_up
from hushrec.errors import HushrecError, InputError
from hushrec.kernels.fixed_point import LARGEST_COUNT
from hushrec.kernels.threads import one_blas_thread
from hushrec.privacy import Accountant, Budget, Plan, PrivacyStatement, SeasonAccountant
from hushrec.privacy.journal import VERSION
from hushrec.privacy.statement import library_version
from hushrec.privacy.testing import SeededNoise
from hushrec.progress import progress_bar
from hushrec.serving.model import Model
from hushrec.serving.new_items import moved
from hushrec.training.gate import Gate, LabelledGate, LocalGate
from hushrec.training.partitioned import (
    Admitted,
    Engine,
    PartitionedUsers,
    Streaming,
    WeightedUsers,
    answer_all,
)
from hushrec.training.trainable import Trainable, user_count_release
from hushrec.training.users import Users
from hushrec.types import ModelArrays

#: Data that every privacy statement assumes to be public.
_PUBLIC = "item catalogue", "rating range", "cap on ratings per user", "settings"
#: For unit "rating", and where user ids are row numbers.
_PUBLIC_CELLS = "which cells are observed"
_PUBLIC_ROWS = "number of rows (user ids are row numbers, and a user is left out by emptying their row)"
_PUBLIC_FEATURES = "item features"
#: Those of a `Choice` for 64 to 4,096 users.
_LIKELY = slice(2, 5)
#: Items and donors of a training on made-up rows; item factors may have 900 columns.
_REHEARSED_ITEMS, _DONORS = 1000, 32
#: Standard deviations of the noise from which a released number of users is one.
_NOISE_SDS = 4
_KEPT_FEATURES = "This week has no item features; those of an earlier week count where the model kept them."


class Weighted(NamedTuple):
    """Private groups of users of a training, each with its weight."""

    groups: Sequence[tuple[float, Ratings | Store]]


#: The rows of a training.
Rows = Ratings | Store | Weighted
#: The server's side of a training, from the users, the gate and the last week's arrays.
Work = Callable[[Any, Gate, ModelArrays | None], ModelArrays | dict[str, Any]]
#: The plan and the server's side of a training, for an estimator, a domain and public rows.
Planned = Callable[[Trainable[Any], Domain, "PublicRows | _MadeUp | None"], tuple[Plan, Work]]


@runtime_checkable
class PublicRows(Protocol):
    """The public rows of one training, of :meth:`hushrec.PublicRatings.read`."""

    @property
    def same(self) -> Ratings: ...

    @property
    def external(self) -> Ratings | None: ...

    @property
    def digest(self) -> str: ...

    def beside(self, model: Model, parts: ModelArrays) -> Model:
        """Add a public model to the private one, and notes to its statement."""


class _MadeUp(NamedTuple):
    """Public rows of a training on made-up rows."""

    same: Ratings
    external: Ratings | None


@runtime_checkable
class Public(Protocol):
    """Ratings declared public: :class:`hushrec.PublicRatings`."""

    def apart_from(self, private: Any) -> None:
        """Refuse the private ratings as public ones."""

    def read(self, estimator: Trainable[Any], ratings: Ratings | Store) -> PublicRows:
        """Return the public rows of a training, or refuse them."""


# ---------------------------------------------------------------------- a first model, and the next week's


def fit(
    estimator: Trainable[Any],
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    seed: int = 0,
    progress: bool = False,
    budget_fraction: float = 1.0,
    engine: Engine | None = None,
    public: Public | None = None,
) -> Model:
    """Train with the rest of the accountant's budget.

    Parameters
    ----------
    ratings : Ratings or Store
        A store is read a block of users at a time, where the estimator allows it.
    seed : int
        Seeds initialisation and sampling, never privacy noise.
    progress : bool
        Show a bar of the releases.
    budget_fraction : float
        Fraction of the remaining mu squared to spend, in (0, 1].
    engine : Engine, optional
        For the partitions of a store; by default this process.
    public : PublicRatings, optional
        For a part of the lists and a public model of ratings, without privacy cost.

    Raises
    ------
    InputError
        A declaration is missing or a setting is out of range; nothing is spent.
    BudgetError
        The plan does not fit into the budget or the ledger; nothing is spent.

    Privacy
    -------
    Unit and relation: the budget's. The releases are those of the plan, each with its sensitivity.
    """
    binding = {"model": estimator.name, "settings": settings_of(estimator)}
    counted = estimator.for_users if estimator.counts_users else None
    choice = Choice((estimator.for_users(1),), binding, estimator.user_count, counted)
    options: dict[str, Any] = {"seed": seed, "progress": progress, "budget_fraction": budget_fraction}
    return train(choice, ratings, accountant, engine=engine, public=public, **options)


class Choice(NamedTuple):
    """The estimator of a first training.

    Attributes
    ----------
    estimators : tuple of Estimator
        It alone, or those for several numbers of users where the training releases the number first.
    binding : dict
        Public values that identify the training in a journal.
    n_users : int, optional
        Declared number.
    for_users : callable, optional
        Chooses the estimator for the released number of users.
    """

    estimators: tuple[Trainable[Any], ...]
    binding: dict[str, Any]
    n_users: int | None = None
    for_users: Callable[[int], Trainable[Any]] | None = None

    @property
    def likely(self) -> tuple[Trainable[Any], ...]:
        """Those that kernels are loaded for beforehand: more users take more memory."""
        return self.estimators[_LIKELY] or self.estimators


def train(
    choice: Choice,
    ratings: Ratings | Store,
    accountant: Accountant,
    *,
    seed: int = 0,
    progress: bool = False,
    budget_fraction: float = 1.0,
    keep: Callable[[Model], None] | None = None,
    engine: Engine | None = None,
    stop_at_nobody: bool = False,
    public: Public | PublicRows | None = None,
) -> Model:
    """Train a first model.

    `keep` saves the model; until it returns, a killed training can be resumed. With `stop_at_nobody` a
    released number of users that does not exceed its noise raises `HushrecError`.
    """
    check(choice.estimators[0], ratings, accountant, seed, budget_fraction, engine)
    estimator, domain = choice.estimators[0], ratings.domain
    warn_of_delta(accountant.budget, choice.n_users)
    public_rows = read_public(public, estimator, ratings)
    part = accountant.part(budget_fraction)

    planned = _first(accountant, part, seed)
    for likely in reversed(choice.likely):  # the most releases first
        rehearse(likely, domain, accountant, public_rows, planned)
    # with any number of users the plan costs all that is left, so the journal refuses one that does not fit
    binding = choice.binding | public_binding(public_rows)
    plan, _ = planned(estimator, domain, public_rows)
    writing = journal(accountant, domain, plan, seed, **binding)
    with writing as saved, admitted(ratings, accountant) as rows:
        somebody = True
        if choice.for_users is not None:
            before = accountant.part()
            n_users = release_user_count(rows, accountant, budget_fraction)
            left = accountant.remaining_fraction
            part = min(part - (before - left), left)
            somebody = not stop_at_nobody or exceeds_noise(n_users, accountant.releases[-1].noise_sd)
            warn_of_delta(accountant.budget, n_users)
            estimator = choice.for_users(n_users)
        if somebody:
            planned = _first(accountant, part, seed)
            plan, work = planned(estimator, domain, public_rows)
            accountant.check(plan)
            rehearse(estimator, domain, accountant, public_rows, planned)
            parts = ask(estimator, rows, accountant, plan, work, progress, engine)
            trained = state(estimator, ratings, accountant, parts, public_rows=public_rows)
            if keep is not None:
                keep(trained)
                saved()
            return trained
    raise HushrecError(
        f"The released number of users, {n_users:,}, is indistinguishable from 0, so training stopped after"
        " 1% of the budget was charged; run hushrec check to see which rows are used, or declare the number"
        " of users with --users if it is that small."
    )


def _first(accountant: Accountant, part: float, seed: int = 0) -> Planned:
    def planned(estimator: Trainable[Any], domain: Domain, public: Any) -> tuple[Plan, Work]:
        whole = with_public(estimator, public)
        plan = whole.releases(accountant.budget, domain, part)
        return plan, lambda users, gate, _: whole.train(users, gate, int(seed))

    return planned


def exceeds_noise(n_users: int, noise_sd: float) -> bool:
    """Return whether a released number of users differs from 0 by more than noise."""
    return n_users > _NOISE_SDS * noise_sd


def release_user_count(ratings: Rows, accountant: Accountant, budget_fraction: float = 1.0) -> int:
    """Release the number of users, at least 1, to plan with.

    Privacy
    -------
    One Gaussian release for 1% of this fraction of the remaining mu squared. Unit: user. Sensitivity 1, under
    replace too, since a user's rows may be replaced by rows that cannot be used.
    """
    if not isinstance(ratings, Weighted):
        check_users(ratings, accountant)
    planned = user_count_release(accountant.budget, accountant.part(budget_fraction))
    groups: Sequence[tuple[float, Any]] = (
        ratings.groups if isinstance(ratings, Weighted) else [(1.0, ratings)]
    )
    users = WeightedUsers([(weight, Users(rows.rated())) for weight, rows in groups])
    noisy = LocalGate(accountant, Plan(accountant.budget, (planned,))).release(planned.label, users.count())
    return max(1, round(float(noisy[0])))


def large_delta(budget: Budget, n_users: int | None) -> str:
    """Return a warning if delta allows publishing one user's ratings."""
    if n_users is None or not budget.private or budget.delta * n_users < 1:
        return ""
    return (
        f"delta = {budget.delta:g} is at least 1 / {n_users:,} users, so the promise allows publishing one"
        " user's ratings; a delta well below that is usual."
    )


def warn_of_delta(budget: Budget, n_users: int | None) -> None:
    """Warn the caller of `fit`, or of :func:`hushrec.train`."""
    if text := large_delta(budget, n_users):
        warnings.warn(text, stacklevel=4)


def next_week(
    estimator: Trainable[Any],
    model: Model,
    ratings: Ratings | Store,
    accountant: SeasonAccountant,
    *,
    since: Any = None,
    drop_missing_items: bool = False,
    progress: bool = False,
    engine: Engine | None = None,
    public: Public | None = None,
) -> Model:
    """Train the next week's model of a season; see :meth:`Model.continue_training`."""
    notes: tuple[str, ...] = ()
    if since is not None:
        if isinstance(ratings, Store):
            raise InputError("since needs ratings with their times; pass Ratings, not a store.")
        ratings = split_by_time(ratings, since)[1]
        notes = (f"Of this week only ratings given since {since}, which was declared, count.",)
    _check_follows(estimator, model, accountant)
    check_rows(estimator, ratings, accountant, engine)
    public_rows = read_public(public, estimator, ratings)
    last = _over(ratings.domain, model, drop_missing_items)
    with_public(estimator, public_rows).check_week(ratings.domain, last)
    suffix = f", week {accountant.week.number}"  # labels differ from those of all other weeks
    part = accountant.part()

    def planned(estimator: Trainable[Any], domain: Domain, public: Any) -> tuple[Plan, Work]:
        whole = with_public(estimator, public)
        plan = whole.weekly_releases(accountant.budget, domain, part).labelled(suffix=suffix)
        return plan, lambda users, gate, last: whole.week(users, LabelledGate(gate, suffix=suffix), last)

    plan, work = planned(estimator, ratings.domain, public_rows)
    accountant.check(plan)
    rehearse(estimator, ratings.domain, accountant, public_rows, _first(accountant, part), planned)
    with admitted(ratings, accountant) as rows:
        parts = ask(estimator, rows, accountant, plan, work, progress, engine, last)
    kept = model.privacy.item_features
    return state(estimator, ratings, accountant, parts, notes, kept_features=kept, public_rows=public_rows)


# ---------------------------------------------------------------------- 1: check


def check(
    estimator: Trainable[Any],
    ratings: Ratings | Store,
    accountant: Accountant,
    seed: int = 0,
    budget_fraction: float = 1.0,
    engine: Engine | None = None,
) -> None:
    """Refuse everything that can be refused before a plan."""
    check_numbers(seed=(seed, int, "[0, inf)"), budget_fraction=(budget_fraction, float, "(0, 1]"))
    check_rows(estimator, ratings, accountant, engine)
    check_domain(estimator, ratings.domain)
    weekly = estimator.supports_seasons and estimator.exact_arithmetic
    if isinstance(accountant, SeasonAccountant) and not weekly:
        raise InputError(f"{estimator.name} does not support seasons; train both, or one of its parts.")


def check_rows(
    estimator: Trainable[Any], ratings: Ratings | Store, accountant: Accountant, engine: Engine | None = None
) -> None:
    loading = "load them with Ratings.from_any(table, domain), which takes files and data frames"
    check_kind(ratings, (Ratings, Store), "ratings", loading)
    check_kind(accountant, Accountant, "accountant", "pass Accountant(budget)")
    budget = accountant.budget
    estimator.check_budget(budget)
    accountant.part()  # refused where nothing is left
    check_users(ratings, accountant)
    if budget.unit not in estimator.units:
        raise InputError(
            f"{estimator.name} has a guarantee for unit {estimator.units[0]!r}, but the budget's unit is"
            f" {budget.unit!r}",
            parameter="unit",
            value=estimator.units[0],
        )
    if isinstance(accountant, SeasonAccountant) and accountant.attendance and ratings.by_position:
        raise InputError("An attendance counts users by their ids, and these rows have none; pass ids.")
    stored = isinstance(ratings, Store)
    if engine is not None and not (stored and _in_partitions(estimator, accountant)):
        raise InputError(
            f"An engine works on a store, for a private model whose sums are exact; {estimator.name} here is"
            " trained without one.",
            parameter="engine",
        )
    if isinstance(ratings, Store):
        if ratings.purchases and not _uses_purchases(estimator):
            raise InputError(
                f"{estimator.name} does not use purchases; prepare the store without a column of quantities."
            )
        (engine or Streaming()).verify(ratings)


def used_rows(estimator: Trainable[Any], ratings: Ratings) -> Ratings:
    """Return users with a rating, and for models of likes with a purchase."""
    return ratings.rated() if _uses_purchases(estimator) else ratings.starred().rated()


def _uses_purchases(estimator: Trainable[Any]) -> bool:
    return hasattr(estimator, "like_threshold")  # others read the ratings' values


def check_users(ratings: Ratings | Store, accountant: Accountant) -> None:
    """Refuse users with several rows, or who were chosen by looking at others."""
    if not ratings.users_differ:
        raise InputError("A user has several rows in these ratings; pass ratings with one row for each user.")
    if ratings.hand_picked and accountant.budget.private and not accountant.data_is_public:
        raise InputError(
            "These users or ratings were chosen by where, rows or for_users, so one user may change the rows"
            " of another; train on all of them or on parts by split_ratings, pass keyed=True if each user's"
            " choice depends on that user's rows alone, or declare public data (data_is_public=True)."
        )


def read_public(
    public: Public | PublicRows | None, estimator: Trainable[Any], ratings: Ratings | Store
) -> PublicRows | None:
    """Return the public rows of a training, which may have been read before."""
    if public is None or isinstance(public, PublicRows):
        return public
    check_kind(public, Public, "public", "pass hushrec.PublicRatings(donors=[...])")
    return public.read(estimator, ratings)


def with_public(estimator: Trainable[Any], rows: PublicRows | _MadeUp | None) -> Trainable[Any]:
    """Return an estimator whose lists have a part of public rows."""
    return estimator if rows is None else estimator.with_public(rows.same, rows.external)


def public_binding(rows: PublicRows | None) -> dict[str, str]:
    """Return the public rows to which a journal is bound."""
    return {} if rows is None else {"public ratings": rows.digest}


def _check_follows(estimator: Trainable[Any], model: Model, accountant: SeasonAccountant) -> None:
    following = "pass SeasonAccountant.following(model.privacy, ledger=...)"
    check_kind(accountant, SeasonAccountant, "accountant", following)
    if not estimator.supports_seasons:
        raise InputError(f"{estimator.name} does not support seasons; train it again, or train both.")
    if accountant.after != model.privacy.week or model.privacy.week is None:
        raise InputError(
            "accountant is not of the week after this model; make it from the model's statement."
        )
    if not model.state:
        raise InputError("This model holds no state to continue; train the season's first model again.")
    accountant.check_model(model)


def _over(domain: Domain, model: Model, drop_missing_items: bool) -> ModelArrays:
    """Return a model's values over another catalogue; rows of new items are zero."""
    old = model.domain
    if (old.rating_range, old.likes) != (domain.rating_range, domain.likes):
        raise InputError(
            f"This model's ratings are from {old.low:g} to {old.high:g} and these are from {domain.low:g} to"
            f" {domain.high:g}; a season keeps its range."
        )
    position = old.index(domain.items)
    missing = old.n_items - int((position >= 0).sum())
    if missing and not drop_missing_items:
        raise InputError(
            f"The catalogue lacks {missing} of the model's {old.n_items} items; pass --drop-missing-items"
            " (drop_missing_items=True) to drop them, or a catalogue that has them."
        )
    return moved(model, position)


# ---------------------------------------------------------------------- 3: journal


def journal(
    accountant: Accountant, domain: Domain, plan: Plan, seed: int, **binding: Any
) -> AbstractContextManager[Callable[[], None]]:
    """Refuse a plan that does not fit, or reserve it; open the journal of its training."""
    return accountant.training(plan, seed=int(seed), **public_inputs(domain), **binding)


def public_inputs(domain: Domain) -> dict[str, str]:
    """Return the public inputs to which a journal is bound."""
    return {
        "catalogue and range": domain.fingerprint,
        "item features": domain.item_table_digest,
        VERSION: library_version(),
    }


# ---------------------------------------------------------------------- 4: ask the users


#: Kinds and labels of the trainings whose kernels this process has loaded; threads train at once.
_loaded: list[tuple[object, frozenset[str]]] = []


def rehearse(
    estimator: Trainable[Any],
    domain: Domain,
    accountant: Accountant,
    public: PublicRows | None,
    *trainings: Planned,
) -> None:
    """Train on made-up rows before a ledger is charged: kernels that cannot be compiled cost no budget.

    The time of some steps grows with the cube of the number of items, so a model of this package gets the
    first ones. Another may hold data of its own for every item. A later week continues a first training.
    """
    if accountant.ledger is None or not accountant.budget.private:
        return
    models = [estimator, *(part for part in vars(estimator).values() if isinstance(part, Trainable))]
    if all(type(model).__module__.startswith("hushrec.") for model in models):
        domain = domain.first(_REHEARSED_ITEMS)
    donors = public and _MadeUp(made_up(domain).rows(slice(_DONORS)), public.external and made_up(domain))
    planned = [training(estimator, domain, donors) for training in trainings]
    labels = frozenset(re.sub(r"\d+", "", release.label) for plan, _ in planned for release in plan.releases)
    kind = type(estimator), domain.likes, domain.item_features is None, public is None
    if any(kind == known and labels <= seen for known, seen in _loaded):
        return
    last = None
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        for plan, work in planned:
            without_ledger = Accountant(plan.budget, noise=SeededNoise(0))
            last = ask(estimator, made_up(domain), without_ledger, plan, work, last=last)
    _loaded.append((kind, labels))


def ask(
    estimator: Trainable[Any],
    ratings: Rows,
    accountant: Accountant,
    plan: Plan,
    train: Work,
    progress: bool = False,
    engine: Engine | None = None,
    last: ModelArrays | None = None,
) -> ModelArrays:
    """Train on released sums of the users' answers."""
    with (
        users_side(estimator, ratings, accountant, engine) as users,
        progress_bar(progress, len(plan.releases), "training", "releases") as advance,
        one_blas_thread(),
    ):
        return ModelArrays.of(train(users, LocalGate(accountant, plan, advance), last))


@contextmanager
def users_side(
    estimator: Trainable[Any], ratings: Rows, accountant: Accountant, engine: Engine | None
) -> Iterator[Any]:
    """Yield the users of these rows, in partitions where the estimator allows it."""
    if isinstance(ratings, Weighted):
        with ExitStack() as stack:
            sides = [users_side(estimator, rows, accountant, engine) for _, rows in ratings.groups]
            users = [stack.enter_context(side) for side in sides]
            yield WeightedUsers(
                [(weight, each) for (weight, _), each in zip(ratings.groups, users, strict=True)]
            )
        return
    if isinstance(ratings, Store):
        if _in_partitions(estimator, accountant):
            with (engine or Streaming()).asking(estimator.users, ratings) as asked:
                yield PartitionedUsers(estimator.users, ratings.domain, asked)
            return
        ratings = ratings.ratings()
    rows = used_rows(estimator, ratings)
    if rows.n_users > LARGEST_COUNT and _in_partitions(estimator, accountant):
        starts = range(0, rows.n_users, LARGEST_COUNT)
        blocks = [partial(rows.rows, slice(start, start + LARGEST_COUNT), keyed=True) for start in starts]
        yield PartitionedUsers(
            estimator.users, rows.domain, lambda query: answer_all(estimator.users, blocks, query) or []
        )
    else:
        yield estimator.users(rows)


@contextmanager
def admitted(ratings: Ratings | Store, accountant: Accountant) -> Iterator[Rows]:
    """Yield the rows; in a season, weighed by the number of each user's trainings."""
    if not isinstance(accountant, SeasonAccountant):
        yield ratings
        return
    blocks = ratings.blocks() if isinstance(ratings, Store) else [lambda: ratings]
    ids = [block().user_texts for block in blocks] if accountant.attendance else []
    with accountant.admit(itertools.chain.from_iterable(texts.to_pylist() for texts in ids)) as weights:
        if not weights.ndim:
            yield Weighted([(float(weights), ratings)])
            return
        ends = np.cumsum([len(texts) for texts in ids])
        groups = []
        for weight in np.unique(np.append(weights, 1.0)):  # a week without users has the same releases
            masks = [part == weight for part in np.split(weights, ends[:-1])]
            rows = (
                Admitted(ratings, masks) if isinstance(ratings, Store) else ratings.rows(masks[0], keyed=True)
            )
            groups.append((float(weight), rows))
        yield Weighted(groups)


def _in_partitions(estimator: Trainable[Any], accountant: Accountant) -> bool:
    return estimator.supports_partitions and estimator.exact_arithmetic and accountant.budget.private


# ---------------------------------------------------------------------- 5: state the releases


def state(
    estimator: Trainable[Any],
    ratings: Ratings | Store,
    accountant: Accountant,
    parts: ModelArrays,
    notes: tuple[str, ...] = (),
    *,
    kept_features: bool = False,
    public_rows: PublicRows | None = None,
) -> Model:
    """Build the model with its statement; a season's ledger gets its digest."""
    privacy = statement(estimator, ratings, accountant, notes, kept_features)
    model = Model.of(estimator, ratings.domain, parts, privacy)
    if public_rows is not None:
        model = public_rows.beside(model, parts)
    if isinstance(accountant, SeasonAccountant):
        accountant.wrote(model)
    return model


def statement(
    estimator: Trainable[Any],
    ratings: Ratings | Store,
    accountant: Accountant,
    notes: tuple[str, ...] = (),
    kept_features: bool = False,
) -> PrivacyStatement:
    """Return the statement of a run, which reads only public marks of the rows."""
    budget, domain, public = accountant.budget, ratings.domain, list(_PUBLIC)
    if domain.likes:
        public.remove("rating range")
    features = kept_features or estimator.uses_features(budget, domain)
    public += [_PUBLIC_CELLS] * (budget.unit == "rating") + [_PUBLIC_ROWS] * ratings.by_position
    public += [_PUBLIC_FEATURES] * features
    exact = estimator.exact_arithmetic and budget.private
    kept = [_KEPT_FEATURES] * (kept_features and domain.item_features is None)
    notes = (*estimator.notes(budget, domain), *notes, *kept)
    privacy = accountant.statement(public, notes, exact_arithmetic=exact)
    return replace(privacy, item_features=features)
