"""Lists that follow the moment: against lists of both histories, and orders of every kind."""

import contextlib
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import hushrec
from hushrec import Accountant, Budget, Domain, Ratings
from hushrec.errors import InputError
from hushrec.privacy.testing import SeededNoise
from tests.command_line import invoke

RATINGS = hushrec.realistic(400, 40, 6000, seed=0)
ITEMS = list(RATINGS.domain.items)
NO_PRIVACY = Budget(math.inf, 1e-6)
MODELS = {
    "likes": hushrec.EASE(like_threshold=4.0).fit(RATINGS, Accountant(NO_PRIVACY)),
    "ratings": hushrec.ALS(rank=3).fit(RATINGS, Accountant(NO_PRIVACY)),
    "private": hushrec.PrivateEigenRec.of(rank=3, like_threshold=4.0, n_users=4000).fit(
        hushrec.realistic(4000, 40, 60_000, seed=0), Accountant(Budget(20, 1e-6), noise=SeededNoise(0))
    ),
}
HISTORY = [(ITEMS[place], 5.0 - place % 3) for place in (7, 31, 2, 19, 38, 11, 4, 25, 13)]


@pytest.mark.parametrize("name", MODELS)
def test_the_latest_ratings_count_most(name: str) -> None:
    """The mean of the usual scores from the latest 1, 2, 4, 8, 16 and 32 ratings and from all.

    Where few likes usually count less, a short span counts fully.
    """
    model = MODELS[name]
    fully = replace(model, arrays={**model.arrays, "history_prior": np.float64(0.0)})

    def scores(history) -> np.ndarray:
        score = {each.item: each.score for each in fully.recommend(history, 40, exclude_seen=False)}
        return np.array([score[item] for item in ITEMS])

    wanted = np.zeros(40)
    for span in (1, 2, 4, 8, 16, 32, 9):
        latest = HISTORY[-span:]
        wanted += scores(latest) / 7
    found = model.recommend(HISTORY, 40, next=True)
    assert {each.item for each in found} == set(ITEMS) - {item for item, _ in HISTORY}
    expected = [wanted[ITEMS.index(each.item)] for each in found]
    np.testing.assert_allclose([each.score for each in found], expected, atol=1e-9)
    assert expected == sorted(expected, reverse=True)


