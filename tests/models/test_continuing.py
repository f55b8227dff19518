"""Trainings that go on from week to week, with users and items that come and go."""

import json
from dataclasses import replace

import numpy as np
import pytest

import hushrec
from hushrec.data import Domain, Ratings, Store, realistic, split_by_time
from hushrec.errors import BudgetError, InputError, ModelFileError
from hushrec.models import Both, GlobalMean, ItemBias, Popular, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Budget, Ledger, Season, SeasonAccountant
from hushrec.privacy.testing import SeededNoise
from hushrec.serving import modelfile
from hushrec.serving.model import Model, load
from hushrec.serving.modelfile import Expected, encode, read
from hushrec.serving.new_items import moved, rows_moved
from hushrec.serving.stored_arrays import SERVED
from hushrec.training.gate import LocalGate
from tests.models.cases import InformedALS
from tests.opening import opened

ITEMS, BUDGET = 40, Budget(8.0, 1e-6)
SEASON = Season(BUDGET)
DATA = realistic(300, ITEMS, 6000, seed=3)
DATA = replace(DATA, times=np.arange(DATA.n_ratings) * 7919 % 1000)
ALS = PrivateALS(rank=3, iterations=2, n_users=300)
MODELS = {
    "private-als": ALS,
    "private-als, biases alone": PrivateALS(n_users=300),
    "private-als, item features": InformedALS(rank=3, iterations=2, n_users=300),
    "private-als, features and biases": InformedALS(n_users=300),
    "private-als, users counted": PrivateALS(rank=2, features=False, iterations=1, bias_rounds=0),
    "item-bias": ItemBias(),
    "popular": Popular(),
    "private-eigenrec": PrivateEigenRec(rank=3, n_users=300),
    "private-eigenrec, popularity alone": PrivateEigenRec(rank=0),
    "private-eigenrec, pairs": PrivateEigenRec(rank=3, pairs=True, n_users=300),
    "both": Both(ratings=ALS, lists=PrivateEigenRec(rank=3), like_threshold=4.0),
}
everywhere = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def users(*parts):
    """The rows of some users of DATA, each a range, in every week other ones."""
    kept = np.zeros(DATA.n_users, dtype=bool)
    for begin, end in parts:
        kept[begin:end] = True
    return DATA.rows(kept, keyed=True)


#: Four weeks in which users come and go.
WEEKS = [users((0, 150)), users((0, 200)), users((50, 300)), users((100, 300))]


@pytest.mark.true("A1")
@everywhere
def test_one_user_moves_a_week_from_forged_numbers_by_no_more(model):
    """Every array of a model file, edited: the server may give up, and then does so for any users."""
    first = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    plan, last = model.weekly_releases(BUDGET, DATA.domain, 1 / 6), moved(first, np.arange(ITEMS))
    few = users((0, 12))
    hostile = with_user(few, {j: 5.0 if j % 2 else 1.0 for j in range(ITEMS)})

    def week(rows, forged, released=None):
        known = {} if released is None else released
        raw, found = {}, {}

        class Exact(LocalGate):
            def release(self, label, bounded):
                planned = self._as_planned(label, bounded)
                raw[label] = np.asarray(opened(bounded), dtype=np.float64)
                found[label] = raw[label] * bounded.entry_scale / planned.sensitivity
                return known.get(label, raw[label]).copy()

        gate, failed = Exact(Accountant(BUDGET, noise=SeededNoise(0)), plan), None
        with np.errstate(all="ignore"):
            try:
                model.week(model.users(rows), gate, forged)
            except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
                failed = str(error)
        return raw, found, failed

    reached: set[str] = set()
    for name, array, put in each_of(last):
        for bad in (np.nan, -np.inf, 1e300) if np.asarray(array).dtype.kind == "f" else ():
            forged = np.array(array)
            with np.errstate(over="ignore"):
                forged.reshape(-1)[:1] = bad
            released, base, failed = week(few, put(forged))
            _, found, again = week(hostile, put(forged), released)
            assert again == failed and found.keys() == base.keys()
            reached |= base.keys()
            for label in base:
                assert np.linalg.norm(found[label] - base[label]) <= 1 + 1e-9, (name, bad, label)
    assert reached == {release.label for release in plan.releases}


