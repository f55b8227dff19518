"""The scheme against the paper's formulas, written out."""

import math

import numpy as np
import pytest

from hushrec.errors import InputError
from hushrec.papers.masked import masking


def test_key_is_orthonormal_and_reproducible():
    key = masking.public_key(50, 7, seed=3)
    np.testing.assert_allclose(key.T @ key, np.eye(7), atol=1e-12)
    np.testing.assert_array_equal(key, masking.public_key(50, 7, seed=3))
    assert not np.array_equal(key, masking.public_key(50, 7, seed=4))


@pytest.mark.parametrize("rounds", [1, 2])
def test_decryption_undoes_encryption(rounds):
    keys = [masking.public_key(40, size, seed) for seed, size in enumerate((4, 6))][:rounds]
    coefficients = [masking.draw_coefficients(key.shape[1], 50.0) for key in keys]
    ratings = np.random.default_rng(0).uniform(1, 5, 40)
    items = np.array([3, 8, 21])
    upload = masking.masked(ratings[items], items, keys, coefficients)
    expected = [
        ratings[i] + sum(k[i, a] * c[a] for k, c in zip(keys, coefficients) for a in range(k.shape[1]))
        for i in items
    ]
    np.testing.assert_allclose(upload, expected, rtol=1e-12)
    whole = masking.masked(ratings, np.arange(40), keys, coefficients)
    np.testing.assert_allclose(masking.unmasked(whole, keys, coefficients), ratings, atol=1e-11)


def test_coefficients_have_the_declared_spread_and_never_repeat():
    drawn = masking.draw_coefficients(20_000, 3.0)
    assert abs(drawn.std() / 3.0 - 1) < 5 / math.sqrt(2 * 20_000)
    assert abs(drawn.mean()) < 5 * 3 / math.sqrt(20_000)
    assert not np.array_equal(drawn, masking.draw_coefficients(20_000, 3.0))


def test_the_completed_matrix_gives_all_but_the_mask_columns():
    """Every user's ratings off span(K), exactly; all of them where their space is known (Definition 4)."""
    generator = np.random.default_rng(0)
    basis = generator.standard_normal((100, 3))
    ratings = basis @ generator.standard_normal((3, 30))
    key = masking.public_key(100, 10, 0)
    hidden = ratings + key @ generator.normal(0, 1e4, (10, 30))
    off = np.eye(100) - key @ key.T
    np.testing.assert_allclose(off @ hidden, off @ ratings, atol=1e-8)
    known = basis @ np.linalg.lstsq(off @ basis, off @ hidden, rcond=None)[0]
    np.testing.assert_allclose(known, ratings, atol=1e-8)


def test_what_the_statement_says():
    """As a dictionary and as text it promises nothing and lists what the server learns."""
    for rounds, statement in ((1, masking.MaskingStatement(7)), (2, masking.MaskingStatement(7, 2))):
        told = statement.to_dict()
        assert (told["private"], told["epsilon"], told["delta"]) == (False, None, None)
        assert (told["mask_rank"], told["rounds"], len(told["server_learns"])) == (7, rounds, 2)
        text = " ".join(statement.text().split())
        assert text.startswith("PRIVACY STATEMENT: obfuscation, NOT PRIVATE. Epsilon: None.")
        assert "where more than 7 are uploaded" in text and "items a node has rated is sent in clear" in text


def test_the_second_rounds_key_spans_the_columns():
    left = np.random.default_rng(0).standard_normal((20, 4))
    key = masking.column_space(left)
    np.testing.assert_allclose(key.T @ key, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(key @ (key.T @ left), left, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: masking.public_key(5, 6, 0), "mask_rank=6 is out of range; pass an integer from 1 to 5"),
        (lambda: masking.public_key(5, 0, 0), "mask_rank=0 is out of range"),
        (lambda: masking.draw_coefficients(3, 0.0), "noise_sd=0.0 is out of range"),
        (lambda: masking.draw_coefficients(3, math.inf), "noise_sd=inf is out of range"),
        (lambda: masking.masked(np.ones(2), np.arange(2), [np.eye(3)], []), "argument"),
        (lambda: masking.unmasked(np.ones(3), [np.eye(3)], []), "argument"),
    ],
)
def test_bad_input(call, words):
    assert masking.public_key(5, 5, 0).shape == (5, 5) and masking.public_key(5, 1, 0).shape == (5, 1)
    with pytest.raises(InputError if words != "argument" else ValueError, match=words):
        call()
