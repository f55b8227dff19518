"""Nothing that stays public after a training holds a private row, nor does its pickle."""

import gc
import pickle
import sys
import types
import weakref
from collections.abc import Iterator

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, PublicRatings, Ratings, Season, SeasonAccountant, Store
from hushrec.data import store_files
from hushrec.errors import InputError
from hushrec.privacy import Bounded
from hushrec.training import named
from hushrec.training.users import Users
from tests.models.cases import CASES, Case

ITEMS = tuple(f"i{number}" for number in range(7))
DONORS = [f"donor {number}" for number in range(4)]
SECRET = "pr1vate-"


def table() -> dict[str, list]:
    """Rows of donors, and of private users with ids and ratings that occur nowhere else."""
    generator = np.random.default_rng(3)
    users = [*DONORS, *(f"{SECRET}{number}" for number in range(12))]
    rows = [(user, item) for user in users for item in ITEMS if generator.random() < 0.7]
    ratings = [
        float(np.float32(1.0 + generator.random() * 4)) if user.startswith(SECRET) else float(number % 5 + 1)
        for number, (user, _) in enumerate(rows)
    ]
    return {"user": [user for user, _ in rows], "item": [item for _, item in rows], "rating": ratings}


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Restrict the collector to the objects of the tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


ROWS = table()
PRIVATE = [(r, u) for r, u in zip(ROWS["rating"], ROWS["user"]) if u.startswith(SECRET)]
VALUES = np.array([rating for rating, _ in PRIVATE])
MARKS = [
    SECRET.encode(),
    *(VALUES.astype(kind)[place : place + 2].tobytes() for kind in ("f4", "f8") for place in range(0, 50, 5)),
]


def reachable(*roots: object) -> Iterator[object]:
    """Return every object that these refer to, without modules and their globals."""
    waiting, seen = list(roots), set()
    while waiting:
        each = waiting.pop()
        if type(each) in weakref.ProxyTypes or id(each) in seen:  # a proxy keeps nothing, and may be dead
            continue
        if isinstance(each, types.ModuleType | types.FrameType | type):
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, types.FunctionType):
            waiting += [each.__closure__, each.__defaults__, each.__kwdefaults__, vars(each)]
        elif isinstance(each, np.ndarray):
            waiting += [each.base, *(each.ravel().tolist() if each.dtype == object else ())]
        else:
            waiting += gc.get_referents(each)


def package() -> list[object]:
    """The globals of all modules of the package, and the attributes of its classes."""
    modules = [vars(module) for name, module in sys.modules.items() if name.partition(".")[0] == "hushrec"]
    classes = {each for module in modules for each in module.values() if isinstance(each, type)}
    return [*modules, *(dict(vars(each)) for each in classes if each.__module__.startswith("hushrec"))]


def holds_private(each: object) -> bool:
    """Return whether this object is, or spells, something private."""
    if isinstance(each, Ratings):
        return any(user.startswith(SECRET) for user in each.user_texts.to_pylist())
    if isinstance(each, Users | Bounded):
        return True
    if isinstance(each, np.ndarray) and each.dtype.kind == "f":
        return bool(np.isin(VALUES, each.astype(np.float64)).any())
    if isinstance(each, pa.Array | pa.ChunkedArray):
        return any(SECRET in str(value) for value in each.to_pylist())
    if isinstance(each, str):
        return SECRET in each
    return isinstance(each, bytes) and any(mark in each for mark in MARKS)


def private_ratings(folder=None) -> tuple[Ratings | Store, list[weakref.ref]]:
    timed = ROWS | {"time": list(range(len(ROWS["user"])))}
    ratings = Ratings.from_any(timed, Domain(ITEMS, (1, 5), max_ratings_per_user=6), columns={"time": "time"})
    if folder is not None:
        return Store.prepare(ratings, folder, ratings.domain, partitions=3, force=True), []
    return ratings, [weakref.ref(each) for each in (ratings, ratings.matrix, ratings.matrix.data)]


