"""What holds where nothing is said: as the documentation of each function has it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

import hushrec
from hushrec.data.looking import look
from hushrec.data.preparing import prepare
from hushrec.evaluation import evaluate, tuning
from hushrec.evaluation.compare import LIKES_ALS, compare, cross_validate
from hushrec.evaluation.expected_loss import expected_loss, users_needed
from hushrec.evaluation.metrics import DEFAULT_METRICS
from hushrec.kernels.least_squares import normal_equations
from hushrec.kernels.one_bit import likelihood
from hushrec.kernels.residuals import added_residuals
from hushrec.kernels.sweeps import statistics
from hushrec.training import train

DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (look, {"columns": None, "format": None, "implicit": False}),
    (prepare, {"columns": None, "format": None, "implicit": False, "filesystem": None, "partitions": None,
               "force": False, "progress": False}),
    (hushrec.split_ratings, {"fractions": (0.8, 0.1, 0.1)}),
    (hushrec.data.k_folds, {"k": 5}),
    (hushrec.leave_k_out, {"k": 1}),
    (hushrec.strong_generalization, {"heldout": 0.1, "fold_in": 0.8}),
    (hushrec.data.sample_per_user, {"priority": None}),
    (compare, {"relation": "add-remove", "n_users": None, "settings": None, "draws": 1, "k": 20,
               "relevant_from": None, "ledger": None, "dataset": "default", "data_is_public": False,
               "add_up": False, "seed": 0, "on_run": None, "on_price": None}),
    (cross_validate, {"folds": 5, "seed": 0, "data_is_public": True}),
    (evaluate, {"k": 20, "relevant_from": None, "metrics": DEFAULT_METRICS, "resamples": 1000, "seed": 0,
                "engine": None}),
    (expected_loss, {"ratings_per_user": 50, "spread": None}),
    (users_needed, {"ratings_per_user": 50, "kept": 0.5}),
    (tuning.try_all, {"draws": 3, "seed": 0}),
    (tuning.tune, {"mean_runs": 10.0, "shape": 1.0, "seed": 0}),
    (normal_equations, {"col_offset": None, "row_weight": None, "col_weight": None, "clip": math.inf,
                        "factor_step": 0.0, "rhs_step": 0.0}),
    (statistics, {"row_weight": None, "col_weight": None, "clip": math.inf, "factor_step": 0.0,
                  "rhs_step": 0.0}),
    (added_residuals, {"row_reach": None, "row_shrink": None, "bound": math.inf}),
    (likelihood, {"flips": (0.0, 0.0)}),
]  # fmt: skip


def given(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


@pytest.mark.parametrize(("function", "wanted"), DEFAULTS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_not_said_is_this(function: Callable[..., Any], wanted: dict[str, Any]) -> None:
    found = given(function)
    assert found == wanted and [type(v) for v in found.values()] == [type(v) for v in wanted.values()]


def test_a_training_by_name_without_more() -> None:
    found = given(train)
    keep = found.pop("keep")
    assert keep(None) is None
    assert found == {
        "n_users": None, "settings": None, "seed": 0, "progress": False, "share": 1.0, "engine": None,
        "stop_at_nobody": False,
    }  # fmt: skip


def test_the_reference_for_likes_is_the_one_that_was_chosen() -> None:
    """The best of 18 on validation users of two public data sets."""
    assert dict(LIKES_ALS) == {"rank": 64, "unobserved_weight": 0.2, "regularization": 5.0}
