"""New items in a trained model, placed by their features; the models are those that browsers are held to."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from hushrec.data.features import feature_scores
from hushrec.errors import InputError
from hushrec.models import Model
from tests.vectors.test_vectors import MODELS

RIDGES = [*(2.0 ** np.arange(-16, 5)), 1e12]


def larger(model, ids=("a new one", "another"), seed=0):
    """The catalogue with new items before, among and after the old ones, and two features of all."""
    old = list(model.domain.items)
    items = [ids[0], *old[:2], ids[1], *old[2:]]
    features = np.random.default_rng(seed).standard_normal((len(items), 2))
    return replace(model.domain, items=tuple(items), item_features=features)


def slowly(scores, target, others):
    """Ridge regression at the ridge that predicts each item best from all others."""
    scale = np.linalg.svd(scores - scores.mean(axis=0))[1].max() ** 2

    def fit(rows, ridge):
        middle, mean = scores[rows].mean(axis=0), target[rows].mean(axis=0)
        centred = scores[rows] - middle
        weights = np.linalg.solve(
            centred.T @ centred + ridge * scale * np.eye(scores.shape[1]), centred.T @ (target[rows] - mean)
        )
        return lambda x: mean + (x - middle) @ weights

    everyone = np.arange(len(scores))

    def error(ridge):
        return sum(((target[i] - fit(everyone != i, ridge)(scores[i])) ** 2).sum() for i in everyone)

    return fit(everyone >= 0, min(RIDGES, key=error))(others)[:, 0]


@pytest.mark.parametrize("name", MODELS)
def test_old_items_stay_as_they_are_and_new_ones_are_what_features_let_expect(name: str) -> None:
    model = Model.from_bytes(base64.b64decode(MODELS[name]["file"]))
    if model.domain.n_items < 4:
        return
    domain = larger(model)
    found = model.with_items(domain)
    assert found.new_items == ("a new one", "another") and found.privacy.to_dict() == model.privacy.to_dict()
    again = Model.from_bytes(found.to_bytes())
    assert again.new_items == found.new_items and again.to_bytes() == found.to_bytes()
    keep = domain.index(model.domain.items)
    fresh = np.setdiff1d(np.arange(domain.n_items), keep)
    for mine, theirs in ((found, model), (found.lists, model.lists)):
        if mine is None:
            continue
        placed_arrays = {"item_bias", "item_factors", "history_popularity", "public_factors"}
        for each in placed_arrays & theirs.arrays.keys():
            before = np.asarray(theirs.arrays[each], np.float64)
            np.testing.assert_array_equal(mine.arrays[each][keep], theirs.arrays[each])
            known = np.asarray(theirs.arrays.get("supported", np.ones(len(keep)))) != 0
            if not known.any() or not before.size:
                continue
            scores = feature_scores(domain.item_features, domain.n_items)
            table = before[known].reshape(known.sum(), -1)
            columns = [slowly(scores[keep][known], column[:, None], scores[fresh]) for column in table.T]
            expected = np.column_stack(columns).clip(table.min(0), table.max(0))
            placed = mine.arrays[each][fresh].reshape(2, -1)
            np.testing.assert_allclose(placed, expected, rtol=1e-4, atol=1e-5)
    history = [(model.domain.items[0], model.domain.high)]
    listed = found.recommend(history, n=domain.n_items)
    assert {each.item for each in listed} >= {"a new one", "another"}
    likes = (model.lists or model).arrays
    if not name.endswith("als of likes") and "neighbours" not in likes:  # the larger table has other words
        old = [each.item for each in listed if each.item not in found.new_items]
        assert old == [each.item for each in model.recommend(history, n=domain.n_items)]


@pytest.mark.parametrize("name", ["private-als", "item-bias", "als", "both"])
def test_a_new_item_is_no_further_out_than_those_that_were_learned(name: str) -> None:
    """Features far beyond the others' would put its bias and factors far beyond, too."""
    model = Model.from_bytes(base64.b64decode(MODELS[name]["file"]))
    domain, bias = larger(model), model.item_bias.astype(np.float64)
    keep = domain.index(model.domain.items)
    features = np.zeros((domain.n_items, 1))
    features[keep, 0] = bias + np.random.default_rng(0).normal(size=len(bias)) * bias.std() / 10
    features[np.setdiff1d(np.arange(domain.n_items), keep), 0] = (
        100 * np.abs(bias).max(),
        -100 * np.abs(bias).max(),
    )
    found = model.with_items(replace(domain, item_features=features))
    placed = found.item_bias[domain.index(["a new one", "another"])]
    known = bias[np.asarray(model.arrays.get("supported", np.ones(len(bias)))) != 0]
    np.testing.assert_allclose(placed, [known.max(), known.min()], rtol=1e-6)
    factors = np.asarray(found.arrays["item_factors"])
    if factors.size:
        old, new = factors[keep], np.delete(factors, keep, axis=0)
        assert (new <= old.max(axis=0) + 1e-6).all() and (new >= old.min(axis=0) - 1e-6).all()


def test_a_new_item_is_placed_by_the_words_of_old_items_alone() -> None:
    """Two new items with the title of an old one are nearer to each other than a word is to anything."""
    model = Model.from_bytes(base64.b64decode(MODELS["item-bias"]["file"]))
    old = list(model.domain.items)
    titles = ["red hat", *(f"word{place}" for place in range(1, len(old))), "red hat", "red hat"]
    table = {"item": [*map(str, old), "a new one", "another"], "title": titles}
    grown = model.with_items(replace(model.domain, items=(*old, "a new one", "another"), item_features=table))
    assert grown.item_bias[-2:].tolist() == [float(model.item_bias[0])] * 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda domain: replace(domain, item_features=None), "pass item_features"),
        (
            lambda domain: replace(domain, items=domain.items[:1] + domain.items[2:], item_features=None),
            "lacks",
        ),
        (lambda domain: replace(domain, rating_range=(0, 9)), "another rating range"),
        (
            lambda domain: replace(
                domain, item_features={"item": domain.items[1:3], "x": np.array([1.0, 2.0])}
            ),
            "2 of 2 new items have no feature and no word of another item, such as ",
        ),
    ],
)
def test_a_catalogue_that_does_not_fit_is_refused(change, said: str) -> None:
    model = Model.from_bytes(base64.b64decode(MODELS["private-als"]["file"]))
    with pytest.raises(InputError, match=said):
        model.with_items(change(larger(model)))
    with pytest.raises(InputError, match="no item that the model's lacks"):
        model.with_items(model.domain)
