"""Identities of nodes: one secret in a file of its own, whose public part is registered before a training."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path

from hushrec.engines.secure import masks
from hushrec.errors import InputError, MissingPackageError

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError:
    raise MissingPackageError("Secure aggregation", "outsourcing") from None

#: Of a secret and of an Ed25519 or X25519 key.
_BYTES = 32


class Identity:
    """A node's keys: Ed25519 to sign, X25519 for what neighbours send it, both derived from one secret.

    Parameters
    ----------
    secret : bytes
        32 random bytes. Whoever has them is this node, and a node started anew with them is itself again.

    Examples
    --------
    >>> from hushrec.engines.secure.identity import Identity
    >>> me = Identity.of_file("node.key")                         # made where there is none; keep it secret
    >>> me.public == Identity.of_file("node.key").public
    True
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _BYTES:
            raise InputError(f"A node's secret has {_BYTES} bytes, not {len(secret)}.")
        self._signing = Ed25519PrivateKey.from_private_bytes(masks.derived(secret, b"hushrec sign"))
        self.envelope_key = masks.derived(secret, b"hushrec envelope")

    @classmethod
    def of_file(cls, path: str | os.PathLike[str]) -> Identity:
        """Read a node's secret, or draw one and write it where there is no such file."""
        try:
            with contextlib.suppress(FileExistsError):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_BYTES))
                    file.flush()
                    os.fsync(handle)
            return cls(Path(path).read_bytes())
        except OSError as error:
            raise InputError(f"Cannot read or write the identity {str(path)!r} ({error.strerror}).") from None

    @property
    def public(self) -> bytes:
        """The part that is registered: 32 bytes to verify signatures with, 32 to seal shares for."""
        return self._signing.public_key().public_bytes_raw() + masks.public_part(self.envelope_key)

    def sign(self, *words: str) -> bytes:
        """Sign words in order."""
        return self._signing.sign(json.dumps(words).encode())


def signed(public: bytes, signature: bytes, *words: str) -> bool:
    """Tell whether a registered node signed these words."""
    try:
        Ed25519PublicKey.from_public_bytes(public[:_BYTES]).verify(signature, json.dumps(words).encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def enrolment_words(node: str, token: str) -> tuple[str, ...]:
    """Return what a node signs to enrol: nobody else can take its name, and no other token its place."""
    return "enrolment", node, hashlib.sha256(token.encode()).hexdigest()


def envelope_part(public: bytes) -> bytes:
    """The key of a registered node that shares are sealed for."""
    return public[_BYTES:]
