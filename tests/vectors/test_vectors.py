"""The parity vectors are what Python computes; `make test-web` holds the client to the same file.

After an intended change of the answers, write them again with ``python -m tests.vectors``.
"""

import base64
import json

import numpy as np
import pytest

from hushrec.models import Model
from hushrec.serving import Attributes
from tests.vectors.__main__ import PATH, RULED
from tests.vectors.answers import answers, next_lists, rules_of, similar_to
from tests.vectors.random_conditions import answer

VECTORS = json.loads(PATH.read_text(encoding="utf-8"))
MODELS = {entry["name"]: entry for entry in VECTORS["models"]}
#: Models that the client of `web/` serves.
SERVED = {"both", "private-als", "item-bias", "popular", "private-eigenrec", "one-bit-user", "als", "dpals"}
HOSTILE = {"none", "one item", "all", "duplicates", "unknown ids", "out of range", "purchases"}


def test_every_model_and_every_hostile_history_is_there() -> None:
    assert {name.split(" ")[0] for name in MODELS} >= SERVED
    assert all(entry["histories"].keys() >= HOSTILE for entry in MODELS.values())


def test_models_with_a_table_have_parts_that_count() -> None:
    for name, others in (("words", {"tastes"}), ("pairs, words", {"item pairs"})):
        content = base64.b64decode(MODELS[f"private-eigenrec of {name} and features"]["file"])
        parts = Model.from_bytes(content).parts
        assert {part.name for part in parts} == {"popularity", "kind", "title", "words"} | others
        assert {"kind", "words"} <= {part.name for part in parts if part.weight > 0.05}


@pytest.mark.true("E2")
@pytest.mark.true("E9")
@pytest.mark.parametrize("name", MODELS)
def test_python_computes_the_vectors(name: str) -> None:
    entry = MODELS[name]
    model = Model.from_bytes(base64.b64decode(entry["file"]))
    assert model.directions == entry["directions"]
    for history, expected in entry["histories"].items():
        found = answers(model, [tuple(pair) for pair in expected["ratings"]])
        for numbers in ("predicted", "scores"):
            np.testing.assert_allclose(found[numbers], expected[numbers], atol=1e-7, err_msg=history)
        assert (np.diff(found["scores"]) <= 0).all()
        for why, told in zip(found["explained"], expected["explained"], strict=True):
            np.testing.assert_allclose(why[1:3], told[1:3], atol=1e-7, err_msg=history)
            np.testing.assert_allclose(why[3], told[3], atol=1e-7, err_msg=history)
        for exact in ("refused", "ranked", "list"):
            assert found[exact] == expected[exact], history
    for found, expected in zip(next_lists(model), entry["next"], strict=True):
        np.testing.assert_allclose(found.pop("scores"), expected.pop("scores"), atol=1e-7)
        assert json.loads(json.dumps(found)) == expected
    for expected in entry["similar"]:
        found = similar_to(model, expected["item"])
        np.testing.assert_allclose(found.pop("scores", []), expected.get("scores", []), atol=1e-7)
        assert found == {key: value for key, value in expected.items() if key != "scores"}


@pytest.mark.parametrize("name", RULED)
def test_python_rules_as_the_vectors_say(name: str) -> None:
    model = Model.from_bytes(base64.b64decode(MODELS[name]["file"]))
    expected = VECTORS["rules"][name]
    found = json.loads(json.dumps(rules_of(model, [tuple(pair) for pair in expected["ratings"]])))
    for mine, told in zip(found["lists"], expected["lists"], strict=True):
        np.testing.assert_allclose(mine.pop("scores"), told.pop("scores"), atol=1e-7)
    assert found == expected


@pytest.mark.true("S2")
def test_python_answers_random_conditions_as_the_vectors_say() -> None:
    """`make test-web` asks the client the same, which was written without a look at this one."""
    domain = Model.from_bytes(base64.b64decode(VECTORS["models"][0]["file"])).domain
    for case in VECTORS["random"]:
        attributes = Attributes.read(case["table"], domain)
        for condition, expected in case["answers"].items():
            assert answer(attributes, condition) == expected, condition
