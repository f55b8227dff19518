"""The errors a caller may want to catch; the command line maps them to exit codes."""

from typing import Any


class HushrecError(Exception):
    """Base of every error that hushrec raises on purpose (exit code 1)."""


class InputError(HushrecError, ValueError):
    """A parameter, a file or a declaration is wrong; nothing was spent (exit code 2).

    Parameters
    ----------
    message : str
        What is wrong and what to do. It may begin with the parameter's name, for which the command line puts
        the name of the option.
    parameter : str, optional
        The parameter it is about.
    value : optional
        What to pass for it: then the sentence ends in "; pass parameter=value."
    """

    def __init__(self, message: str, *, parameter: str | None = None, value: Any = None) -> None:
        super().__init__(message if value is None else f"{message}; pass {parameter}={value!r}.")
        self.message = message
        self.parameter = parameter
        self.value = value


class ModelFileError(InputError):
    """A model file is missing, damaged, or of another format (exit code 2)."""


class BudgetError(HushrecError):
    """A release would pass the declared privacy budget and was refused (exit code 1)."""


class LedgerError(HushrecError):
    """The ledger cannot be opened, read or written, so nothing was released (exit code 1)."""


class MissingPackageError(HushrecError, ImportError):
    """What was asked for needs packages of an extra that is not installed (exit code 1)."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages; install them with: pip install 'hushrec[{extra}]'")
