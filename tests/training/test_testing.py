"""The contract that a third party's estimator is held to finds each fault, and passes a good estimator."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import hushrec
from examples.private_slim import PrivateSLIM, UnitUsers
from hushrec import registry
from hushrec.errors import InputError, ModelFileError
from hushrec.models import Model, Popular, PrivateALS, PrivateEigenRec
from hushrec.privacy import Accountant, Bounded, Budget, positive
from hushrec.serving.modelfile import Expected
from hushrec.testing import (
    DOMAIN,
    PublicSide,
    check_estimator,
    check_file,
    check_forged,
    check_replay,
    check_sensitivity,
    check_two_processes,
    check_weeks,
    hostile_users,
    ratings_of,
)
from hushrec.types import ModelArrays
from tests.opening import opened

BUDGET = Budget(3.0, 1e-5)


@pytest.fixture(scope="module")
def public():
    """One process for all configurations; it starts before there is any row."""
    with PublicSide() as side:
        yield side


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Estimators that a test registers are forgotten after it."""
    monkeypatch.setattr(registry.ESTIMATORS, "data", dict(registry.ESTIMATORS.data))


def test_an_estimator_from_outside_passes() -> None:
    check_estimator(PrivateSLIM(), BUDGET)


SCRIPT = """
import hushrec
from hushrec.testing import check_estimator

class Mine(hushrec.Popular):
    name = "mine"

BUDGET = hushrec.Budget(3, 1e-5)
print("before")
check_estimator(Mine(), BUDGET, pairs=4)
print("held to the contract")
"""


