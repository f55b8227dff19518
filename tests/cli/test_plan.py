"""What a plan prints is what its JSON holds, line by line; a question that has no answer is refused."""

import json

import pytest

SIZES = ["--users", "1000", "--items", "2000", "--epsilon", "1", "--delta", "1e-6"]
RANGE = ["--rating-range", "1", "5"]


def asked(run, *line):
    found = run("plan", *line)
    assert found.exit_code == 0, found.stderr
    return found.stdout, json.loads(run("plan", *line, "--json").stdout)


def bracket(each, digits):
    """A figure with its interval, in percent."""
    value, low, high = (f"{each[end]:.{digits}%}" for end in ("value", "low", "high"))
    return value, f"({low} to {high})"


@pytest.mark.parametrize("model", ["both", "private-als"])
@pytest.mark.parametrize("ranged", [True, False])
def test_a_plan_in_words_is_that_in_numbers(model, ranged, run):
    text, told = asked(run, *SIZES, "--model", model, *(RANGE if ranged else []))
    lines, expected = text.splitlines(), told["expected"]
    losses = expected["rmse_in_rating_ranges"]
    assert lines[0] == f"Model:      {model}" and told["model"] == model
    starts = [place for place, line in enumerate(lines) if line.startswith("Settings:   ")]
    assert starts == ([1] if ranged else []) and ("hyper_parameters" in told) == ranged
    budget = next(line for line in lines if line.startswith("Budget:"))
    assert budget.endswith("(unit: user, relation: add-remove), mu = 0.2367")
    labels = [line.split("  ")[0] for line in lines]
    assert all(release["label"] in labels for release in told.get("releases", ()))
    assert ("releases" in told) == ranged and "taste" not in told
    assert ("nothing says so" in " ".join(text.split())) == (model in ("both", "private-eigenrec"))
    assert (told["expected"]["n_users"], told["expected"]["n_items"]) == (1000, 2000)
    share = told.get("hyper_parameters", {}).get("lists_share")
    parted = [line for line in lines if line.startswith("Ratings have")]
    assert len(parted) == (model == "both")
    if share is not None:
        assert parted == [f"Ratings have {1 - share:.0%} of the budget, lists the rest."]
    assert (
        "Error on generated ratings of 1,000 users, 2,000 items, 50 ratings a user (yours may differ):"
        in lines
    )
    words, said = " ".join(text.split()), losses["private_als"]["value"] / losses["non_private"]["value"] - 1
    cost, kept = bracket(losses["cost"], 1), bracket(losses["kept"], 0)
    half, most = expected["users_to_keep_half_of_the_gain"], expected["users_to_keep_nine_tenths"]
    assert f"There privacy costs {cost[0]} of the range {cost[1]}, that is {said:.0%} of the error" in words
    assert f"the users' own means {model} keeps {kept[0]} {kept[1]}." in words
    assert (
        f"Half of the gain was kept from about {half:,} users on, nine tenths from about {most:,}." in words
    )
    assert 1000 < half < most < 1_000_000
    better = losses["item_bias"]["value"] < losses["private_als"]["value"]
    assert ("There item-bias had the smaller error" in text) == better
    assert ("on 1 to 5" in text) == ranged and "In brackets: the range from weaker" in text
    assert "How widely people rate is not known here: --spread" in words


def test_a_plan_without_privacy_says_so_in_its_first_line(run):
    text, told = asked(run, *SIZES[:4], "--epsilon", "inf", *RANGE, "--model", "als")
    assert text.splitlines()[0] == "Model:      als   NOT PRIVATE" and "expected" not in told
