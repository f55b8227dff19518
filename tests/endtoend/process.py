"""The command line in a new process; its noise is recorded on a tape or played back from it."""

import itertools
import pickle
import sys
from pathlib import Path
from unittest import mock

from hushrec.cli import main
from tests.endtoend.seen import Tape

if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    tape = Tape(pickle.loads(path.read_bytes()) if path.exists() else None)
    try:
        with (
            mock.patch("hushrec.privacy.accountant.SystemNoise", tape.source()),
            mock.patch("rich.console.monotonic", itertools.count().__next__),
        ):
            main()
    finally:
        tape.check()
        if not path.exists():
            path.write_bytes(pickle.dumps(tape.calls))