@pytest.mark.true("E6")
def test_orders_by_place_by_time_and_by_the_catalogue_agree() -> None:
    """A row without a time is the oldest, the latest rating of an item counts, and of one time all alike."""
    model = MODELS["likes"]
    wanted = model.recommend(HISTORY, 9, next=True)
    timed = [(item, rating, 100 + place) for place, (item, rating) in enumerate(HISTORY)]
    dates = [(item, rating, f"2026-01-{place + 1:02}") for place, (item, rating) in enumerate(HISTORY)]
    unknown = [*timed[5:], *[(item, rating, None) for item, rating, _ in timed[:1]], *timed[1:5]]
    once_more = [(HISTORY[0][0], 1.0, 3), *timed, (HISTORY[8][0], 1.0, 2)]
    for history in (timed, timed[::-1], dates[::-1], unknown, once_more):
        assert model.recommend(history, 9, next=True) == wanted
    usual = dict(each[:2] for each in model.recommend(dict(HISTORY), 9))
    for time in (7, None, float("nan"), True, "soon"):
        tied = [(item, rating, time) for item, rating in HISTORY]
        with contextlib.nullcontext() if time == 7 else pytest.warns(UserWarning, match="No time of this"):
            found = model.recommend(tied, 9, next=True)
        assert dict(each[:2] for each in found) == pytest.approx(usual)
        assert [each.item for each in found] == list(usual) != [each.item for each in wanted]
    baskets = [(item, rating, place // 3) for place, (item, rating) in enumerate(HISTORY)]
    spans = [HISTORY[-3:]] * 2 + [HISTORY[-6:]] + [HISTORY] * 4  # the latest 1, 2, 4, ... and their baskets
    scores = [dict(each[:2] for each in model.recommend(span, 40, exclude_seen=False)) for span in spans]
    for item, score, _ in model.recommend(baskets, 40, next=True):
        assert score == pytest.approx(np.mean([span[item] for span in scores]))
    assert model.recommend(timed, 9) == model.recommend(dict(HISTORY), 9)


def test_a_row_that_is_no_like_gives_its_item_no_later_time() -> None:
    """As in the browser, which skips it."""
    rows = RATINGS.matrix.tocoo()
    domain = Domain(ITEMS, likes=True)
    likes = Ratings.from_any((rows.row, [ITEMS[column] for column in rows.col]), domain)
    model = hushrec.EASE().fit(likes, Accountant(NO_PRIVACY))
    first = (HISTORY[0][0], 1, 1)
    history = [first, *((item, 1, 2 + place) for place, (item, _) in enumerate(HISTORY[1:]))]
    wanted = model.recommend(history, 9, next=True)
    assert model.recommend([*history, (HISTORY[0][0], 0, 100)], 9, next=True) == wanted
    assert model.recommend([*history, (HISTORY[0][0], 1, 100)], 9, next=True) != wanted


def test_many_users_get_what_each_gets_alone(tmp_path) -> None:
    rng = np.random.default_rng(1)
    rows = [
        (user, ITEMS[place], float(rng.integers(1, 6)), None if rng.random() < 0.2 else int(rng.integers(9)))
        for user in range(30)
        for place in rng.permutation(40)[: rng.integers(0, 15)]
    ]
    columns = [list(column) for column in zip(*rows)]
    ratings = Ratings.from_any(tuple(columns), RATINGS.domain)
    for name, model in MODELS.items():
        table = model.recommend_batch(ratings, 6, next=True).to_pylist()
        for user in {row[0] for row in rows}:
            own = [(item, rating, time) for who, item, rating, time in rows if who == user]
            mine = [(row["item"], row["score"]) for row in table if row["user"] == str(user)]
            alone = [each[:2] for each in model.recommend(own, 6, next=True)]
            assert [item for item, _ in mine] == [item for item, _ in alone], name
            np.testing.assert_allclose([score for _, score in mine], [score for _, score in alone])
    later = tmp_path / "lists"
    assert hushrec.write_lists(MODELS["likes"], ratings, later, 6, next=True)
    american = Ratings.from_any((*columns[:3], ["12/24/2025"] * len(rows)), RATINGS.domain)
    with pytest.warns(UserWarning, match="No time of this history can be read"):
        MODELS["likes"].recommend_batch(american, next=True)
    untimed = Ratings.from_any(tuple(columns[:3]), RATINGS.domain)
    with pytest.raises(InputError, match="read them with their times"):
        MODELS["likes"].recommend_batch(untimed, next=True)


def test_what_has_no_order_is_refused_in_one_sentence() -> None:
    for history in (dict(HISTORY), {}):
        with pytest.raises(InputError, match="next needs an order, and a mapping has none: pass a list"):
            MODELS["likes"].recommend(history, next=True)
    for history in ([()], [(1, 2, 3, 4)], [(ITEMS[0],)], [(ITEMS[0], 3, 4), ITEMS[1]]):
        with pytest.raises(InputError) as error:
            MODELS["ratings"].recommend(history, next=True)
        assert "pairs of both" in str(error.value)
    with pytest.raises(InputError, match="Rating 9 of item") as error:
        MODELS["ratings"].recommend([(ITEMS[0], 9, 123456)], next=True)
    assert "123456" not in str(error.value)


def test_the_last_rating_of_each_user_is_held_out_and_found() -> None:
    """Two users by hand, one of whom gave both at once; hit rate, MRR and NDCG in their definitions."""
    domain = Domain(["a", "b", "c", "d"], rating_range=(1, 5))
    table = {"user": ["u", "u", "u", "v", "v", "w"], "item": ["a", "b", "c", "d", "b", "a"]}
    table |= {"rating": [5, 4, 3, 2, 1, 5], "time": [9, None, 3, 7, 7, 1]}
    rows = Ratings.from_any(pd.DataFrame(table), domain, columns={"time": True})
    train, last = hushrec.data.leave_last_out(rows)
    assert last.to_arrow().to_pydict()["item"] == ["a", "d"] and not last.hand_picked
    assert train.to_arrow()["item"].to_pylist() == ["b", "c", "b", "a"]
    model = MODELS["likes"]
    held, ranks = RATINGS.rows(slice(0, 60)), []
    timed = Ratings.from_any(
        held.to_arrow().append_column("time", [list(range(held.n_ratings))[::-1]]),
        held.domain,
        columns={"time": True},
    )
    history, target = hushrec.data.leave_last_out(timed)
    found = hushrec.evaluate(
        model, history, target, k=10, metrics=["hit-rate", "mrr", "ndcg"], resamples=0, next=True
    )
    for row in range(target.n_users):
        mine = history.to_arrow().filter(np.equal(history.to_arrow()["user"].to_numpy(), target.users[row]))
        own = list(zip(*(mine[name].to_pylist() for name in ("item", "rating", "time"))))
        listed = [each.item for each in model.recommend(own, 10, next=True)]
        wanted = target.rows([row]).to_arrow()["item"][0].as_py()
        ranks.append(listed.index(wanted) + 1 if wanted in listed else math.inf)
    ranks = np.array(ranks)
    assert found["hit-rate@10"].value == pytest.approx(np.mean(ranks <= 10))
    assert found["mrr@10"].value == pytest.approx(np.mean(1 / ranks))
    assert found["ndcg@10"].value == pytest.approx(np.mean(1 / np.log2(1 + ranks)))


def test_the_command_line_lists_measures_and_splits(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, rows = (
        MODELS["likes"],
        [("u", item, rating, place) for place, (item, rating) in enumerate(HISTORY)],
    )
    rows += [("v", ITEMS[3], 5, 1), ("v", ITEMS[9], 4, 2)]
    pd.DataFrame(rows, columns=["user", "item", "rating", "time"]).to_parquet("h.parquet")
    model.save("m.hush")
    listed = json.loads(invoke("recommend", "m.hush", "h.parquet", "--user", "u", "--next", "--json").stdout)
    assert [each["item"] for each in listed["items"]] == [
        each.item for each in model.recommend(HISTORY, next=True)
    ]
    line = ["evaluate", "m.hush", "h.parquet", "--split", "next", "--metrics", "hit-rate", "--json"]
    measured = json.loads(invoke(*line, "--relevant-from", "1").stdout)
    assert measured["n_users"] == 2 and measured["n_ratings"] == 2
    declared = ["--catalogue", "items.txt", "--rating-range", "1", "5"]
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))
    assert invoke("split", "h.parquet", "--leave-last", *declared, "--out-dir", "parts").exit_code == 0
    again = ["evaluate", "m.hush", "parts/train.parquet", "parts/test.parquet", *line[3:]]
    assert json.loads(invoke(*again, "--relevant-from", "1").stdout) == measured
    for wrong, words in (
        (["evaluate", "m.hush", "h.parquet"], "TEST is missing"),
        (["recommend", "m.hush", "h.parquet", "--user", "u", "--next", "--explain"], "leave out --next"),
    ):
        refused = invoke(*wrong)
        assert refused.exit_code == 2 and words in refused.stderr
