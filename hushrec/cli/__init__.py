"""The command line: the only place that prints or parses arguments, and the only one that knows cyclopts.

One command is one file. Its function's signature and docstring are its options and its help.

Exit codes: 0 done, 1 refused (budget, ledger) or failed, 2 bad input, 130 interrupted. Errors are one line on
stderr. ``--json`` prints one JSON object: infinity is "inf", and undefined values are null.
"""

from hushrec.cli.app import main, run

__all__ = ["main", "run"]
