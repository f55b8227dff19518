"""Tables read, sampled, dealt out and cleaned in pieces as small as a test wants."""

from hushrec.data import files, keys, preparing, textfiles

_SIZES = {
    "octets": (textfiles, "_BLOCK_BYTES"),
    "batch": (files, "_BATCH_ROWS"),
    "cells": (keys, "_CELLS"),
    "held": (preparing, "_HELD_ROWS"),
    "folded": (preparing, "_FOLDED_ROWS"),
}


def in_pieces(monkeypatch, **sizes):
    """Patch how much the library takes at a time."""
    for name, size in sizes.items():
        monkeypatch.setattr(*_SIZES[name], size)
