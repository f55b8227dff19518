"""The second of everything costs the same as the first: mu squared by hand, epsilon by dp-accounting."""

import math
from dataclasses import replace

import pytest
from dp_accounting import gaussian_mechanism

from hushrec import (
    Accountant,
    Budget,
    ItemBias,
    Ledger,
    PrivateALS,
    Season,
    SeasonAccountant,
    Store,
    realistic,
)
from hushrec.errors import BudgetError, InputError

DELTA = 1e-6
BUDGET = Budget(3.0, DELTA)
#: mu squared of the budget, by other hands.
WHOLE = gaussian_mechanism.get_sigma_gaussian(3.0, DELTA) ** -2
RATINGS = realistic(60, 12, 400, seed=4)
ALS = PrivateALS(rank=2, bias_rounds=1, iterations=1, features=False)
SEASON = Season(BUDGET, 0.5, 0.5)
#: Parts of the whole that a season's first, second and third week cost one user, by hand: weights are 32nds.
SQUARES = [(math.isqrt(int(1024 * 0.5**n)) / 32) ** 2 for n in range(1, 11)]
FIRST, SECOND, THIRD = (each / (1 + sum(SQUARES)) for each in (1.0, *SQUARES[:2]))


class World:
    """A shop with one ledger and one store; each deed opens both again."""

    def __init__(self, folder) -> None:
        self._folder = folder
        self._store = Store.prepare(RATINGS, folder / "store", RATINGS.domain, partitions=2).path
        self.halves = Accountant(BUDGET, ledger=self.ledger, dataset="halves")
        self.models: dict[str, object] = {}

    @property
    def ledger(self) -> Ledger:
        return Ledger(self._folder / "ledger.sqlite")

    @property
    def store(self) -> Store:
        return Store(self._store)

    def model(self) -> None:
        ItemBias().fit(self.store, Accountant(BUDGET, ledger=self.ledger, dataset="models"))

    def half(self) -> None:
        share = 0.5 if not self.halves.releases else 1.0  # of what is left
        ItemBias().fit(self.store, self.halves, budget_fraction=share, seed=len(self.halves.releases))

    def season(self, name: str) -> None:
        self.ledger.open_season("weeks", replace(SEASON, name=name), allow_composition=name != "1")

    def week(self, name: str) -> None:
        options = {"ledger": self.ledger, "dataset": "weeks"}
        if (last := self.models.get(name)) is None:
            model = ALS.fit(self.store, SeasonAccountant(replace(SEASON, name=name), **options))
        else:
            model = last.continue_training(self.store, SeasonAccountant.following(last.privacy, **options))
        self.models[name] = model

    def close(self, name: str) -> None:
        self.ledger.close_season("weeks", name)


#: Deed, data set, parts of the whole that are charged to it afterwards, and the words for a deed too many.
DEEDS = [
    (World.model, (), "models", 1.0, ""),
    (World.model, (), "models", 2.0, ""),
    (World.half, (), "halves", 0.5, ""),
    (World.half, (), "halves", 1.0, ""),
    (World.half, (), "halves", 1.0, "used up"),
    (World.season, ("1",), "weeks", 0.0, ""),
    (World.week, ("1",), "weeks", FIRST, ""),
    (World.week, ("1",), "weeks", FIRST + SECOND, ""),
    (World.week, ("1",), "weeks", FIRST + SECOND + THIRD, ""),
    (World.season, ("2",), "weeks", FIRST + SECOND + THIRD, ""),
    (World.week, ("2",), "weeks", 2 * FIRST + SECOND + THIRD, ""),
    (World.week, ("2",), "weeks", 2 * FIRST + 2 * SECOND + THIRD, ""),
    (World.close, ("2",), "weeks", 2 * FIRST + 2 * SECOND + THIRD, ""),
    (World.week, ("2",), "weeks", 2 * FIRST + 2 * SECOND + THIRD, "was closed"),
    (World.season, ("2",), "weeks", 2 * FIRST + 2 * SECOND + THIRD, "has a season '2' already"),
    (World.season, ("3",), "weeks", 2 * FIRST + 2 * SECOND + THIRD, ""),
    (World.week, ("3",), "weeks", 3 * FIRST + 2 * SECOND + THIRD, ""),
    (World.model, (), "models", 3.0, ""),
]


def test_the_second_costs_what_the_first_did(tmp_path) -> None:
    world = World(tmp_path)
    for deed, options, dataset, parts, refused in DEEDS:
        if refused:
            with pytest.raises((BudgetError, InputError), match=refused):
                deed(world, *options)
        else:
            deed(world, *options)
        found = world.ledger.summary(dataset, DELTA)
        step = f"{deed.__name__} {options} {parts}"
        assert found.mu**2 == pytest.approx(parts * WHOLE, rel=1e-6), step
        if parts:
            epsilon = gaussian_mechanism.get_epsilon_gaussian(1 / math.sqrt(parts * WHOLE), DELTA)
            assert found.epsilon == pytest.approx(epsilon, rel=1e-4), step
    first, second = (world.models[name].privacy for name in ("1", "2"))
    assert [each.noise_sd for each in second.releases] == [each.noise_sd for each in first.releases]
