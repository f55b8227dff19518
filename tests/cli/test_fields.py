"""Every field of every model is an option: its type, default and text are those of the dataclass."""

import dataclasses

import pytest

from hushrec.cli import app, fields
from hushrec.registry import ESTIMATORS
from tests.command_line import invoke


def options(model, command="train"):
    """The options of a command by the name of their field."""
    found = app._application()[command]
    fields.offer_fields(found, ["--model", model])
    return {each.field_info.name: each for each in found.assemble_argument_collection()}


@pytest.mark.parametrize("model", ESTIMATORS)
def test_every_field_is_an_option_with_a_text_and_a_default(model):
    offered = options(model)
    for field in dataclasses.fields(ESTIMATORS[model]):
        if field.name == "n_users" or field.default_factory is not dataclasses.MISSING:
            continue
        parameter = offered[field.name].parameter
        assert parameter.help and "``" not in parameter.help and ":class:" not in parameter.help
        if parameter.show_default != "planned":
            assert parameter.show_default == str(field.default).lower()
    assert offered["n_users"].name == "--users"
    names = [name for each in offered.values() for name in each.names if name != "*"]
    assert len(names) == len(set(names))


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


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--features"], {"features": True}),
        (["--no-features"], {"features": False}),
        (["--bias-clip", "none"], {"bias_clip": None}),
        (["--start", "spectral", "--rank", "3"], {"start": "spectral", "rank": 3}),
        ([], {}),
    ],
)
def test_only_what_is_given_reaches_the_command(words, wanted, monkeypatch):
    """All others are left to the model, which plans them."""
    application = app._application()
    command = application["plan"]
    line = ["plan", "--for", "ratings", "--epsilon", "1", "--delta", "1e-6", "--users", "9", "--items", "9"]
    line += words
    fields.offer_fields(command, line)
    _, bound, _ = application.parse_args(line, exit_on_error=False, print_error=False)
    assert bound.arguments.get("settings", {}) == wanted


def test_settings_of_one_of_several_models(monkeypatch):
    application = app._application()
    line = ["compare", "r.csv", "--models=dpals,item-bias", "--epsilons", "1", "--rating-range", "1", "5"]
    line += ["--catalogue", "i", "--out-dir", "o", "--dpals.rank", "3", "--item-bias.clip", "0.5"]
    fields.offer_fields(application["compare"], line)
    _, bound, _ = application.parse_args(line, exit_on_error=False, print_error=False)
    assert bound.arguments["settings"] == {"dpals": {"rank": 3}, "item-bias": {"clip": 0.5}}


def test_one_bit_takes_its_number_of_users_from_users(run, files):
    line = ["plan", "--model", "one-bit", "--unit", "rating", "--mechanism", "output-published"]
    line += [
        "--entry-epsilon",
        "0.1",
        "--acknowledge-cost",
        "--epsilon",
        "1000",
        "--delta",
        "1e-6",
        *files.domain,
    ]
    assert "--users is missing" in run(*line).stderr
    done = run(*line, "--users", "2", "--json")
    assert done.exit_code == 0 and '"n_users": 2' in done.stdout, done.stderr
