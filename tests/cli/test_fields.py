"""Every field of every model is an option: its type, default and text are those of the dataclass."""

import dataclasses

import pytest

from hushrec.registry import ESTIMATORS
from tests.command_line import invoke


@pytest.mark.parametrize("model", ESTIMATORS)
def test_help_lists_the_fields_of_the_model_that_is_named(model):
    done = invoke("train", "--model", model, "--help")
    assert done.exit_code == 0
    for field in dataclasses.fields(ESTIMATORS[model]):
        if field.name not in ("n_users", "max_ratings_per_user", "ratings", "lists"):
            assert f"--{field.name.replace('_', '-')}" in done.stdout
    assert ("--clip FLOAT" in done.stdout) == (model in ("item-bias", "dpals"))


def test_a_field_with_the_name_of_another_option_goes_by_its_model(run, files):
    line = ["plan", "--model", "dpals", "--epsilon", "1", "--delta", "1e-6", *files.domain, "--json"]
    done = run(*line, "--max-ratings-per-user", "7", "--dpals.max-ratings-per-user", "9")
    assert done.exit_code == 0 and '"max_ratings_per_user": 9' in done.stdout
