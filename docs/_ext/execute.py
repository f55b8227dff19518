"""Pages whose blocks are run: each ``bash`` and ``python`` block in its order, in one empty folder.

A page that begins with ``<!-- executed -->`` is run when the site is built, and what a block prints is shown
below it; a block that fails, fails the build. Python blocks of a page share their names. A block after
``<!-- not run -->`` is left out. What a shell starts in the background runs until the page ends. A page
that speaks of files of yours (``ratings.parquet``, ``frame``) finds made-up ones. Tests use ``run_page``
too, and so does an environment that has the wheel alone:

    python docs/_ext/execute.py README.md
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import chdir, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", flags=re.M | re.S)
_EXECUTED, _NOT_RUN = "<!-- executed -->", "<!-- not run -->"
_LONG = 24  # lines


def run_page(
    text: str, *, yours: bool = False, bash: Callable[[str], str] | None = None
) -> list[tuple[str, str]]:
    """Every block of a page with what it printed; raises RuntimeError where one fails.

    ``yours`` makes up the files and names that a page takes for the reader's own; ``bash`` runs shell blocks.
    """
    results: list[tuple[str, str]] = []
    shells: list[int] = []
    names: dict[str, object] = {"__name__": "__page__"}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        names |= made_up() if yours else {}
        kept = dict(os.environ)
        Path(folder, ".ledger").mkdir()
        os.environ |= {"COLUMNS": "96", "HUSHREC_LEDGER": f"{folder}/.ledger/ledger.sqlite"}
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        try:
            for found in _BLOCK.finditer(text):
                kind, code = found.groups()
                if text[: found.start()].rstrip().endswith(_NOT_RUN):
                    continue
                printed = (
                    _python(code, names)
                    if kind == "python"
                    else (bash(code) if bash else _bash(code, shells))
                )
                results.append((found[0], printed.replace(folder, "~")))
        finally:
            os.environ.clear()
            os.environ.update(kept)
            _end(shells)
    return results


def _bash(code: str, shells: list[int]) -> str:
    shell = subprocess.Popen(
        ["bash", "-eu", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    shells.append(shell.pid)
    printed, errors = shell.communicate(timeout=300)
    if shell.returncode:
        raise RuntimeError(f"exit code {shell.returncode} of\n{code}\n{printed}{errors}")
    return printed


def _end(shells: list[int]) -> None:
    """Stop what blocks left running; each shell has a process group of its own."""
    for shell in shells:
        with suppress(ProcessLookupError, AttributeError):
            os.killpg(shell, signal.SIGTERM)


def _python(code: str, names: dict[str, object]) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(code, "<page>", "exec"), names)
        except Exception:
            raise RuntimeError(f"{traceback.format_exc()} in\n{code}") from None
    return printed.getvalue()


def made_up() -> dict[str, object]:
    """Ratings of films by 6,000 users who like two of eight kinds, in the files and names of the README."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(7)
    titles = ["matrix", "alien", "titanic", *(f"film {number}" for number in range(3, 96))]
    chosen = np.argsort(rng.random((6000, 8)), axis=1)[:, :2]
    likes = (np.arange(96) % 8 == chosen[:, :1]) | (np.arange(96) % 8 == chosen[:, 1:])
    # the 20 largest of Gumbel draws are a sample without replacement; likes are ten times as likely
    items = np.argsort(-(rng.gumbel(size=likes.shape) + np.log(10) * likes), axis=1)[:, :20]
    liked = np.take_along_axis(likes, items, axis=1).ravel()
    users, items = np.repeat(np.arange(6000), 20), items.ravel()
    stars = np.clip(np.rint(3 + 1.5 * liked + rng.normal(0, 0.7, len(users))), 1, 5)
    frame = pa.table({"user": users.astype(str), "item": np.array(titles)[items], "rating": stars})
    test = rng.random(len(users)) < 0.1
    Path("items.txt").write_text("\n".join(titles), encoding="utf-8")
    for name, part in {"ratings": test | True, "history": ~test, "test": test}.items():
        parquet.write_table(frame.filter(pa.array(part)), f"{name}.parquet")
    Path("pairs.csv").write_text("user,item\n42,alien\n7,matrix\n", encoding="utf-8")
    return {"catalogue": titles, "frame": frame}


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
            app.env.note_reread()  # or the next build would take the page as it is


def setup(app: Sphinx) -> dict[str, bool]:
    """Run a page as it is read."""
    app.connect("source-read", _execute)
    return {"parallel_read_safe": False}


if __name__ == "__main__":
    for page in sys.argv[1:]:
        done = run_page(Path(page).read_text(encoding="utf-8"), yours=True)
        print(f"{page}: {len(done)} blocks run")
