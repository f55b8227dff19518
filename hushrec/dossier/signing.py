"""Ed25519 signatures on dossiers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hushrec.checks import check_kind
from hushrec.disk import content_of
from hushrec.dossier.form import PAYLOAD_TYPE, decoded, encoded, payload_of, signed_part
from hushrec.errors import InputError

_MAKE = "openssl genpkey -algorithm ed25519 -out"
_PUBLIC = "openssl pkey -in KEY -pubout -out KEY.pub"


def sign(facts: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return a DSSE envelope with the facts as an in-toto statement, signed.

    Parameters
    ----------
    facts : dict
        The result of `certify`.
    key : Ed25519PrivateKey
        `private_key` reads one.

    Returns
    -------
    dict
        `canonical` writes it. The id of the key is the public key in hexadecimal.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.save("model.hush")
    >>> facts = hushrec.dossier.certify("model.hush", book, controller="ACME GmbH", attacks=False)
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> dossier = hushrec.dossier.sign(facts, Ed25519PrivateKey.generate())
    >>> dossier["payloadType"]
    'application/vnd.in-toto+json'
    """
    check_kind(key, Ed25519PrivateKey, "key", "read one with private_key(path)")
    payload = payload_of(facts)
    public, value = key.public_key().public_bytes_raw().hex(), key.sign(signed_part(payload))
    return {
        "payload": encoded(payload),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": public, "sig": encoded(value)}],
    }


def signed(envelope: dict[str, Any]) -> bool:
    """Check the signature with the public key in the envelope."""
    (entry,) = envelope["signatures"]
    public = bytes.fromhex(entry["keyid"])
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(decoded(entry["sig"]), signed_part(decoded(envelope["payload"])))
    except InvalidSignature:
        return False
    return public.hex() == entry["keyid"]


def private_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """Read an Ed25519 private key in PEM, as openssl writes it."""
    if not Path(path).exists():
        raise InputError(f"There is no key at {str(path)!r}; make one with: {_MAKE} {path}", parameter="key")
    return _key(path, "private", lambda octets: serialization.load_pem_private_key(octets, None))


def public_key(path: str | os.PathLike[str]) -> str:
    """Read an Ed25519 public key in PEM, as openssl writes it; its 32 bytes in hexadecimal."""
    key: Ed25519PublicKey = _key(path, "public", serialization.load_pem_public_key)
    return key.public_bytes_raw().hex()


def _key(path: str | os.PathLike[str], kind: str, load: Any) -> Any:
    parameter, wanted = ("key", f"{_MAKE} KEY") if kind == "private" else ("public_key", _PUBLIC)
    content = content_of(path, "The key", parameter=parameter)
    try:
        key = load(content)
    except TypeError:
        raise InputError(
            f"The key {str(path)!r} needs a password; pass a key without one, in a file that only you can "
            "read.",
            parameter=parameter,
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey if kind == "private" else Ed25519PublicKey):
        raise InputError(
            f"{str(path)!r} is not an Ed25519 {kind} key in PEM; make one with: {wanted}", parameter=parameter
        )
    return key
