"""A history may hold purchases without stars: they count as likes, and predictions ignore them."""

import json
import math

import pandas as pd
import pytest

import hushrec
from hushrec import Accountant, Both, Budget, Ratings
from hushrec.errors import InputError
from tests.command_line import invoke
from tests.server.conftest import serving

RATINGS = hushrec.realistic(400, 40, 6000, seed=0)
ITEMS = list(RATINGS.domain.items)
EIGENREC = hushrec.PrivateEigenRec.of(rank=3, like_threshold=4.0, n_users=400)
MODELS = {
    "both": Both(ratings=hushrec.ALS(rank=3), lists=hushrec.EASE(), like_threshold=4.0),
    "eigenrec": EIGENREC,
    "pairs": hushrec.PrivateEigenRec(rank=2, pairs=True, like_threshold=4.0),
    "ease": hushrec.EASE(like_threshold=4.0),
    "popular": hushrec.Popular(),
    "both private": Both(ratings=hushrec.PrivateALS(n_users=400), lists=EIGENREC, like_threshold=4.0),
    "ratings": hushrec.ALS(rank=3),
    "likes by value": hushrec.ALS(rank=3, unobserved_weight=0.1),
}
#: Ratings, where a like is rated 5; then the same with purchases in place of some likes.
STARS = {ITEMS[0]: 5.0, ITEMS[3]: 1.0, ITEMS[7]: 5.0, ITEMS[9]: 5.0}
BOUGHT = STARS | {ITEMS[7]: None, ITEMS[9]: None}


def trained(name: str) -> hushrec.Model:
    epsilon = math.inf if name in ("both", "ease", "ratings", "likes by value") else 20
    return MODELS[name].fit(RATINGS, Accountant(Budget(epsilon, 1e-6)))


def listed(entries) -> list[tuple]:
    return [(entry.item, pytest.approx(entry.score, abs=1e-9)) for entry in entries]


@pytest.mark.true("E9")
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("ratings", "likes by value")])
def test_a_purchase_without_stars_is_a_like_and_no_rating(name: str) -> None:
    model = trained(name)
    for options in ({}, {"next": True}):
        found = model.recommend(list(BOUGHT.items()), 40, **options)
        assert [entry[:2] for entry in found] == listed(model.recommend(list(STARS.items()), 40, **options))
        assert not {entry.item for entry in found} & set(BOUGHT)
    why, plain = (model.explain(history, ITEMS[20]) for history in (BOUGHT, STARS))
    assert dict(why.because) == pytest.approx(dict(plain.because)) and why.score == pytest.approx(plain.score)
    if name.startswith("both"):
        stars = {item: rating for item, rating in BOUGHT.items() if rating is not None}
        assert model.predict(BOUGHT, ITEMS) == model.predict(stars, ITEMS)
    table = {"user": ["u"] * 4, "item": list(BOUGHT), "stars": list(BOUGHT.values()), "n": [1] * 4}
    rows = Ratings.from_any(table, model.domain, columns={"rating": "stars", "quantity": "n"})
    batch = model.recommend_batch(rows, 40).to_pylist()
    assert [(row["item"], row["score"]) for row in batch] == listed(model.recommend(BOUGHT, 40))
    again = [(ITEMS[0], None), (ITEMS[3], None), *BOUGHT.items(), (ITEMS[3], None)]  # stars count before
    assert model.recommend(again, 40) == model.recommend(BOUGHT, 40)
    with pytest.raises(InputError, match="Item 'other' of these ratings"):
        model.recommend(BOUGHT | {"other": None})


@pytest.mark.parametrize("name", ["ratings", "likes by value"])
def test_a_model_that_reads_values_refuses_a_purchase_without_stars(name: str) -> None:
    with pytest.raises(InputError, match=f"Rating None of item '{ITEMS[7]}' is not a number from 1 to 5"):
        trained(name).recommend(BOUGHT)


@pytest.mark.true("E9")
def test_server_and_command_take_purchases_as_python_does(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = trained("both private")
    model.save("m.hush")
    wanted = model.recommend(BOUGHT, 40)
    pairs = [[item, rating] for item, rating in BOUGHT.items()]
    timed = [[*pair, place] for place, pair in enumerate(pairs)]
    with serving({"m": tmp_path / "m.hush"}) as server:
        for history, options in ((BOUGHT, {}), (pairs, {}), (timed, {}), (timed, {"next": True})):
            reply = server.post("/v1/recommend", ratings=history, n=40, **options).json()["items"]
            wanted = model.recommend([tuple(pair) for pair in pairs], 40, **options)
            assert [tuple(entry.values()) for entry in reply] == [tuple(entry) for entry in wanted]
    columns = {"user": "u", "item": list(BOUGHT), "rating": list(BOUGHT.values()), "quantity": 1}
    pd.DataFrame(columns).to_csv("h.csv", index=False)
    line = ["recommend", "m.hush", "h.csv", "--columns", "quantity=quantity", "--user", "u", "--json"]
    entries = json.loads(invoke(*line, "--explain").stdout)["items"]
    assert [entry["item"] for entry in entries] == [entry.item for entry in model.recommend(BOUGHT)]
    for entry in entries:
        moved = dict(model.explain(BOUGHT, entry["item"]).because)
        found = {each["item"]: pytest.approx(each["moved"]) for each in entry["because"]}
        assert found == {item: part for item, part in moved.items() if part}
