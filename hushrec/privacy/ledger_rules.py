"""The rules of a ledger: what may be charged, decided within one transaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from hushrec.checks import line_of_text, plural, shown
from hushrec.errors import BudgetError, InputError
from hushrec.privacy.accounting import total_mu
from hushrec.privacy.budget import Budget, Cost, composed_epsilon, pure_epsilon
from hushrec.privacy.release import Release
from hushrec.privacy.reservation import Reservation, Reserved, lives, sweep
from hushrec.privacy.schema import Book, Dataset
from hushrec.privacy.season import SeasonSummary, Week


def dataset_of(book: Book, dataset: str) -> Dataset:
    known = book.dataset(dataset)
    if known is None:
        names = book.datasets()
        listed = "; it has " + ", ".join(map(shown, names)) if names else ", and no other"
        raise InputError(
            f'The ledger has no data set "{dataset}"{listed}; its first training, hushrec ledger open or'
            " hushrec season open begins it."
        )
    return known


def open_to(book: Book, dataset: str, unit: str, relation: str) -> Budget | None:
    """Return a data set's budget; refuse another spelling, unit or relation, and a closed data set."""
    for first in book.spellings(dataset)[:1]:
        if first != dataset:
            raise InputError(
                f"The ledger has a data set {ascii(first)}, and {ascii(dataset)} looks the same; pass the"
                " former, or a name that differs visibly. Nothing was charged.",
                parameter="dataset",
            )
    known = book.dataset(dataset) or Dataset(unit, relation, None)
    if (known.unit, known.relation) != (unit, relation):
        raise InputError(
            f'Data set "{dataset}" of the ledger counts unit {known.unit!r} and relation'
            f" {known.relation!r}; {unit!r} and {relation!r} cannot be added to them: use the same, or"
            " another data-set name."
        )
    if known.closed:
        raise BudgetError(
            f'Data set "{dataset}" was closed in the ledger {book.path}: nothing more is charged to it.'
        )
    return known.budget


def check(
    book: Book,
    dataset: str,
    releases: tuple[Release, ...],
    trainings: Sequence[Reserved],
    run: str,
    allow_composition: bool,
) -> None:
    if not releases:
        return
    line_of_text("dataset", dataset)
    budget = open_to(book, dataset, releases[0].unit, releases[0].relation)
    if total_mu(release.mu for release in releases) == math.inf:
        _check_exact(book, dataset, budget)
    still = book.open_seasons(dataset)
    if budget is not None:
        check_room(book, dataset, budget, releases, trainings)
    elif still and not (allow_composition or book.charges(dataset, "run = ?", run)):
        raise _adds_up(dataset, still, [*book.committed(dataset), *trainings, *releases])


def check_room(
    book: Book, dataset: str, budget: Budget, coming: Sequence[Cost], trainings: Sequence[Reserved]
) -> None:
    committed = [*book.committed(dataset), *trainings]
    costs = [*committed, *coming]
    budget.check_reserve(costs)
    if not budget.allows(costs):
        total = budget.spell(composed_epsilon(costs, budget.delta))
        others = also_reserved(book.seasons(dataset), trainings)
        wait = "; wait until the running training ends" if any(t.mu for t in trainings) else ""
        raise BudgetError(
            f'This would bring data set "{dataset}" to {total} over all its runs{others}, past its '
            f"budget of {budget} in the ledger {book.path}; {budget.left(committed)}{wait}."
        )


def _check_exact(book: Book, dataset: str, budget: Budget | None) -> None:
    charges = book.charges(dataset)
    promised = budget is not None or charges or book.seasons(dataset)
    if promised and all(charge.mu < math.inf for charge in charges):
        raise BudgetError(
            f'A run without privacy would break the promise to the users of data set "{dataset}" in the'
            f" ledger {book.path}; pass another --dataset (dataset=...), or --data-is-public"
            " (data_is_public=True and no ledger) if the ratings are public."
        )


def reserved_by(
    book: Book, dataset: str, reservation: Reservation | None
) -> tuple[list[Reserved], Reserved | None]:
    reserved = book.reservations(dataset)
    own_name = None if reservation is None else reservation.name
    mine = next((training for training in reserved if training.name == own_name), None)
    return [other for other in reserved if other != mine and lives(book.trainings, other.name)], mine


def running(book: Book, dataset: str) -> list[Reserved]:
    return reserved_by(book, dataset, None)[0]


