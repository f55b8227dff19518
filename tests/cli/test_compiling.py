"""Where no kernel was compiled before, the command that trains says why it takes seconds."""

from __future__ import annotations

import numpy as np

from hushrec.cli import show_model
from hushrec.kernels import first_use, least_squares
from tests.kernels.test_cache import SOURCE, load


def test_a_function_is_kept_once_it_was_compiled_and_until_it_changes(tmp_path):
    path = tmp_path / "total_of_numbers.py"
    path.write_text(SOURCE)
    assert not least_squares.simd.kept(load(path))
    load(path)(np.arange(3.0))
    assert least_squares.simd.kept(load(path))
    path.write_text(SOURCE + "\n# changed\n")
    assert not least_squares.simd.kept(load(path))


def test_it_is_said_once_on_stderr(capsys, monkeypatch):
    for before in (False, True):
        monkeypatch.setattr(first_use, "cold", lambda before=before: not before)
        show_model.first_use()
    said = capsys.readouterr()
    assert said.err == "Compiling kernels, once after installation; this takes a few seconds.\n"
    assert not said.out


def test_least_squares_are_one_kernel():
    """Each is seconds at first use: normal equations and solutions are one, for values of any type."""
    rows, indices, factors = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.ones((2, 3))
    least_squares.solve_rows(rows, indices, np.ones(3), factors, 1.0)
    before = len(least_squares._row_range.signatures)
    for dtype in (np.float32, np.float64):
        gram, rhs = least_squares.normal_equations(rows, indices, np.ones(3, dtype), factors)
        gram.setflags(write=False)
        least_squares.ridge_solve(gram, rhs, 1.0)
        least_squares.solve_rows(rows, indices, np.ones(3, dtype), factors, 1.0)
    assert len(least_squares._row_range.signatures) == before
