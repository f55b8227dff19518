"""What a plan prints is what its JSON holds, line by line; a question that has no answer is refused."""

import json

import pytest

SIZES = ["--users", "1000", "--items", "2000", "--epsilon", "1", "--delta", "1e-6"]
RANGE = ["--rating-range", "1", "5"]
DONORS = ("donors_recall", 2), ("donors_rmse", 2)


def asked(run, *line):
    found = run("plan", *line)
    assert found.exit_code == 0, found.stderr
    return found.stdout, json.loads(run("plan", *line, "--json").stdout)


@pytest.mark.parametrize("model", ["both", "private-als", "private-eigenrec"])
@pytest.mark.parametrize("ranged", [True, False])
def test_a_plan_in_words_is_that_in_numbers(model, ranged, run):
    text, told = asked(run, *SIZES, "--model", model, *(RANGE if ranged else []))
    lines, found = text.splitlines(), told["ranges"]
    planned = ranged or model == "private-eigenrec"  # likes need no range
    assert lines[0] == f"Model:      {model}" and told["model"] == model
    starts = [place for place, line in enumerate(lines) if line.startswith("Settings:   ")]
    assert starts == ([1] if planned else []) and ("hyper_parameters" in told) == planned
    budget = next(line for line in lines if line.startswith("Budget:"))
    assert budget.endswith("(unit: user, relation: add-remove), mu = 0.2367")
    labels = [line.split("  ")[0] for line in lines]
    assert all(release["label"] in labels for release in told.get("releases", ()))
    assert ("releases" in told) == planned and "taste" not in told
    share = told.get("hyper_parameters", {}).get("lists_share")
    parted = [line for line in lines if line.startswith("Ratings have")]
    assert len(parted) == (model == "both")
    if share is not None:
        assert parted == [f"Ratings have {1 - share:.0%} of the budget, lists the rest."]
    assert "What it may come to with 1,000 users, 2,000 items and 50 ratings a user:" in lines
    assert ("directions" in found) == (model != "private-als") == any("tastes differ" in x for x in lines)
    assert ("rmse_in_rating_ranges" in found) == (model != "private-eigenrec") == ("--spread" in text)
    if ends := found.get("rmse_in_rating_ranges"):
        unit = "{:.2f} to {:.2f}" if ranged else "{:.1%} to {:.1%} of the rating range"
        assert unit.format(*(4 * x if ranged else x for x in ends.values())) in text
    for name, digits in (("directions", 0), ("lift", 1), ("recall", 2), *DONORS):
        if name in found:
            low, high = (f"{found[name][end]:.{digits}f}" for end in ("low", "high"))
            assert any(line.endswith(f"  {low} to {high}") for line in lines)
    assert "From weak to strong tastes" in text
    assert ("donors_recall" in found, "donors_rmse" in found) == ("lift" in found, "--spread" in text)
    assert "donors" not in run("plan", *SIZES, "--users", "5001", "--model", model).stdout


def test_a_season_is_told_beside_one_training(run):
    """More of the budget is spent by each week; the last has it all, and every one is told in both ways."""
    text, told = asked(run, *SIZES, "--model", "private-als", "--season", "9")
    *weeks, last, scratch = told["season"].values()
    assert list(told["season"]) == [*(f"week {n}" for n in (0, 2, 4, 6, 8)), "from scratch every week"]
    highs = [each["high"] for each in (*weeks, last)]
    assert highs == sorted(highs, reverse=True) and last["high"] == pytest.approx(1)
    assert scratch["high"] > highs[0] > 1 and f"1.000 to {scratch['high']:.3f}" in text
    assert run("plan", *SIZES, "--model", "popular", "--season", "9").exit_code == 2


def test_a_plan_without_privacy_says_so_in_its_first_line(run):
    text, told = asked(run, *SIZES[:4], "--epsilon", "inf", *RANGE, "--model", "als")
    assert text.splitlines()[0] == "Model:      als   NOT PRIVATE" and "ranges" not in told
