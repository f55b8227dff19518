"""The command and the model of a command line, read before anything that they need is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from hushrec.registry import JOBS, best


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