def test_a_plain_script_checks_its_own_estimator(tmp_path) -> None:
    """Without a guard for the name of the main module: each line is printed once."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "mine.py"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.split("\n")) == (0, ["before", "held to the contract", ""]), (
        done.stderr
    )


def test_a_script_that_registers_an_estimator_has_all_commands(tmp_path) -> None:
    rows = "".join(f"u{user},i{(user + place) % 9},4\n" for user in range(60) for place in range(4))
    (tmp_path / "r.csv").write_text("user,item,rating\n" + rows)
    (tmp_path / "items.txt").write_text("".join(f"i{k}\n" for k in range(9)))
    cost = [
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
        "--rating-range",
        "1",
        "5",
        "--catalogue",
        "items.txt",
        "--ledger",
        "l.sqlite",
    ]
    script, shown = Path(__file__).parents[2] / "examples" / "private_slim.py", []
    for words in (
        ["train", "r.csv", "--model", "private-slim", *cost, "--out", "mine.hush"],
        ["recommend", "mine.hush", "r.csv", "--user", "u1", "-n", "3", "--json"],
    ):
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert len(json.loads(shown[1])["items"]) == 3


def test_standard_input_checks_estimators_that_another_process_can_import() -> None:
    code = SCRIPT.replace("import check_estimator", "import PublicSide, check_two_processes")
    code = code.replace(
        "check_estimator(Mine(), BUDGET, pairs=4)",
        "with PublicSide() as public:\n"
        "    check_two_processes(public, hushrec.Popular(), BUDGET)\n"
        "    print('one of the package')\n"
        "    check_two_processes(public, Mine(), BUDGET)",
    )
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["before", "one of the package", ""]
    assert "define it in a file" in done.stderr
    assert "Reset" not in done.stderr and "FileNotFound" not in done.stderr


@pytest.mark.parametrize("model", [PrivateALS, PrivateEigenRec], ids=lambda model: model.name)
def test_weeks_with_item_features_are_held_to_the_contract(model, public: PublicSide) -> None:
    features = np.random.default_rng(0).standard_normal((DOMAIN.n_items, 2))
    domain = replace(DOMAIN, item_features=features)
    estimator = model.of(rank=2, iterations=1, n_users=20)
    assert estimator.uses_features(BUDGET, domain)
    check_weeks(estimator, BUDGET, domain=domain, pairs=3, loose={"": 0.0})  # too few users to reach a bound
    check_two_processes(public, estimator, BUDGET, domain=domain)


def test_its_model_file_is_read_where_it_is_registered(tmp_path) -> None:
    ratings = ratings_of(hostile_users(np.random.default_rng(0)))
    model = PrivateSLIM().fit(ratings, Accountant(BUDGET))
    model.save(tmp_path / "slim.hush")
    with pytest.raises(ModelFileError):
        hushrec.load(tmp_path / "slim.hush")
    registry.register(PrivateSLIM)
    again = hushrec.load(tmp_path / "slim.hush")
    assert again.recommend({"i0": 5.0}, n=3) == model.recommend({"i0": 5.0}, n=3)
    with pytest.raises(InputError, match="unique name"):
        registry.register(Popular)


@dataclass(frozen=True, kw_only=True)
class Peeping(Popular):
    """Marks the items without likes, by exact counts."""

    name: ClassVar[str] = "peeping"

    def train(self, users, gate, seed):
        arrays = super().train(users, gate, seed)
        counts = opened(users.item_weights())
        return arrays | {"supported": (counts > 0).astype(np.uint8)}


def test_exact_values_on_the_public_side_are_found(public: PublicSide) -> None:
    with pytest.raises(AssertionError, match="than was released"):
        check_replay(Peeping(), BUDGET)
    with pytest.raises(AssertionError, match="public side"):
        check_two_processes(public, Peeping(), BUDGET)


def tell_who_trains(model: Model, file: Path) -> None:
    """Prints what only one of the two processes knows."""
    print(file, os.getpid())


def test_what_is_printed_is_compared_too() -> None:
    with PublicSide(tell_who_trains) as public, pytest.raises(AssertionError, match="what is printed"):
        check_two_processes(public, Popular(), BUDGET)


@dataclass(frozen=True, kw_only=True)
class Unclipped(PrivateSLIM):
    """Declares the bound, and does not keep it."""

    name: ClassVar[str] = "unclipped"

    def users(self, ratings):
        class Long(UnitUsers):
            def gramian(self) -> Bounded:
                bounded = super().gramian()
                return Bounded(2 * opened(bounded), positive(1.0), weight=bounded.weight, step=bounded.step)

        return Long(ratings)


def test_a_false_bound_is_found() -> None:
    with pytest.raises(AssertionError, match="'gramian' moved by"):
        check_sensitivity(Unclipped(), BUDGET)


@dataclass(frozen=True, kw_only=True)
class Trusting(PrivateSLIM):
    """Keeps the bound while the first release is a sum of weights; a server may say anything."""

    name: ClassVar[str] = "trusting"
    gives_up: bool = False

    def users(self, ratings):
        stops = self.gives_up

        class Told(UnitUsers):
            far = False

            def gramian(self) -> Bounded:
                if stops and self.far:
                    raise ValueError(f"{self._ratings.n_users} users")
                bounded = super().gramian()
                values = opened(bounded) * (1 + self.far)
                return Bounded(values, positive(1.0), weight=bounded.weight, step=bounded.step)

        return Told(ratings)

    def train(self, users, gate, seed):
        weights = gate.release("item weights", users.item_weights())
        users.far = not np.abs(weights).max() < 1e9
        gate.release("gramian", users.gramian())
        return {"center": np.float64(0.0), "item_bias": weights, "item_factors": np.zeros((len(weights), 0))}


@pytest.mark.parametrize(("gives_up", "words"), [(False, "'gramian' moved by"), (True, "gives up for")])
def test_what_a_server_can_forge_is_found(gives_up: bool, words: str) -> None:
    check_sensitivity(Trusting(gives_up=gives_up), BUDGET)
    with pytest.raises(AssertionError, match=words):
        check_forged(Trusting(gives_up=gives_up), BUDGET)


@dataclass(frozen=True, kw_only=True)
class Grouped(Popular):
    """Popular items of a few groups, with arrays of sizes of its own."""

    name: ClassVar[str] = "grouped"
    expected: ClassVar[ModelArrays] = replace(
        Popular.expected,
        serve={
            "group": Expected("iu", ("items",), 0),
            "weights": Expected("f", ("groups", "half a group")),
            "weights_rows": Expected("iu", ("groups",), 0),
            "pairs of groups": Expected("f", (lambda sizes: sizes["groups"] * (sizes["groups"] - 1) // 2,)),
        },
    )

    def train(self, users, gate, seed):
        return super().train(users, gate, seed) | self.groups(users.domain.n_items)

    def week(self, users, gate, last):
        return super().week(users, gate, last) | self.groups(users.domain.n_items)

    @staticmethod
    def groups(n_items: int) -> dict[str, np.ndarray]:
        arrays = {
            "group": np.arange(n_items) % 3,
            "weights_rows": np.arange(3),
            "pairs of groups": np.ones(3),
        }
        return arrays | {"weights": np.ones((3, 5), np.float32)}

    def fold_in(self, arrays, history):
        assert len(arrays["weights"][arrays["group"]]) == history.n_items
        return super().fold_in(arrays, history)


def test_an_estimator_has_arrays_of_sizes_of_its_own() -> None:
    check_estimator(Grouped(), BUDGET, pairs=4)
    model = Grouped().fit(ratings_of(hostile_users(np.random.default_rng(0))), Accountant(BUDGET))
    features = np.random.default_rng(0).standard_normal((DOMAIN.n_items + 1, 2))
    wider = replace(DOMAIN, items=(*DOMAIN.items, "new"), item_features=features)
    assert Model.from_bytes(model.with_items(wider).to_bytes()).recommend({"i0": 5.0}, n=9)
    for bad in (np.ones(3), np.ones((4, 5)), np.ones((3, 5), int)):
        with pytest.raises(ModelFileError, match="weights"):
            Model.from_bytes(replace(model, arrays={**model.arrays, "weights": bad}).to_bytes())


@pytest.mark.parametrize("arrays", [{"item_factors_rows": np.arange(2)}, {"weights": np.ones(2, np.float16)}])
def test_an_array_that_no_file_can_hold_is_found(arrays, monkeypatch) -> None:
    monkeypatch.setattr(Grouped, "groups", staticmethod(lambda n_items: arrays))
    with pytest.raises(AssertionError, match="saved and loaded"):
        check_file(Grouped(), BUDGET)