def check_public(*stays: object, dead: list[weakref.ref] = ()) -> None:
    store_files._mapped.cache_clear()  # open files of the curator's stores, which no public object refers to
    gc.collect()
    assert not [each() for each in dead if each() is not None], "the private ratings are kept alive"
    kept = {f"{type(each).__name__} {str(each)[:80]}" for each in reachable(*stays) if holds_private(each)}
    assert not kept, f"private rows within {kept}"
    for each in (each for each in stays if type(each) is not dict):
        try:
            content = pickle.dumps(each)
        except InputError:  # an accountant or a ledger, of which there must be no copy
            continue
        assert not any(mark in content for mark in MARKS), f"private rows in the pickle of {type(each)}"


def declared(case: Case) -> PublicRatings | None:
    models = case.estimator, getattr(case.estimator, "lists", case.estimator)
    fits = case.unit == "user" and all(model.scores in ("ratings", "likes") for model in models)
    return PublicRatings(donors=DONORS) if fits else None


def marked(case: Case) -> object:
    """Papers are tried in the long checks only."""
    of_a_paper = type(case.estimator).__module__.startswith("hushrec.papers")
    return pytest.param(case, marks=[pytest.mark.full] * of_a_paper, id=case.name)


@pytest.mark.parametrize("case", [*map(marked, CASES)])
def test_no_configuration_keeps_a_private_row(case: Case, tmp_path) -> None:
    """Trained in memory and from a store that is read in parts, with donors, then asked for lists."""
    for folder in (None, tmp_path / "store")[: 1 + case.estimator.supports_partitions]:
        accountant, public = Accountant(case.budget()), declared(case)
        rows, dead = private_ratings(folder)
        model = case.estimator.fit(rows, accountant, public=public)
        model.recommend_batch(rows if folder is None else rows.ratings(), n=2)
        domain = rows.domain
        del rows
        check_public(case.estimator, domain, accountant, public, model, dead=dead)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.estimator.supports_seasons], ids=lambda case: case.name
)
def test_no_week_keeps_a_private_row(case: Case) -> None:
    season, public = Season(case.budget()), declared(case)
    rows, dead = private_ratings()
    accountant = SeasonAccountant(season)
    model = case.estimator.fit(rows, accountant, public=public)
    following = SeasonAccountant.following(model.privacy)
    later = model.continue_training(rows, following, public=public)
    del rows
    check_public(case.estimator, season, accountant, following, public, model, later, dead=dead)


@pytest.mark.parametrize("name", ["both", "private-als", "private-eigenrec"])
def test_no_training_by_name_keeps_a_private_row(name: str, tmp_path) -> None:
    ledger, public = hushrec.Ledger(tmp_path / "ledger.sqlite", create=True), PublicRatings(donors=DONORS)
    accountant = Accountant(Budget(3, 1e-5), ledger=ledger, dataset="people")
    rows, dead = private_ratings()
    trained = named.train(name, rows, accountant, public=public, keep=lambda model: None)
    del rows
    check_public(ledger, accountant, public, trained, *package(), dead=dead)
    for file in tmp_path.iterdir():
        assert file.is_dir() or not any(mark in file.read_bytes() for mark in MARKS), file


SOURCES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "columns": lambda rows: (rows["user"], rows["item"], rows["rating"]),
    "mapping": dict,
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("several", [False, True])
def test_public_ratings_may_be_any_source_of_ratings(kind: str, several: bool) -> None:
    """The same model for any container of public rows, alone or in a list, of both populations."""
    donated = {
        name: [v for v, u in zip(column, ROWS["user"]) if u in DONORS] for name, column in ROWS.items()
    }

    def released(public: PublicRatings) -> tuple[object, bytes]:
        private = Ratings.from_any(ROWS, Domain(ITEMS, (1, 5)))
        private = private.rows(~np.isin(private.users, DONORS), keyed=True)
        model = hushrec.ItemBias().fit(private, Accountant(Budget(math_inf, 1e-6)), public=public)
        return model.judged, model.to_bytes()

    math_inf = float("inf")
    source = SOURCES[kind](donated)
    given = [source] if several else source
    wanted = Ratings.from_any(donated, Domain(ITEMS, (1, 5)))
    found = released(PublicRatings(same=given, external=given))
    assert found == released(PublicRatings(same=wanted, external=wanted)) and found[0]["donors"] == 4