def each_of(parts):
    """Every array of a model with its name, and the model with another in its place."""
    for part in ("serve", "state"):
        for name, array in getattr(parts, part).items():

            def put(new, part=part, name=name):
                return replace(parts, **{part: getattr(parts, part) | {name: new}})

            yield f"{part}/{name}", array, put
    if parts.lists is not None:
        for name, array, put in each_of(parts.lists):
            yield f"lists/{name}", array, lambda new, put=put: replace(parts, lists=put(new))


@pytest.mark.true("A1")
@everywhere
def test_a_file_of_numbers_that_no_training_releases_is_refused(model, tmp_path):
    first = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    stored, path = read(first.to_bytes()), tmp_path / "forged.hush"
    arrays = {
        name: stored.arrays[name] for name in stored.arrays if not name.startswith(("padding", "digest"))
    }
    at_least_0 = (
        "variance",
        "regularization",
        "precision",
        "history_weight",
        "numbers",
        "users",
        "seen",
        "first",
    )
    for name in [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]:
        for bad in (np.nan, np.inf, *([-1.0] if name.endswith(at_least_0) else [])):
            forged = np.array(arrays[name])
            forged.reshape(-1)[-1] = bad
            path.write_bytes(b"".join(encode(stored.header, arrays | {name: forged})))
            with pytest.raises(ModelFileError, match=f"holds what no training releases .array '{name}'"):
                hushrec.load(path)
        path.write_bytes(b"".join(encode(stored.header, arrays | {name: arrays[name][None]})))
        with pytest.raises(ModelFileError, match="does not fit"):
            hushrec.load(path)


def held(trained):
    """Arrays and state of a model, and of the one that recommends in its place."""
    return [each for model in (trained, trained.lists) if model for each in (model.arrays, model.state)]


def with_user(rows, ratings):
    """Return the rows with one user more."""
    names = list(rows.domain.items)
    hers = Ratings.from_any(
        (["zz"] * len(ratings), [names[j] for j in ratings], list(ratings.values())), rows.domain
    )
    return rows.union(hers)


# results of a week


@everywhere
@pytest.mark.parametrize("rows", [WEEKS[1], users((0, 1)), users()], ids=["many", "one", "nobody"])
def test_a_store_gives_the_week_of_the_memory(model, rows, tmp_path):
    """The rows of a store, after a model that was read from its file.

    Killed: the announced items of a week change later; an empty partition has sums of another type and
    ends the week.
    """
    first = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    store = Store.prepare(rows, tmp_path / "week-1.store", DATA.domain, partitions=3)
    first.save(tmp_path / "week-0.hush")
    one, other = (
        model.continue_training(each, SeasonAccountant.following(model.privacy, noise=SeededNoise(2)))
        for model, each in ((first, rows), (hushrec.load(tmp_path / "week-0.hush"), store))
    )
    for found, expected in zip(held(one), held(other), strict=True):
        assert found.keys() == expected.keys() and all(
            np.array_equal(found[name], expected[name]) for name in expected
        )


