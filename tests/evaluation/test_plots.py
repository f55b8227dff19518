"""Plots of a comparison: its lines are distinguishable."""

import math

from hushrec.evaluation.plots import privacy_utility_plot


def test_twelve_models_differ_in_marker_and_dashes_and_neighbours_in_colour():
    names = [*(f"model {number}" for number in range(12)), "item-bias", "global-mean", "popular"]
    rows = [
        {"model": name, "epsilon": epsilon, "value": at + 1 / epsilon, "low": at, "high": at + 2.0}
        for at, name in enumerate(names)
        for epsilon in (1.0, 5.0)
    ]
    rows += [{"model": name, "epsilon": math.inf, "value": 0.5, "low": 0.5, "high": 0.5} for name in "abc"]
    figure = privacy_utility_plot({"rmse": rows}, unit="user", interval="", stamp="")
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2]
    drawn = [line for line in lines if line.get_marker() not in ("None", "")]
    in_grey = [(line.get_marker(), str(line.get_linestyle()), line._dash_pattern) for line in drawn]
    assert len(drawn) == 15 and len(set(map(str, in_grey))) == 15
    colours = [line.get_color() for line in drawn[:12]]
    assert len(set(colours)) == 6 and all(one != two for one, two in zip(colours, colours[1:]))
    references = [line for line in lines if line not in drawn and line.get_color() == "black"]
    assert len({str(line._dash_pattern) for line in references}) == 3
