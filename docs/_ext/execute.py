"""Pages whose blocks are run: each ``bash`` and ``python`` block in its order, in one empty folder.

A page that begins with ``<!-- executed -->`` is run when the site is built, and what a block prints is shown
below it; a block that fails, fails the build. Python blocks of a page share their names. A block after
``<!-- not run -->`` is left out. Tests use ``run_page`` too.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", flags=re.M | re.S)
_EXECUTED, _NOT_RUN = "<!-- executed -->", "<!-- not run -->"
_LONG = 24  # lines


def run_page(text: str) -> list[tuple[str, str]]:
    """Every block of a page with what it printed; raises RuntimeError where one fails."""
    results = []
    names: dict[str, object] = {"__name__": "__page__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        kept = dict(os.environ)
        os.environ |= {"COLUMNS": "96", "HUSHREC_LEDGER": f"{folder}/.ledger/ledger.sqlite"}
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.environ["PYTHONPATH"] = str(ROOT)
        try:
            for found in _BLOCK.finditer(text):
                kind, code = found.groups()
                if text[: found.start()].rstrip().endswith(_NOT_RUN):
                    continue
                results.append((found[0], (_bash if kind == "bash" else _python)(code, names)))
        finally:
            os.environ.clear()
            os.environ.update(kept)
    return results


def _bash(code: str, _: dict[str, object]) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of\n{code}\n{done.stdout}{done.stderr}")
    return done.stdout


def _python(code: str, names: dict[str, object]) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(code, "<page>", "exec"), names)
        except Exception:
            raise RuntimeError(f"{traceback.format_exc()} in\n{code}") from None
    return printed.getvalue()


def shown(text: str) -> str:
    """The page with what its blocks print below them; what is long is folded."""
    for block, printed in run_page(text):
        lines = printed.rstrip().count("\n") + 1
        if printed.strip():
            below = f"```text\n{printed.rstrip()}\n```"
            if lines > _LONG:
                below = f"<details><summary>What it prints ({lines} lines)</summary>\n\n{below}\n\n</details>"
            text = text.replace(block, f"{block}\n\n{below}", 1)
    return text


def _execute(app: Sphinx, name: str, content: list[str]) -> None:
    if content[0].startswith(_EXECUTED):
        try:
            content[0] = shown(content[0])
        except RuntimeError as error:
            from sphinx.util import logging

            logging.getLogger(__name__).warning("%s: %s", name, error, location=name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run a page as it is read."""
    app.connect("source-read", _execute)
    return {"parallel_read_safe": False}
