"""Write what a version of hushrec leaves on disk: ``PYTHONPATH=CHECKOUT python tests/from_0_2 OUT``.

CHECKOUT is the version that writes. Of generated ratings: a model of each kind with what it predicts and
recommends, a store, a ledger with a budget and a season half-way, and a training that was killed.
"""

import json
import math
import os
import shutil
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

from hushrec import (
    Accountant,
    Billboard,
    Budget,
    Domain,
    Ledger,
    PrivateALS,
    Ratings,
    Season,
    SeasonAccountant,
    realistic,
)
from hushrec.errors import InputError
from hushrec.privacy import SystemNoise
from hushrec.privacy.statement import library_version
from hushrec.registry import ESTIMATORS

FOLDER = Path(__file__).parent
ITEMS = 12
#: Small files, not good models.
SETTINGS = {
    "private-als": {"rank": 2, "iterations": 1},
    "als": {"rank": 2},
    "dpals": {"rank": 2, "iterations": 1},
    "private-eigenrec": {"rank": 2, "iterations": 1},
}
ALS = PrivateALS(rank=2, bias_rounds=1, iterations=1, features=False)


def table(n_users: int = 40) -> tuple[list[str], list[str], list[float]]:
    """Users, items and ratings."""
    drawn = realistic(n_users, ITEMS, 6 * n_users, seed=2)
    cells = drawn.matrix.tocoo()
    users, columns = cells.coords
    return [f"u{row}" for row in users], [drawn.domain.items[each] for each in columns], cells.data.tolist()


def rated(domain: Domain) -> Ratings:
    """The table, as ratings or as likes."""
    users, items, ratings = table()
    return Ratings.from_any((users, items, [1.0] * len(users) if domain.likes else ratings), domain)


def domains() -> dict[str, Domain]:
    """The catalogue with ratings, and with likes."""
    items = realistic(2, ITEMS, 4, seed=0).domain.items
    return {"ratings": Domain(items, (1, 5)), "likes": Domain(items, likes=True)}


def trained(name: str, domain: Domain) -> Billboard:
    """Train a model by name, private where it can be."""
    from hushrec.evaluation import runs  # where 0.2 has it

    settings, unit = SETTINGS.get(name, {}), "rating" if name == "one-bit" else "user"
    for epsilon in (20.0, math.inf):
        budget = Budget(epsilon, 1e-5, unit, "replace" if unit == "rating" else "add-remove")
        try:
            return runs.train(name, rated(domain), Accountant(budget), n_users=40, settings=settings)
        except InputError as error:
            refused = error
    raise refused


def answers(model: Billboard) -> dict[str, object]:
    """Return what a model tells a user who is not among those it was trained on."""
    items = model.domain.items
    history = {items[1]: 1.0, items[4]: 1.0} if model.domain.likes else {items[1]: 5.0, items[4]: 2.0}
    found: dict[str, object] = {"history": history}
    for what, ask in (("predicted", lambda: [float(each) for each in model.predict(history, items)]),
                      ("list", lambda: [item for item, *_ in model.recommend(history, ITEMS)])):  # fmt: skip
        try:
            found[what] = ask()
        except InputError as error:
            found[what] = str(error)
    return found


def killed(path: Path) -> None:
    """A training in a process of its own, killed when it draws noise for the third time."""
    draw, seen = SystemNoise.add_gaussian, []

    def drawing(*arguments):
        seen.append(arguments)
        if len(seen) == 3:
            os.kill(os.getpid(), 9)
        return draw(*arguments)

    SystemNoise.add_gaussian = drawing  # type: ignore[method-assign]
    ALS.fit(rated(domains()["ratings"]), Accountant(Budget(3.0, 1e-6), ledger=Ledger(path), dataset="cut"))


def main(out: Path) -> None:
    """Write all of it, as one archive and the answers."""
    expected: dict[str, object] = {"version": library_version(), "models": {}}
    with tempfile.TemporaryDirectory() as name:
        folder, models = Path(name), {}
        for kind, domain in domains().items():
            for called in ESTIMATORS:
                try:
                    model = trained(called, domain)
                except InputError as error:
                    print(f"{called} of {kind}: {error}")
                    continue
                model.save(folder / f"{called} of {kind}.hush")
                models[f"{called} of {kind}"] = answers(model)
                if called in ("private-als", "private-eigenrec"):
                    model.save(folder / f"{called} of {kind}, int8.hush", int8=True)
                    small = Billboard.load(folder / f"{called} of {kind}, int8.hush")
                    models[f"{called} of {kind}, int8"] = answers(small)
        expected["models"] = models
        Ratings.prepare(table(), folder / "store", domains()["ratings"], partitions=2)
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.open_dataset("shop", Budget(8.0, 1e-6))
        ESTIMATORS["item-bias"]().fit(
            rated(domains()["ratings"]), Accountant(Budget(1.0, 1e-6), ledger=ledger, dataset="shop")
        )
        season = Season(Budget(5.0, 1e-6), weeks=4)
        ledger.open_season("shop", season)
        week = SeasonAccountant(season, ledger=ledger, dataset="shop")
        model = ALS.fit(rated(domains()["ratings"]), week)
        week = SeasonAccountant.following(model.privacy, ledger=ledger)
        model.continue_training(rated(domains()["ratings"]), week).save(folder / "week-1.hush")
        child = get_context("fork").Process(target=killed, args=(folder / "ledger.sqlite",))
        child.start()
        child.join()
        expected["ledger"] = {called: ledger.summary(called, 1e-6).to_dict() for called in ("shop", "cut")}
        shutil.make_archive(str(out / "written"), "zip", folder)
    (out / "answers.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
