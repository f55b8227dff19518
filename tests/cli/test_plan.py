"""What a plan prints is what its JSON holds, line by line; a question that has no answer is refused."""

import json

import pytest

from hushrec import Budget
from hushrec.cli import show_plan
from hushrec.evaluation.expected_loss import expected_loss

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


def test_with_a_spread_nothing_is_said_of_what_is_not_known(run):
    text, told = asked(run, *SIZES, *RANGE, "--spread", "1.1")
    assert "How widely" not in text and "Nothing of this size" not in text
    assert told["expected"]["spread"] == 1.1
    few, _ = asked(run, "--users", "10", *SIZES[2:], *RANGE)
    assert "Nothing of this size was simulated" in few


@pytest.mark.parametrize("ranged", [True, False])
def test_a_season_in_words_is_that_in_numbers(ranged, run, monkeypatch):
    """Errors of the budget that is spent by a week, in ratings where their range is declared."""
    line = [
        *SIZES,
        "--ratings-per-user",
        "31",
        "--season",
        "9",
        "--first-share",
        "0.3",
        "--model",
        "private-als",
    ]
    line += [*RANGE, "--spread", "1.2"] if ranged else []
    text, told = asked(run, *line)
    budget, found, unit = Budget(1.0, 1e-6), told["season"], 4 if ranged else 1

    def loss(part):
        spent = budget.part(part)
        return expected_loss(spent, 1000, 2000, 31.0, spread=0.3 if ranged else None).private_als

    wanted = [("from scratch every week", found["from_scratch"], 1 / 9)]
    wanted += [("once in week 0, never again", found["never_again"], 1.0)]
    wanted += [(f"week {n}", each, 0.3 + 0.7 * n / 8) for n, each in enumerate(found["weeks"])]
    assert [each["week"] for each in found["weeks"]] == list(range(9))
    heading = "RMSE" if ranged else "RMSE in rating ranges"
    lines = text.splitlines()
    assert f"{heading} on generated ratings over 9 weeks for one budget, while nothing changes" in lines
    for name, each, part in wanted:
        numbers = [each[end] for end in ("value", "low", "high")]
        assert numbers == pytest.approx([getattr(loss(part), end) for end in ("value", "low", "high")])
        value, low, high = (f"{unit * number:.3f}" for number in numbers)
        assert f"  {name:<30}{value:>8}   ({low} to {high})" in lines
    drawn = []
    monkeypatch.setattr(show_plan, "draw", lambda *given: drawn.append(given))
    assert f"{text.strip()}\n\nPlot: s.svg" in run("plan", *line, "--plot", "s.svg").stdout
    ((losses, path, scale, label),) = drawn
    assert (str(path), scale, label) == ("s.svg", unit, heading)
    assert [each.value for each in losses.ours] == [each["value"] for each in found["weeks"]]


def test_a_plan_without_privacy_says_so_in_its_first_line(run):
    text, told = asked(run, *SIZES[:4], "--epsilon", "inf", *RANGE, "--model", "als")
    assert text.splitlines()[0] == "Model:      als   NOT PRIVATE" and "expected" not in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([*SIZES[2:], *RANGE], "both is tuned to the number of users: say for how many"),
        ([*SIZES[2:]], "both is tuned to the number of users"),
        ([*SIZES[2:], "--model", "item-bias"], "The error depends on the number of users: say for how many"),
        ([*SIZES, *RANGE, "--plot", "p.png"], "--season too, for example --season 52.\n"),
        ([*SIZES, "--spread", "1"], "--spread is in ratings: declare their range too"),
        (
            [*SIZES, "--model", "dpals"],
            "Errors on generated ratings are known for both, private-als and item-bias",
        ),
        ([*SIZES, "--model", "private-als", "--rank", "3"], "Errors on generated ratings are known for both"),
        ([*SIZES[2:], *RANGE, "--model", "item-bias", "--season", "9"], "A season's errors are known where"),
        ([*SIZES, *RANGE, "--model", "dpals", "--season", "9"], "A season's errors are known where"),
        ([*SIZES, *RANGE, "--ratings-per-user", "0.5"], "--ratings-per-user 0.5 is out of range"),
        ([*SIZES, *RANGE, "--season", "0"], "--season 0 is out of range"),
        ([*SIZES, "--catalogue", "i.txt"], "Pass --catalogue or --items, not both"),
        (SIZES[:2] + SIZES[4:], "--items is missing: say how many items there are"),
        ([*SIZES[:2], *SIZES[4:], "--catalogue", "i.txt"], "--rating-range is missing: with a catalogue"),
        ([*SIZES[:2], *SIZES[4:], *RANGE, "--catalogue", ""], "The catalogue '' cannot be read"),
    ],
)
def test_a_plan_of_what_is_not_known_is_refused(line, words, run):
    refused = run("plan", *line)
    assert refused.exit_code == 2 and words in refused.stderr and not any(run.folder.iterdir())


def test_users_of_a_model_that_needs_none_may_be_left_out(run):
    """What it releases is told, and no error, which would need them."""
    text, told = asked(run, *SIZES[2:], *RANGE, "--model", "item-bias")
    assert "releases" in told and "expected" not in told and "generated" not in text
    _, alone = asked(run, *SIZES[2:], *RANGE, "--model", "item-bias", "--ratings-per-user", "1")
    assert alone["releases"] == told["releases"]


def test_shares_and_ways_that_are_none_are_refused(run, files):
    compare = [
        "compare",
        files.ratings,
        *files.domain,
        "--delta",
        "1e-6",
        "--epsilons",
        "1",
        "--out-dir",
        "c",
    ]
    tune = ["tune", "--model", "item-bias", "--try", "clip=0.3", "--epsilon", "1", "--delta", "1e-6"]
    tune += files.domain
    for line, words in (
        ([*compare, "--holdout", "0"], "--holdout 0 is out of range; pass a share between 0 and 1"),
        ([*compare, "--holdout", "1"], "pass a share between 0 and 1, for example 0.2.\n"),
        ([*compare, "--folds", "3"], "or one part to test on by --holdout.\n"),
        ([*tune, files.ratings, "--generated", "9"], "Pass RATINGS or --generated USERS, not both"),
        (tune, "Pass RATINGS, or --generated USERS to try"),
        ([*tune, "--generated", "9", "--out", "m.hush"], "Nothing is trained for keeps"),
        ([*tune, files.ratings, "--data-is-public", "--out", "m.hush"], "Nothing is trained for keeps"),
        ([*tune, files.ratings], "--out is missing: say where the best model goes"),
    ):
        refused = run(*line)
        assert refused.exit_code == 2 and words in refused.stderr, refused.stderr
    assert not run.ledger.exists() and not any(run.folder.iterdir())
