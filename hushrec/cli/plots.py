"""Plots of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hushrec.audit.plots import save_plot
from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.errors import InputError
from hushrec.evaluation.plots import needs_matplotlib


def plot_file(path: str | None, replace: bool) -> Path | None:
    """Return the plot's path, if there is one; refuse an existing file unless it may be replaced."""
    if path is None:
        return None
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise InputError(
            f"{path!r} is not a plot file; use a name that ends in .png or .svg.", parameter="plot"
        )
    needs_matplotlib()
    return output_file(path, (), replace)


def audit(found: Any, plot: Path | None, as_json: bool) -> None:
    """Print the result of an audit, and draw its plot if there is one."""
    if plot is not None:
        save_plot(found, plot)
    show = output.result if plot is None else output.done
    show(as_json, found.to_dict(), found.text(), *([f"Plot: {plot}"] if plot else []))