@pytest.mark.true("A1")
@pytest.mark.parametrize("change", ["array", "state", "setting", "item", "range", "releases"])
def test_a_week_goes_on_from_the_model_that_the_last_one_wrote(change, tmp_path):
    """An edited file with right digests is refused before a charge; the unedited file continues."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_season("default", SEASON)
    first = ALS.fit(WEEKS[0], SeasonAccountant(SEASON, ledger=ledger))
    file = tmp_path / "first.hush"
    first.save(file)
    stored = modelfile.read(file)
    header = json.loads(json.dumps(stored.header))
    arrays = {
        name: np.array(each)
        for name, each in stored.arrays.items()
        if not name.startswith(("padding", "digest"))
    }
    if change in ("array", "state"):
        name = "serve/item_bias" if change == "array" else next(n for n in arrays if n.startswith("state/"))
        arrays[name].flat[0] += 1e-3
    elif change == "item":
        arrays["catalogue/text"][-1] ^= 1
    elif change == "setting":
        header["sections"]["serve"]["settings"]["rank"] += 1
    elif change == "range":
        header["domain"]["rating_range"] = [1.0, 50.0]
    else:
        header["privacy"]["releases"].pop()
    edited = tmp_path / "edited.hush"
    modelfile.write_atomically(edited, modelfile.encode(header, arrays))
    model = load(edited)
    accountant = SeasonAccountant.following(model.privacy, ledger=ledger)
    with pytest.raises(InputError, match="is not the one that week 0 of season '1' wrote"):
        model.continue_training(WEEKS[1], accountant)
    assert ledger.season("default", "1").begun == 1
    again = load(file)
    second = again.continue_training(WEEKS[1], SeasonAccountant.following(again.privacy, ledger=ledger))
    third = second.continue_training(WEEKS[2], SeasonAccountant.following(second.privacy, ledger=ledger))
    assert third.privacy.week.number == 2


def test_likes_are_no_ratings_from_0_to_1():
    """Both have the range (0, 1)."""
    over_range = Domain(DATA.domain.items, rating_range=(0, 1))
    zeros = Ratings.from_any((["u"], [DATA.domain.items[0]], [1.0]), over_range)
    likes = Ratings.from_any(DATA.to_arrow(), Domain(DATA.domain.items, likes=True), implicit=True)
    first = ItemBias().fit(zeros, SeasonAccountant(SEASON, noise=SeededNoise(1)))
    accountant = SeasonAccountant.following(first.privacy, noise=SeededNoise(2))
    with pytest.raises(InputError, match="keeps its range"):
        first.continue_training(likes, accountant)
    assert accountant.releases == ()


def test_what_a_new_item_begins_with():
    """Rows of items over another catalogue; rows of new items are zero."""
    position = np.array([2, -1, 0])
    arrays = {name: np.array([[5.0], [6.0], [7.0]]) for name in ("item_x", "supported")}
    arrays_of_mine = {"center": np.ones(3), "weight": np.arange(1.0, 4)}
    moved = rows_moved(arrays | arrays_of_mine, position, SERVED | {"weight": Expected("f", ("items",))})
    for name in arrays:
        assert moved[name].tolist() == [[7.0], [0.0], [5.0]]
    assert moved["center"].tolist() == [1, 1, 1] and moved["weight"].tolist() == [3, 0, 1]


# a changing catalogue


def grown(domain, extra, dropped=0):
    return Domain((*domain.items[dropped:], *(f"new{n}" for n in range(extra))), rating_range=(1, 5))


def over(rows, domain):
    """The same ratings over another catalogue."""
    table = rows.to_arrow()
    return Ratings.from_any(table, domain, columns={"time": True})


@everywhere
def test_the_catalogue_grows_and_shrinks_by_declaration(model):
    first = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    wider = grown(DATA.domain, 3)
    rows = over(WEEKS[1], wider)
    second = first.continue_training(rows, SeasonAccountant.following(first.privacy, noise=SeededNoise(2)))
    assert second.domain.n_items == ITEMS + 3 and second.item_bias.shape == (ITEMS + 3,)
    smaller = grown(DATA.domain, 3, dropped=5)
    rows = over(WEEKS[2], smaller)
    accountant = SeasonAccountant.following(second.privacy, noise=SeededNoise(3))
    with pytest.raises(InputError, match="lacks 5 of the model's 43 items"):
        second.continue_training(rows, accountant)
    assert accountant.releases == ()
    if getattr(model, "pairs", False):  # its item matrix is of the same items all season
        with pytest.raises(InputError, match="cannot drop a learned item within a season"):
            second.continue_training(rows, accountant, drop_missing_items=True)
        assert accountant.releases == ()
        return
    third = second.continue_training(rows, accountant, drop_missing_items=True)
    assert third.domain.items == smaller.items and np.isfinite(third.item_bias).all()
    # state moves with its item: with hardly any budget nothing else changes
    tiny = Season(BUDGET)
    first = model.fit(WEEKS[0], SeasonAccountant(tiny, noise=SeededNoise(1)))
    moved = first.continue_training(
        over(WEEKS[0], smaller),
        SeasonAccountant.following(first.privacy, noise=SeededNoise(2)),
        drop_missing_items=True,
    )
    if first.item_bias.any():
        assert np.corrcoef(moved.item_bias[: ITEMS - 5], first.item_bias[5:])[0, 1] > 0.9


@pytest.mark.true("A6")
@pytest.mark.parametrize("model", [MODELS["private-eigenrec"], MODELS["both"]], ids=lambda model: model.name)
def test_a_catalogue_as_small_as_the_rank_ends_no_week_after_a_charge(model):
    """The week has at most as many directions as fit the catalogue, and its file can be read."""
    first = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(0)))
    for n_items in (1, 3, 4):
        domain = Domain(DATA.domain.items[:n_items], rating_range=(1, 5))
        trained, lister = first, model.lists if model.name == "both" else model
        for week, rows in enumerate(WEEKS[1:3], 1):
            rows = Ratings.from_any(rows.to_arrow(), domain)
            accountant = SeasonAccountant.following(trained.privacy, noise=SeededNoise(week))
            trained = trained.continue_training(rows, accountant, drop_missing_items=True)
            trained = Model.from_bytes(trained.to_bytes())
            rows_there, directions = (trained.lists or trained).item_factors.shape
            assert rows_there == n_items
            assert directions <= min(lister.rank, n_items - 1)
    few = Ratings.from_any(WEEKS[0].to_arrow(), Domain(DATA.domain.items[:2], rating_range=(1, 5)))
    week = model.fit(few, SeasonAccountant(SEASON, noise=SeededNoise(0)))
    week = week.continue_training(few, SeasonAccountant.following(week.privacy, noise=SeededNoise(1)))
    assert week.privacy.week.number == 1  # the rank of a first training follows from its catalogue


def test_a_window_is_declared_and_needs_times():
    """Oracle: the split by time. Killed: a window that ends with the data."""
    first = ALS.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    with pytest.raises(InputError, match="no times"):
        first.continue_training(
            replace(WEEKS[1], times=None),
            SeasonAccountant.following(first.privacy, noise=SeededNoise(2)),
            since="2024-01-01",
        )
    rng = np.random.default_rng(1)
    table = WEEKS[1].to_arrow()
    columns = [table.column(name).to_pylist() for name in table.column_names[:3]]
    times = rng.integers(1_600_000_000, 1_700_000_000, len(columns[0])).tolist()
    rows = Ratings.from_any((*columns, times), DATA.domain)
    models = [
        first.continue_training(
            each, SeasonAccountant.following(first.privacy, noise=SeededNoise(2)), since=date
        )
        for each, date in ((rows, 1_650_000_000), (split_by_time(rows, 1_650_000_000)[1], None))
    ]
    assert np.array_equal(models[0].item_bias, models[1].item_bias)
    assert any("since 1650000000" in note for note in models[0].privacy.notes)
    assert not any("since" in note for note in models[1].privacy.notes)


# files and refusals


def test_bad_input_spends_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_season("default", SEASON)
    first = ALS.fit(WEEKS[0], SeasonAccountant(SEASON, ledger=ledger))
    spent = ledger.summary("default", 1e-6).charges
    accountant = SeasonAccountant.following(first.privacy, ledger=ledger)
    likes = Ratings.from_any(DATA.to_arrow(), Domain(DATA.domain.items, likes=True), implicit=True)
    wrong = [
        (likes, accountant, "keeps its range"),
        (WEEKS[1], Accountant(BUDGET), "must be SeasonAccountant"),
        (WEEKS[1], SeasonAccountant(SEASON, ledger=ledger), "not of the week after"),
        (WEEKS[1].where(np.ones(WEEKS[1].n_ratings, bool)), accountant, "keyed"),
        ("ratings.csv", accountant, "must be Ratings"),
    ]
    for rows, given, words in wrong:
        with pytest.raises(InputError, match=words):
            first.continue_training(rows, given)
    with pytest.raises(InputError, match="does not support seasons"):
        GlobalMean().fit(WEEKS[0], SeasonAccountant(Season(BUDGET, name="9")))
    with pytest.raises(InputError, match="both does not support seasons"):  # one of its parts cannot
        Both(ratings=GlobalMean()).fit(WEEKS[0], SeasonAccountant(Season(BUDGET, name="9")))
    with pytest.raises(InputError, match="global-mean does not support seasons"):
        GlobalMean().fit(WEEKS[0], Accountant(BUDGET)).continue_training(WEEKS[1], accountant)
    without = Model(
        estimator=first.estimator, domain=first.domain, arrays=dict(first.arrays), privacy=first.privacy
    )
    with pytest.raises(
        InputError, match="holds no state to continue; train the season's first model again[.]$"
    ):
        without.continue_training(WEEKS[1], accountant)
    assert ledger.summary("default", 1e-6).charges == spent
    second = first.continue_training(WEEKS[1], accountant)
    with pytest.raises(BudgetError, match="was run already"):
        first.continue_training(WEEKS[1], SeasonAccountant.following(first.privacy, ledger=ledger))
    ledger.close_season("default", "1")
    with pytest.raises(BudgetError, match="was closed"):
        second.continue_training(WEEKS[1], SeasonAccountant.following(second.privacy, ledger=ledger))
    made = len(first.privacy.releases) + len(second.privacy.releases)
    assert ledger.summary("default", 1e-6).charges == made


@pytest.mark.parametrize("name", ["private-eigenrec", "private-eigenrec, pairs"])
@pytest.mark.parametrize("n_items", [1, ITEMS])
def test_a_week_makes_every_release_that_it_is_charged_for(name, n_items):
    """A catalogue that grew from one item, and a season of item pairs, leave no charge without a release."""
    if n_items == 1 and name.endswith("pairs"):
        pytest.skip("one item has no pairs")
    small = Domain(DATA.domain.items[:n_items], DATA.domain.rating_range)
    rows = [(f"u{u}", small.items[0], 5.0) for u in range(100)]
    given = Ratings.from_any(tuple(map(list, zip(*rows))), small) if n_items == 1 else DATA
    first = MODELS[name].fit(given, SeasonAccountant(SEASON, noise=SeededNoise(1)))
    plan, made = MODELS[name].weekly_releases(BUDGET, DATA.domain, 1 / 6), []

    class Made(LocalGate):
        def release(self, label, bounded):
            made.append(label)
            return super().release(label, bounded)

    last = moved(first, np.r_[0, np.full(ITEMS - 1, -1)] if n_items == 1 else np.arange(ITEMS))
    gate = Made(Accountant(BUDGET, noise=SeededNoise(0)), plan)
    MODELS[name].week(MODELS[name].users(DATA), gate, last)
    assert made == [release.label for release in plan.releases]


def test_a_season_of_one_item_is_planned_so_that_its_catalogue_can_grow():
    """Item pairs were planned for it, and a later week was then refused after its first charges."""
    budget, small = Budget(50.0, 1e-6), Domain(DATA.domain.items[:1], DATA.domain.rating_range)
    season, wider = Season(budget), Domain(DATA.domain.items[:3], DATA.domain.rating_range)
    rows = [Ratings.from_any(DATA.to_arrow(), domain) for domain in (small, wider)]
    for cls in (PrivateEigenRec, Both):
        accountant = SeasonAccountant(season, noise=SeededNoise(0))
        model = cls.planned(budget, small, 1000).set_params(planned_for=None).fit(rows[0], accountant)
        following = SeasonAccountant.following(model.privacy, noise=SeededNoise(1))
        assert model.continue_training(rows[1], following).privacy.week.number == 1


@pytest.mark.parametrize("model", [PrivateEigenRec(pairs=True), Both(lists=PrivateEigenRec(pairs=True))])
def test_declared_pairs_of_one_item_are_refused_a_larger_catalogue_before_a_charge(model, tmp_path):
    ledger, season = Ledger(tmp_path / "ledger.sqlite"), Season(Budget(50.0, 1e-6))
    ledger.open_season("default", season)
    rows = [
        Ratings.from_any(DATA.to_arrow(), Domain(DATA.domain.items[:n_items], DATA.domain.rating_range))
        for n_items in (1, 3)
    ]
    trained = model.fit(rows[0], SeasonAccountant(season, ledger=ledger))
    with pytest.raises(InputError, match="began with one item.*Nothing was charged"):
        trained.continue_training(rows[1], SeasonAccountant.following(trained.privacy, ledger=ledger))
    assert ledger.season("default", "1").begun == 1
    following = SeasonAccountant.following(trained.privacy, ledger=ledger)
    assert trained.continue_training(rows[0], following).privacy.week.number == 1


def test_far_too_many_declared_users_leave_models_that_can_be_read():
    """The residual variance then falls without end. Killed: variances that rounding made negative."""
    model = replace(ALS, n_users=2**40)
    trained = model.fit(WEEKS[0], SeasonAccountant(SEASON, noise=SeededNoise(1)))
    for number, rows in enumerate(WEEKS[1:], 2):
        trained = Model.from_bytes(trained.to_bytes())
        accountant = SeasonAccountant.following(trained.privacy, noise=SeededNoise(number))
        trained = trained.continue_training(rows, accountant)
    assert all((array >= 0).all() for name, array in trained.state.items() if name.endswith("variance"))
