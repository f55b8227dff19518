"""Run a command line in this process, as a shell would see it."""

import contextlib
import io
from types import SimpleNamespace

from hushrec.cli import run


def invoke(*words):
    """Exit code and what was printed."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run([str(word) for word in words])
    out, err = stdout.getvalue(), stderr.getvalue()
    return SimpleNamespace(exit_code=code, stdout=out, stderr=err, output=out + err)
