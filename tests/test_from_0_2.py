"""What 0.2.0 wrote (by `tests/from_0_2`) works, or is refused in a sentence that says what to do."""

import json
import shutil

import pytest

from hushrec import Accountant, Billboard, Budget, ItemBias, Ledger, SeasonAccountant, Store
from hushrec.errors import BudgetError, InputError
from hushrec.registry import ESTIMATORS
from hushrec.serving.modelfile import read
from tests.from_0_2.__main__ import ALS, FOLDER, domains, rated, table

pytestmark = pytest.mark.true("0.2")

ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))
DOMAIN = domains()["ratings"]
#: Settings that 0.2 did not have.
NEW = {"features_share"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    shutil.unpack_archive(FOLDER / "written.zip", folder)
    return folder


@pytest.fixture
def ledger(written, tmp_path):
    shutil.copy(written / "ledger.sqlite", tmp_path)
    shutil.copytree(written / "ledger.sqlite.trainings", tmp_path / "ledger.sqlite.trainings")
    return Ledger(tmp_path / "ledger.sqlite", create=False)


def test_there_is_a_model_of_each_kind() -> None:
    assert ANSWERS["version"] == "0.2.0"
    assert {name.split(" of ")[0] for name in ANSWERS["models"]} == {*ESTIMATORS}


@pytest.mark.parametrize("name", ANSWERS["models"])
def test_a_model_tells_what_it_told(written, name: str) -> None:
    told = ANSWERS["models"][name]
    model = Billboard.load(written / f"{name}.hush")
    items, history = model.domain.items, told["history"]
    if isinstance(told["predicted"], str):  # it was refused
        with pytest.raises(InputError):
            model.predict(history, items)
    else:
        assert model.predict(history, items) == pytest.approx(told["predicted"], rel=1e-6, abs=1e-6)
    assert [item for item, *_ in model.recommend(history, len(items))] == told["list"]
    assert model.privacy.version == "0.2.0" and model.privacy.text()
    again = read(model.to_bytes()), read(written / f"{name}.hush")
    assert Billboard.from_bytes(model.to_bytes()).domain == model.domain
    now, then = (each.header["sections"] for each in again)
    for section in now.values():
        section["settings"] = {key: each for key, each in section["settings"].items() if key not in NEW}
    assert json.dumps(now) == json.dumps(then)  # settings by the same names, in the same order


def test_a_store_is_read_and_trained_on(written) -> None:
    store = Store(written / "store", DOMAIN)
    store.verify()
    users, items, ratings = table()
    cells = store.ratings().matrix.tocoo()
    assert sorted(cells.data.tolist()) == sorted(ratings) and store.n_users == len(set(users))
    ItemBias().fit(store, Accountant(Budget(1.0, 1e-6)))


def test_a_ledger_counts_what_it_counted(ledger) -> None:
    """One more epsilon fits the budget of 8 beside the season, a larger one does not."""
    for name, told in ANSWERS["ledger"].items():
        found = ledger.summary(name, 1e-6).to_dict()
        assert {word: found[word] for word in told} == told
    ItemBias().fit(rated(DOMAIN), Accountant(Budget(1.0, 1e-6), ledger=ledger, dataset="shop"))
    assert ledger.summary("shop").charges == ANSWERS["ledger"]["shop"]["charges"] + 1
    with pytest.raises(BudgetError, match="budget of"):
        ItemBias().fit(rated(DOMAIN), Accountant(Budget(7.9, 1e-6), ledger=ledger, dataset="shop"))


def test_a_season_goes_on_to_its_end(written, ledger) -> None:
    model = Billboard.load(written / "week-1.hush")
    for week in (2, 3):
        following = SeasonAccountant.following(model.privacy, ledger=ledger)
        model = model.continue_training(rated(DOMAIN), following)
        assert model.privacy.week.number == week and model.privacy.private
    with pytest.raises((BudgetError, InputError), match="4 weeks|season"):
        model.continue_training(rated(DOMAIN), SeasonAccountant.following(model.privacy, ledger=ledger))


def test_a_training_that_was_cut_off_is_finished_there_or_begun_anew(ledger) -> None:
    """No version goes on with what another one began: what it would compute next may be something else."""

    def train(**options):
        return ALS.fit(rated(DOMAIN), Accountant(Budget(3.0, 1e-6), ledger=ledger, dataset="cut", **options))

    with pytest.raises(
        InputError, match=r"begun with hushrec 0\.2\.0.* finish it with that version, or train anew"
    ):
        train(resume=True)
    before = ledger.summary("cut", 1e-6)
    train()
    after = ledger.summary("cut", 1e-6)
    assert (before.runs, after.runs) == (1, 2)
    assert after.mu**2 == pytest.approx(before.mu**2 + Budget(3.0, 1e-6).mu ** 2)
