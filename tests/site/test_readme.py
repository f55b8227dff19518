"""Every line of the README runs, in one process, and so do those of the site's first page."""

import re
import shlex
from pathlib import Path

from docs._ext import execute
from tests.command_line import invoke

README = (Path(__file__).parents[2] / "README.md").read_text()


def in_this_process(block):
    """A shell's block of hushrec's lines alone."""
    printed = []
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "hushrec"
        done = invoke(*words)
        assert done.exit_code == 0, done.stderr
        printed.append(done.stdout)
    return "".join(printed)


def test_every_line_of_the_readme_runs():
    done = execute.run_page(README, yours=True, bash=in_this_process)
    assert len(done) == 2
    (_, commands), (_, python) = done
    assert "Personal taste: " in commands and "unit: user, relation: add-remove" in commands and python == ""


def test_every_line_of_the_first_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "index.md").read_text()
    assert len(execute.run_page(page, yours=True, bash=in_this_process)) == 1
