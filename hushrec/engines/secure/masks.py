"""Pairwise masks of secure aggregation: key agreement, streams, sealed shares, and Shamir's secret sharing.

Primitives are those of the `cryptography` package: X25519, HKDF-SHA256, AES-256-CTR as the stream,
ChaCha20-Poly1305 for shares on their way. Shamir's scheme is over the prime 2^255 - 19, in which both kinds
of secrets, stream seeds and private keys, are drawn.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hushrec.errors import InputError, MissingPackageError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingPackageError("Secure aggregation", "outsourcing") from None

#: Field of the shares: holds 32 bytes but for a chance of 2^-250.
PRIME = 2**255 - 19
#: Of a key, a seed or a share.
_BYTES = 32
#: Bytes of a stream that are made at once: few enough to stay in the processor's cache.
_PIECE = 1 << 18
_ZEROS = bytes(_PIECE)

Words = NDArray[np.uint64]


def new_secret() -> bytes:
    """32 bytes, a uniform number below the prime: a stream's seed or a private key."""
    return secrets.randbelow(PRIME).to_bytes(_BYTES, "little")


def public_part(private: bytes) -> bytes:
    """Public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def derived(secret: bytes, purpose: bytes) -> bytes:
    """32 bytes of a secret for one purpose."""
    return HKDF(SHA256(), _BYTES, salt=None, info=purpose).derive(secret)


def pair_keys(private: bytes, node: str, publics: Mapping[str, bytes], *purpose: object) -> dict[str, bytes]:
    """32 bytes for each other node that the two compute alike, and nobody else, for one purpose.

    Parameters
    ----------
    private : bytes
        This node's private key.
    node : str
    publics : mapping of str to bytes
        The others' public keys.
    *purpose
        What the keys are for: one session, or one release of it.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    found = {}
    for other, public in publics.items():
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise InputError("A public key is not valid.") from None
        found[other] = derived(shared, _joined(*purpose, *sorted((node, other))))
    return found


def add_stream(words: Words, seed: bytes, *, negative: bool = False) -> None:
    """Add a seed's stream to integers modulo 2^64, or take it off, in place."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    change = np.subtract if negative else np.add
    buffer = bytearray(_PIECE + 15)  # the library asks for almost a block more than it fills
    piece = np.frombuffer(buffer, dtype="<u8", count=_PIECE // 8)
    for start in range(0, len(words), len(piece)):
        part = words[start : start + len(piece)]
        encryptor.update_into(_ZEROS[: 8 * len(part)] if len(part) < len(piece) else _ZEROS, buffer)
        change(part, piece[: len(part)], out=part)


def seal(key: bytes, number: int, sender: str, receiver: str, content: bytes) -> bytes:
    """Encrypt what one node sends another in one release; sent again, it is encrypted afresh."""
    nonce = secrets.token_bytes(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, _joined(number, sender, receiver))


def unseal(key: bytes, number: int, sender: str, receiver: str, sealed: bytes) -> bytes:
    """Inverse of `seal`; anything that was changed on the way is refused."""
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:12], sealed[12:], _joined(number, sender, receiver))
    except (InvalidTag, ValueError):
        raise InputError("A share was changed on its way.") from None


def _joined(*words: object) -> bytes:
    return "\0".join(map(str, words)).encode()


def split(secret: bytes, shares: int, threshold: int) -> list[bytes]:
    """Shamir 1979: any ``threshold`` of the shares give the secret, fewer tell nothing of it."""
    coefficients = [
        int.from_bytes(secret, "little"),
        *(secrets.randbelow(PRIME) for _ in range(threshold - 1)),
    ]
    points = []
    for place in range(1, shares + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        points.append(value.to_bytes(_BYTES, "little"))
    return points


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret behind shares by their place (from 1), by Lagrange interpolation at 0."""
    total = 0
    for place, share in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        total += int.from_bytes(share, "little") * above * pow(below, -1, PRIME)
    return (total % PRIME).to_bytes(_BYTES, "little")


def pairwise_total(node: str, seeds: Mapping[str, bytes], size: int) -> Words:
    """Sum of a node's pairwise masks: plus towards later names, minus towards earlier ones."""
    total = np.zeros(size, dtype=np.uint64)
    for other, seed in seeds.items():
        add_stream(total, seed, negative=node > other)
    return total
