"""Machine code that is kept on the disk is that of the function and the types that it is loaded for."""

from __future__ import annotations

import importlib.util

import numpy as np

SOURCE = """
from hushrec.kernels import simd

@simd.compiled
def total(array):
    result = array[0] - array[0]
    for number in array:
        result += number
    return result
"""


def load(path):
    """The module anew, as another process would."""
    spec = importlib.util.spec_from_file_location("total_of_numbers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.total


def test_two_that_compile_at_once_do_not_mix_their_files(tmp_path):
    """Both find the cache empty; one compiles for integers, the other for floats, writing in turn."""
    path = tmp_path / "total_of_numbers.py"
    path.write_text(SOURCE)
    integers, floats = np.arange(1, 4), np.arange(1.0, 4.0)
    one, other = load(path), load(path)
    write = one._cache._cache_file._save_data
    other._cache._cache_file._load_index = dict

    def other_writes_first(name, data):
        assert other(floats) == 6.0
        write(name, data)

    one._cache._cache_file._save_data = other_writes_first
    assert one(integers) == 6
    again = load(path)
    assert again(integers) == 6
    assert again(floats) == 6.0
    assert sum(again.stats.cache_hits.values()) == 1  # one of them was lost, and compiled again
