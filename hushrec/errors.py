"""The errors a caller may want to catch; the command line maps them to exit codes."""

from typing import Any

#: The argument of pip that installs hushrec: a clone, until it is on a package index, and then "hushrec".
SOURCE = "."


class HushrecError(Exception):
    """Base of every error that hushrec raises on purpose (exit code 1).

    Examples
    --------
    >>> try:
    ...     hushrec.Budget(epsilon=-1, delta=1e-6)
    ... except hushrec.HushrecError as error:
    ...     print(type(error).__name__)
    InputError
    """


class InputError(HushrecError, ValueError):
    """A parameter, a file or a declaration is wrong; nothing was spent (exit code 2).

    Parameters
    ----------
    message : str
        The error and the remedy. It may begin with the parameter's name, for which the command line puts the
        name of the option.
    parameter : str, optional
        The parameter it is about.
    value : optional
        The value to pass: the sentence then ends in "; pass parameter=value."

    Examples
    --------
    >>> try:
    ...     hushrec.Budget(epsilon=5, delta=2)
    ... except hushrec.InputError as error:
    ...     print(error.parameter)
    delta
    """

    def __init__(self, message: str, *, parameter: str | None = None, value: Any = None) -> None:
        super().__init__(message if value is None else f"{message}; pass {parameter}={value!r}.")
        self.message = message
        self.parameter = parameter
        self.value = value


class ModelFileError(InputError):
    """A model file is missing, damaged, or of another format (exit code 2).

    Examples
    --------
    >>> with open("notes.txt", "w") as file:
    ...     done = file.write("no model")
    >>> try:
    ...     hushrec.load("notes.txt")
    ... except hushrec.ModelFileError:
    ...     print("no model file")
    no model file
    """


class BudgetError(HushrecError):
    """A release would pass the declared privacy budget and was refused (exit code 1).

    Examples
    --------
    >>> ratings = hushrec.realistic(200, 30, 3000, seed=0)
    >>> accountant = hushrec.Accountant(hushrec.Budget(epsilon=5, delta=1e-6))
    >>> model = hushrec.ItemBias().fit(ratings, accountant)
    >>> try:
    ...     hushrec.ItemBias().fit(ratings, accountant)           # the budget is spent
    ... except hushrec.BudgetError:
    ...     print("refused")
    refused
    """


class LedgerError(HushrecError):
    """The ledger cannot be opened, read or written, so nothing was released (exit code 1).

    Examples
    --------
    >>> with open("notes.txt", "w") as file:
    ...     done = file.write("no ledger")
    >>> try:
    ...     hushrec.Ledger("notes.txt")
    ... except hushrec.LedgerError:
    ...     print("nothing was released")
    nothing was released
    """


class MissingPackageError(HushrecError, ImportError):
    """Packages of an extra are needed and not installed (exit code 1)."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more packages; install them with: pip install 'hushrec[{extra}]'")
