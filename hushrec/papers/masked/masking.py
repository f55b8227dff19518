"""The scheme of "Homomorphic Matrix Completion" (Liu, Li and Wang 2022): low-rank masks over low-rank data.

A node adds a random combination of public columns to its ratings, the server completes the masked matrix, and
the node subtracts its combination. This is obfuscation: :mod:`hushrec.papers.masked.reconstruction` computes
what the server learns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushrec.checks import check_numbers
from hushrec.privacy.noise import SystemNoise
from hushrec.types import Array


def public_key(n_items: int, mask_rank: int, seed: int) -> Array:
    """Return the public columns K of the masks (Algorithm 1, line 1), orthonormal.

    A mask coefficient of standard deviation s adds about ``s * sqrt(mask_rank / n_items)`` to an
    entry (docs/papers/errata.md). The seed is public too.

    Examples
    --------
    >>> from hushrec.papers.masked.masking import public_key
    >>> key = public_key(10, mask_rank=2, seed=0)
    >>> key.shape
    (10, 2)
    """
    check_numbers(mask_rank=(mask_rank, int, f"[1, {n_items}]"))
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n_items, mask_rank)))[0]


def draw_coefficients(mask_rank: int, noise_sd: float) -> Array:
    """Return a node's private key R_j (Algorithm 2, line 2), from the OS generator.

    Examples
    --------
    >>> from hushrec.papers.masked.masking import draw_coefficients
    >>> draw_coefficients(2, noise_sd=240.0).shape
    (2,)
    """
    check_numbers(noise_sd=(noise_sd, float, "(0, inf)"))
    return SystemNoise().add_gaussian(np.zeros(mask_rank), noise_sd, "mask")


def masked(values: Array, items: Array, keys: Sequence[Array], coefficients: Sequence[Array]) -> Array:
    """Return a node's upload (Algorithm 2, line 3): its ratings plus the mask of every round so far.

    Parameters
    ----------
    values, items : ndarray of shape (n_ratings,)
        Ratings and their positions in the catalogue.
    keys, coefficients : sequences of ndarrays of shape (n_items, mask_rank) and (mask_rank,)
        The public and the private key of each round.

    Examples
    --------
    >>> from hushrec.papers.masked.masking import draw_coefficients, masked, public_key
    >>> ratings, items = np.array([5.0, 3.0, 4.0, 1.0]), np.array([0, 2, 5, 7])
    >>> key = public_key(10, mask_rank=2, seed=0)                 # everybody has it
    >>> upload = masked(ratings, items, [key], [draw_coefficients(2, noise_sd=240.0)])
    >>> upload.shape
    (4,)
    """
    mask = sum(key[items] @ part for key, part in zip(keys, coefficients, strict=True))
    return np.asarray(values, dtype=np.float64) + mask


def unmasked(column: Array, keys: Sequence[Array], coefficients: Sequence[Array]) -> Array:
    """Return the completed column (Algorithm 2, line 7), shape (n_items,)."""
    return column - sum(key @ part for key, part in zip(keys, coefficients, strict=True))


def column_space(left: Array) -> Array:
    """Return the second round's public key (section 5)."""
    return np.linalg.qr(left)[0]


@dataclass(frozen=True)
class MaskingStatement:
    """The promise of masked completion: nothing that has an epsilon."""

    mask_rank: int
    rounds: int = 1

    #: Not private, for any unit, relation or noise scale.
    epsilon: None = None

    def text(self) -> str:
        paragraphs = (
            "PRIVACY STATEMENT: obfuscation, NOT PRIVATE. Epsilon: None.",
            "Masked completion protects against casual inspection only. It is not differential privacy, and"
            " no amount of mask noise makes it so.",
            f"The server, and anybody else who sees the public key and an upload, can compute ratings exactly"
            f" where more than {self.mask_rank} are uploaded: `hushrec papers audit-masked` does it. Two"
            " rounds do not help: the server holds the first.",
            "The list of items a node has rated is sent in clear.",
            "Still of use: where the server is trusted not to look, or is entitled to the data and merely"
            " should not store them as they are. For a promise against the server use two servers"
            " (docs/guides/two-servers.md).",
        )
        return "\n".join(line for part in paragraphs for line in textwrap.wrap(part, 80))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "obfuscation / outsourced computation",
            "private": False,
            "epsilon": None,
            "delta": None,
            "mask_rank": self.mask_rank,
            "rounds": self.rounds,
            "server_learns": [
                "the items each node rated",
                "every rating of a node that uploads more than mask_rank ratings",
            ],
        }
