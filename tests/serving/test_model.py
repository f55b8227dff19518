"""A trained model keeps the released values unchanged, and nothing else."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, ItemBias, Model, ModelFileError, Ratings, realistic
from hushrec.models import Both, PrivateALS, PrivateEigenRec
from hushrec.privacy import Season, SeasonAccountant
from hushrec.serving.item_rows import ItemRows
from hushrec.serving.modelfile import read
from hushrec.serving.recommend import Recommender
from tests.command_line import invoke

RATINGS = realistic(200, 30, 3000, seed=0)
ITEMS = RATINGS.domain.items
BOTH = Both(
    ratings=PrivateALS(rank=2, n_users=200), lists=PrivateEigenRec(rank=2, n_users=200), like_threshold=4.0
)
SEASON = Season(Budget(8.0, 1e-6))


@pytest.fixture(scope="module")
def weekly() -> Model:
    return BOTH.fit(RATINGS, SeasonAccountant(SEASON))


def parts(model: Model) -> dict[str, dict[str, np.ndarray]]:
    found = {"serve": dict(model.arrays), "state": dict(model.state)}
    if model.lists is not None:
        found |= {"lists": dict(model.lists.arrays), "state/lists": dict(model.lists.state)}
    return found


def same(found: Model, wanted: Model) -> None:
    there, here = parts(found), parts(wanted)
    for section, arrays in here.items():
        assert there[section].keys() == arrays.keys()
        for name, array in arrays.items():
            assert there[section][name].dtype == array.dtype and there[section][name].shape == array.shape
            assert np.asarray(there[section][name]).tobytes() == np.asarray(array).tobytes()
    assert (found.estimator, found.domain, found.privacy) == (wanted.estimator, wanted.domain, wanted.privacy)


def test_nothing_of_it_can_be_written_into(weekly) -> None:
    for section, arrays in parts(weekly).items():
        assert arrays, section
        for array in arrays.values():
            stored = (array.rows, array.items) if isinstance(array, ItemRows) else (array,)
            assert not any(part.flags.writeable for part in stored)
    given = {"center": np.array(3.0), "item_bias": np.zeros(30), "item_factors": np.zeros((30, 0))}
    model = Model(estimator=ItemBias(), domain=RATINGS.domain, arrays=given, privacy=weekly.privacy)
    given["item_bias"][0] = 9.0
    assert model.item_bias[0] == 0.0 and given["item_bias"].flags.writeable
    for mapping in (weekly.arrays, weekly.lists.arrays, weekly.state, weekly.lists.state):
        with pytest.raises(TypeError):
            mapping["center"] = np.array(1.0)


def test_it_comes_back_whole_from_a_file_a_copy_and_another_process(weekly, tmp_path) -> None:
    weekly.save(tmp_path / "m.hush")
    assert weekly.to_bytes() == (tmp_path / "m.hush").read_bytes()
    for found in (
        hushrec.load(tmp_path / "m.hush"),
        Model.from_bytes(weekly.to_bytes()),
        pickle.loads(pickle.dumps(weekly)),
        copy.deepcopy(weekly),
    ):
        same(found, weekly)
        assert found.to_bytes() == weekly.to_bytes()


def test_only_a_model_of_a_season_has_what_a_next_week_goes_on_from(weekly) -> None:
    once = BOTH.fit(RATINGS, Accountant(Budget(8.0, 1e-6)))
    assert weekly.state and not once.state and not Model.from_bytes(once.to_bytes()).state
    assert set(read(once.to_bytes()).header["sections"]) == {"serve", "lists"}
    assert set(read(weekly.to_bytes()).header["sections"]) == {"serve", "lists", "state"}
    assert not any("state" in name for name in read(once.to_bytes()).arrays)


def test_what_is_loaded_stays_as_it_was_when_the_file_is_written_into(tmp_path) -> None:
    model = ItemBias().fit(RATINGS, Accountant(Budget(5, 1e-6)))
    model.save(tmp_path / "m.hush")
    found, stored = hushrec.load(tmp_path / "m.hush"), read(tmp_path / "m.hush")
    with open(tmp_path / "m.hush", "r+b") as file:
        file.write(bytes((tmp_path / "m.hush").stat().st_size))
    same(found, model)
    assert stored.arrays["serve/item_bias"].tobytes() == model.item_bias.tobytes()


def test_a_file_whose_catalogue_is_damaged_is_called_damaged(tmp_path) -> None:
    """Calling it one of another version would send people to look for that."""
    model = ItemBias().fit(RATINGS, Accountant(Budget(5, 1e-6)))
    content = bytearray(model.to_bytes())
    text = read(bytes(content)).arrays["catalogue/text"].tobytes()
    content[content.index(text)] ^= 1
    (tmp_path / "m.hush").write_bytes(content)
    with pytest.raises(ModelFileError, match="is damaged or cut short"):
        hushrec.load(tmp_path / "m.hush")


@pytest.mark.parametrize("int8", [False, True])
def test_a_model_that_learned_no_taste_stores_no_zeros(int8: bool, tmp_path) -> None:
    """As lists, predictions, vectors and explanations of the same model with all of its zeros."""
    ratings = realistic(300, 4000, 3000, seed=1)
    domain, items = ratings.domain, ratings.domain.items
    model = PrivateEigenRec(rank=60, n_users=300).fit(ratings, Accountant(Budget(0.1, 1e-6)))
    nothing = {"item_factors": np.zeros((4000, 60), np.float32), "directions": np.int64(0)}
    model = replace(model, arrays={**model.arrays, **nothing})
    model.save(tmp_path / "m.hush", int8=int8)
    assert (tmp_path / "m.hush").stat().st_size < 60 * domain.n_items + 10_000  # zeros alone are 240 an item
    read = hushrec.load(tmp_path / "m.hush")
    assert read.to_bytes(int8=int8) == (tmp_path / "m.hush").read_bytes()
    whole = Recommender(model.estimator, domain, {**model.arrays, "item_factors": model.item_factors})
    history = {items[3]: 5.0, items[7]: 4.0}
    assert whole.item_factors.shape == model.item_factors.shape and len(model.item_factors) == domain.n_items
    for other in (model, read):
        assert other.recommend(history, 50) == whole.recommend(history, 50)
        assert other.recommend_batch(ratings, 5).equals(whole.recommend_batch(ratings, 5))
        assert other.predict(history, items[:9]) == whole.predict(history, items[:9])
        assert other.explain(history, items[5]) == whole.explain(history, items[5])
        products = other.item_vectors() @ other.query(history)
        assert [items[place] for place in np.argsort(-products, kind="stable")[:5]] == [
            each.item for each in whole.recommend(history, 5, exclude_seen=False)
        ]


def test_a_model_begins_with_its_promise() -> None:
    """Epsilon with its unit, relation and delta, before anything else; without privacy that comes first."""
    private = ItemBias().fit(RATINGS, Accountant(Budget(5.0, 1e-6)))
    promise = "epsilon = 5 at delta = 1e-06 (unit: user, relation: add-remove)"
    assert repr(private).startswith(f"Model({promise}, ItemBias(")
    public = ItemBias().fit(RATINGS, Accountant(Budget(5.0, 1e-6), data_is_public=True))
    assert repr(public).startswith(f"Model(NOT PRIVATE, {promise}, ")


@pytest.mark.parametrize("ids", [range(5, 9), [f"0{user}" for user in range(4)]])
def test_ids_come_back_as_they_went_in(ids, tmp_path, monkeypatch) -> None:
    """Of users and of items, in lists of all kinds and in a table of predictions."""
    monkeypatch.chdir(tmp_path)
    domain = Domain(range(10, 16), rating_range=(1, 5))
    users = pa.array([user for user in ids for _ in range(3)])
    rows = pa.table({"user": users, "item": [10, 11, 12] * 4, "rating": [1.0, 2.0, 5.0] * 4})
    ratings = Ratings.from_any(rows, domain)
    model = ItemBias().fit(ratings, Accountant(Budget(5.0, 1e-6)))
    found = model.recommend({10: 5.0}, 9)
    assert {each.item for each in found} == set(range(11, 16)) and type(found[0].item) is int
    table = model.recommend_batch(ratings, 2)
    assert set(table["user"].to_pylist()) == set(ids)
    assert table["item"].type == pa.int64() and hasattr(found[0], "_fields")
    (path,) = hushrec.write_lists(model, ratings, "lists", 2)
    assert pq.read_table(path)["user"].to_pylist() == table["user"].to_pylist()
    pq.write_table(rows, "rows.parquet")
    model.save("m.hush")
    assert invoke("predict", "m.hush", "rows.parquet", "rows.parquet", "--out", "p.parquet").exit_code == 0
    predicted = pq.read_table("p.parquet")
    assert (
        predicted.drop_columns(["prediction", "note"]).to_pydict() == rows.drop_columns("rating").to_pydict()
    )
