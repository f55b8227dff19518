"""Every field of every model is an option: its type, default and text are those of the dataclass."""

import dataclasses
import json

import pytest

from hushrec.checks import Settings
from hushrec.registry import ESTIMATORS
from tests.command_line import invoke


@pytest.mark.parametrize("model", ESTIMATORS)
def test_help_lists_the_fields_of_the_model_that_is_named(model):
    done, whole = (invoke("train", "--model", model, word) for word in ("--help", "--help-tuning"))
    assert done.exit_code == whole.exit_code == 0
    cls = ESTIMATORS[model]
    layers = {"": dataclasses.fields(cls), "tuning.": dataclasses.fields(getattr(cls, "tuning", Settings()))}
    assert len([field for field in layers[""] if field.name not in ("tuning", "n_users")]) <= 8
    for layer, field in ((layer, field) for layer, inside in layers.items() for field in inside):
        if field.name not in ("n_users", "max_ratings_per_user", "ratings", "lists", "tuning"):
            option = f"--{layer}{field.name.replace('_', '-')}"
            assert option in whole.stdout and (option in done.stdout) == (layer == "")
    assert ("--clip FLOAT" in done.stdout) == (model in ("item-bias", "dpals"))


def test_what_0_2_called_a_setting_works_with_a_word_of_warning(run, files):
    line = [
        "plan",
        "--model",
        "private-als",
        "--users",
        "9",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        *files.domain,
    ]
    former, now = run(*line, "--bias-clip=0.5"), run(*line, "--tuning.bias-clip", "0.5")
    assert former.stdout == now.stdout and "bias_clip=0.5" in now.stdout and not now.stderr
    assert former.stderr == "--bias-clip is --tuning.bias-clip now; the old spelling goes with 0.4.\n"
    both = ["plan", *line[3:], "--ratings.rank", "3", "--lists.tuning.support", "2", "--json"]
    settings = json.loads(run(*both).stdout)["hyper_parameters"]
    assert (settings["ratings.rank"], settings["lists.support"]) == (3, 2.0)
    assert "--both.lists.rank" in invoke("compare", "x", "--models", "both", "--help").stdout


def test_a_field_with_the_name_of_another_option_goes_by_its_model(run, files):
    line = ["plan", "--model", "dpals", "--epsilon", "1", "--delta", "1e-6", *files.domain, "--json"]
    done = run(*line, "--max-ratings-per-user", "7", "--dpals.max-ratings-per-user", "9")
    assert done.exit_code == 0 and '"max_ratings_per_user": 9' in done.stdout
