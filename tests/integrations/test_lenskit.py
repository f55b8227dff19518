"""The LensKit component under LensKit's own tests of components and scorers, on generated ratings."""

from pathlib import Path

import numpy as np
import pytest

import hushrec
from docs._ext.execute import run_page

pytest.importorskip("lenskit")
from lenskit import batch
from lenskit.data import from_interactions_df
from lenskit.pipeline import topn_pipeline
from lenskit.testing import BasicComponentTests, ScorerTests

from hushrec.integrations.lenskit import HushrecConfig, HushrecScorer

RATINGS = hushrec.realistic(200, 150, 9000, seed=0)
DECLARED = {"catalogue": list(range(150)), "rating_range": (1, 5), "epsilon": 20, "delta": 1e-6}


@pytest.fixture(scope="module")
def ml_ratings():
    cells = RATINGS.matrix.tocoo()
    frame = {"user_id": cells.coords[0], "item_id": cells.coords[1], "rating": cells.data}
    return pytest.importorskip("pandas").DataFrame(frame | {"timestamp": np.arange(len(cells.data))})


@pytest.fixture(scope="module")
def ml_ds(ml_ratings):
    return from_interactions_df(ml_ratings)


@pytest.fixture(scope="module")
def ml_100k(ml_ratings):
    return ml_ratings


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class TestOfLists(BasicComponentTests, ScorerTests):
    component = HushrecScorer
    config = HushrecConfig(**DECLARED)
    configs = [DECLARED]

    def test_lists_are_those_of_the_model(self, ml_ds, ml_ratings, tmp_path) -> None:
        """A batch gives the model's lists; the training is charged to the ledger once."""
        path = tmp_path / "ledger.sqlite"
        scorer = HushrecScorer(**DECLARED, ledger=path, dataset="lists")
        pipe = topn_pipeline(scorer, n=5)
        pipe.train(ml_ds)
        model = pipe.component("scorer").model_
        found = batch.recommend(pipe, [3, 4, 5])
        for (user,), items in found:
            rows = ml_ratings[ml_ratings["user_id"] == user]
            own = dict(zip(rows["item_id"].tolist(), rows["rating"].tolist()))
            assert items.ids().tolist() == [each.item for each in model.recommend(own, 5)]
        assert hushrec.Ledger(path).summary("lists", 1e-6).runs == 1


class TestOfRatings(ScorerTests):
    component = HushrecScorer
    config = HushrecConfig(**DECLARED, score="ratings", model="item-bias")


def test_what_is_not_declared_is_refused(ml_ds) -> None:
    for name in ("epsilon", "delta", "catalogue"):
        with pytest.raises(hushrec.InputError, match="needs epsilon, delta and the catalogue"):
            HushrecScorer(**{**DECLARED, name: None}).train(ml_ds)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_the_relation_reaches_the_plan_and_the_statement(relation: str, ml_ds) -> None:
    """The noise is that of a model which is trained with this relation outside of LensKit."""
    scorer = HushrecScorer(**DECLARED, relation=relation, model="item-bias")
    scorer.train(ml_ds)
    budget = hushrec.Budget(DECLARED["epsilon"], DECLARED["delta"], relation=relation)
    wanted = hushrec.ItemBias().fit(RATINGS, hushrec.Accountant(budget)).privacy
    told = scorer.model_.privacy
    assert told.budget == wanted.budget == budget
    assert told.releases == wanted.releases


def test_the_lines_of_the_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "guides" / "lenskit.md"
    ((_, printed),) = run_page(page.read_text(encoding="utf-8"))
    assert "epsilon = 5" in printed and "item_id" in printed
