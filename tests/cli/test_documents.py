"""Every command line that is printed in the documents, and in the help of every command."""

import re
import shlex
from pathlib import Path

import pytest

from hushrec.cli import app as app_module
from tests.command_line import invoke

ROOT = Path(__file__).parents[2]
new_application = app_module._application
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "PRIVACY.md",
    "SECURITY.md",
    *sorted(map(str, (ROOT / "docs").rglob("*.md"))),
]


def printed_in(text):
    """Command lines in the code blocks of a page or in the examples of a help text."""
    text = re.sub(r"\\\n\s*", " ", text)
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [line for line in lines if re.match(r"hushrec\s+[a-z-]+\s", line) and "..." not in line]


def blocks(page):
    return "\n".join(re.findall(r"```\w*\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))


def commands(app=None, before=()):
    for name, command in (app or new_application()).resolved_commands().items():
        if not name.startswith("-"):
            yield [*before, name]
            yield from commands(command, [*before, name])


DOCUMENTED = sorted({line for page in PAGES for line in printed_in(blocks(page))})


@pytest.mark.parametrize("line", DOCUMENTED)
def test_what_documents_print_is_understood(line, monkeypatch):
    assert_understood(line, monkeypatch)


@pytest.mark.parametrize("command", [[], *commands()], ids=lambda words: " ".join(words) or "hushrec")
def test_help_of_every_command(command, monkeypatch):
    """Examples are understood, every option has a text, and it fits a terminal."""
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        done = invoke(*command, "--help")
        assert done.exit_code == 0 and done.stderr == "" and done.stdout.startswith("Usage: hushrec")
        described, _, options = done.stdout.partition("\n\n")[2].partition("Options:")
        examples = printed_in(described)
        assert examples
        prose = [line for line in done.stdout.splitlines() if "hushrec " not in line and "--" not in line]
        assert all(len(line) <= min(columns, 80) for line in prose)
        for option, text in re.findall(r"^  (-[^ ].*?)(?:  +|\n +)(\S.*)$", options, flags=re.MULTILINE):
            assert text and not text.startswith("["), option
        assert "default: None" not in options and "--empty-" not in options
        assert command or columns < 80 or len(done.stdout.splitlines()) <= 48  # of 35 commands
    for line in examples:
        assert_understood(line, monkeypatch)


def assert_understood(line, monkeypatch):
    """The command is found, and everything on the line is one of its options; nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    app = new_application()
    _, apps, _ = app.parse_commands(words)
    command, bound, ignored = app.parse_args(words, exit_on_error=False, print_error=False)
    assert command is apps[-1].default_command
