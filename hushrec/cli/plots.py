"""Plots that a command writes beside what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushrec.audit.plots import save_plot
from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.errors import InputError
from hushrec.evaluation.plots import needs_matplotlib


def plot_file(path: str | None, replace: bool) -> Path | None:
    """Return where a plot goes, if one is asked for; refuse a file that is there and may not be replaced."""
    if path is None:
        return None
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise InputError(f"{path!r} is no plot; give it a name that ends in .png or .svg.", parameter="plot")
    needs_matplotlib()
    return output_file(path, (), replace)


def audit(found: Any, plot: Path | None, as_json: bool) -> None:
    """Show what an audit found; draw its plot where one is asked for."""
    if plot is not None:
        save_plot(found, plot)
    show = output.result if plot is None else output.done
    show(as_json, found.to_dict(), found.text(), *([f"Plot: {plot}"] if plot else []))