def sweep_reservations(book: Book) -> None:
    alive = set()
    for reserved in book.reservations():
        if lives(book.trainings, reserved.name):
            alive.add(reserved.name)
        else:
            book.drop_reservation(reserved.name)
    sweep(book.trainings, alive)


def season_of(book: Book, dataset: str, season: str) -> SeasonSummary:
    dataset_of(book, dataset)
    for summary in book.seasons(dataset):
        if summary.season.name == season:
            return summary
    raise InputError(
        f'Data set "{dataset}" has no season {shown(season)} in the ledger {book.path}; open one with'
        " hushrec season open."
    )


def check_own(book: Book, week: Week) -> None:
    if not book.has_last_charge(week):
        raise InputError(
            f"This model's week {week.number} of season {shown(week.season.name)} is not in the ledger"
            f" {book.path}: use the ledger that it was charged to."
        )


def check_week(
    book: Book,
    week: Week,
    releases: Sequence[Cost],
    after: Week | None = None,
    made: int | None = None,
    early: bool = False,
) -> None:
    dataset, season = week.dataset, week.season
    known, called = season_of(book, dataset, season.name), shown(season.name)
    if known.season != season:
        raise InputError(
            f"Season {called} is another one in the ledger {book.path}: there it is {known.season}, with"
            f" a budget of {known.season.budget}; use the ledger in which the model's season was opened."
        )
    if known.closed:
        raise BudgetError(
            f"Season {called} was closed: nothing more is charged to it; hushrec season open"
            " --allow-composition begins another."
        )
    if after is not None:
        check_own(book, after)
    mine = book.charges(dataset, "season = ? AND run = ?", season.name, week.run)
    begun = known.begun - bool(mine)
    if begun > week.number or (made is not None and len(mine) != made):
        raise _was_run(week)
    if begun < week.number:
        raise InputError(
            f"The ledger {book.path} has seen {plural(begun, 'week')} of season {called}, so week"
            f" {week.number} cannot be next; use the ledger that the season's weeks were charged to."
        )
    if season.gap and not (mine or early):
        _check_gap(week, book.last_week_began(dataset, season.name))
    season.check_week(week.number, [*mine, *releases])


def without(reserved: Reserved, releases: Sequence[Release]) -> Reserved:
    square = reserved.mu**2 - math.fsum(release.mu**2 for release in releases)
    epsilon, pure = reserved.epsilon, pure_epsilon(releases)
    return reserved._replace(
        mu=math.sqrt(max(0.0, square)),
        epsilon=None if epsilon is None else max(0.0, epsilon - (pure or 0.0)),
        failure=max(0.0, reserved.failure - math.fsum(release.failure for release in releases)),
    )


def also_reserved(
    seasons: Iterable[SeasonSummary], trainings: Iterable[Reserved] = (), joined: str = " and"
) -> str:
    names = [shown(summary.season.name) for summary in seasons if not summary.closed]
    number = sum(bool(training.mu or training.failure) for training in trainings)
    parts = [f"what season {', '.join(names)} reserve{'s' * (len(names) == 1)} until closed"] * bool(names)
    parts += [f"what {plural(number, 'running training')} reserve{'s' * (number == 1)}"] * bool(number)
    return f"{joined} {' and '.join(parts)}" if parts else ""


def _adds_up(dataset: str, still: Sequence[SeasonSummary], costs: Sequence[Cost]) -> BudgetError:
    budget, names = still[-1].season.budget, ", ".join(shown(summary.season.name) for summary in still)
    both = budget.spell(composed_epsilon(costs, budget.delta))
    return BudgetError(
        f'This run would add to open season {names} of data set "{dataset}": all charges and reserves would'
        f" be {both} together; train in the season, or pass --allow-composition (allow_composition=True) to"
        " accept that."
    )


def _was_run(week: Week) -> BudgetError:
    return BudgetError(
        f"Week {week.number} of season {shown(week.season.name)} was run already; go on from the model that"
        " it wrote, or with --skip-week if it was cut short: what it charged stays charged. hushrec train"
        " begins a new model in the next week."
    )


def _check_gap(week: Week, began: str | None) -> None:
    if began is None:
        return
    first = datetime.fromisoformat(began) + timedelta(days=week.season.gap)
    if datetime.now(UTC) < first:
        raise BudgetError(
            f"Week {week.number} of season {shown(week.season.name)} is too soon: the last one began at"
            f" {began}, and the season was opened with a gap of {week.season.gap:g} days, so the next may"
            f" begin at {first.isoformat()}. Nothing was charged; pass --early (early=True) to train it"
            " now."
        )
