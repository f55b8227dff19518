"""Run a command line in this process, as a shell would see it."""

import contextlib
import io
import sys
from types import SimpleNamespace
from unittest.mock import patch

from hushrec.cli import run


class Terminal(io.StringIO):
    """Somebody sits there."""

    def isatty(self):
        return True


def invoke(*words, typed=None):
    """Return exit code and output; `typed` is the input at a terminal."""
    stdout, stderr = io.StringIO(), io.StringIO() if typed is None else Terminal()
    stdin = patch.object(sys, "stdin", io.StringIO() if typed is None else Terminal(typed))
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), stdin:
        code = run([str(word) for word in words])
    out, err = stdout.getvalue(), stderr.getvalue()
    return SimpleNamespace(exit_code=code, stdout=out, stderr=err, output=out + err)
