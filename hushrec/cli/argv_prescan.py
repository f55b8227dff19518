"""The command and the model of a command line, read before anything that they need is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from hushrec.registry import JOBS, best

#: Models that take all kernels of a first use.
_AHEAD = ("both", "private-als")


def begin_compiling(command: str, words: Sequence[str]) -> None:
    """Begin to compile where a command will train the usual model and no kernel was compiled before.

    A second process does, while this one loads the library and reads.
    """
    if command in ("train", "retrain", "tune") and (value_of("--model", words) or best_of(words)) in _AHEAD:
        from hushrec.kernels.first_use import begin  # and no other command waits for it

        begin()


def value_of(option: str, words: Sequence[str]) -> str | None:
    """Return what the command line gives for an option, before anything else of it is read."""
    value = None
    for word, after in zip(words, [*words[1:], None]):
        if word == option:
            value = after
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value


def best_of(words: Sequence[str]) -> str:
    """The model that a command line without its name chooses."""
    job = value_of("--for", words) or ("lists" if "--implicit" in words else "both")
    private = (value_of("--epsilon", words) or "").strip().lower() not in ("inf", "infinity")
    return best(job, private) if job in JOBS else best("both", private)
