"""Ed25519 signatures on dossiers."""

from __future__ import annotations

import os
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from hushrec.checks import check_kind
from hushrec.disk import content_of
from hushrec.dossier.form import PAYLOAD_TYPE, decoded, encoded, payload_of, signed_part
from hushrec.errors import InputError

#: Bytes of a signature.
_SIGNATURE = 64


def sign(facts: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return a DSSE envelope with the facts as an in-toto statement, signed.

    Parameters
    ----------
    facts : dict
        The result of `certify`.
    key : Ed25519PrivateKey
        A key in this process. For a key elsewhere: `unsigned`, `to_sign` and `attach`.

    Returns
    -------
    dict
        `canonical` writes it. The id of the key is the public key in hexadecimal.

    Examples
    --------
    See :func:`hushrec.dossier.check`.
    """
    check_kind(key, Ed25519PrivateKey, "key", "pass a key of cryptography's Ed25519PrivateKey")
    envelope = unsigned(facts)
    return attach(envelope, key.sign(to_sign(envelope)), key.public_key().public_bytes_raw().hex())


def unsigned(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope of `sign`, without a signature."""
    return {"payload": encoded(payload_of(facts)), "payloadType": PAYLOAD_TYPE, "signatures": []}


def to_sign(envelope: dict[str, Any]) -> bytes:
    """Return the bytes that a key signs: DSSE's encoding of the statement, which is readable JSON."""
    return signed_part(decoded(envelope["payload"]))


def attach(envelope: dict[str, Any], signature: bytes, public_key: str) -> dict[str, Any]:
    """Return the envelope with a signature of `to_sign`.

    Parameters
    ----------
    envelope : dict
        From `unsigned`.
    signature : bytes
        64 bytes, as openssl pkeyutl writes them.
    public_key : str
        32 bytes in hexadecimal, from `public_key`.

    Raises
    ------
    InputError
        It is not this key's signature of this dossier.

    Examples
    --------
    >>> book = hushrec.Ledger("ledger.sqlite")
    >>> accountant = hushrec.Accountant(hushrec.Budget(5, 1e-6), ledger=book, dataset="shop")
    >>> model = hushrec.ItemBias().fit(hushrec.realistic(200, 30, 3000, seed=0), accountant)
    >>> model.save("model.hush")
    >>> facts = hushrec.dossier.certify("model.hush", book, controller="ACME GmbH", attacks=False)
    >>> envelope = hushrec.dossier.unsigned(facts)
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> key = Ed25519PrivateKey.generate()                     # on another machine, as the next line
    >>> signature = key.sign(hushrec.dossier.to_sign(envelope))
    >>> public = key.public_key().public_bytes_raw().hex()
    >>> dossier = hushrec.dossier.attach(envelope, signature, public)
    >>> dossier["signatures"][0]["keyid"] == public
    True
    """
    entry = {"keyid": public_key, "sig": encoded(signature)}
    complete = {**envelope, "signatures": [entry]}
    if not signed(complete):
        what = "is not this key's signature of this dossier; sign its .tosign file"
        if len(signature) != _SIGNATURE:
            what = f"has {len(signature)} bytes; pass the {_SIGNATURE} that openssl pkeyutl writes"
        raise InputError(f"The signature {what}.", parameter="signature")
    return complete


def signed(envelope: dict[str, Any]) -> bool:
    """Check the signature with the public key in the envelope."""
    (entry,) = envelope["signatures"]
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry["keyid"]))
        key.verify(decoded(entry["sig"]), to_sign(envelope))
    except InvalidSignature:
        return False
    return True


def public_key(path: str | os.PathLike[str]) -> str:
    """Read an Ed25519 public key in PEM, as openssl writes it; its 32 bytes in hexadecimal."""
    content = content_of(path, "The key", parameter="public_key")
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, Ed25519PublicKey):
        return key.public_bytes_raw().hex()
    private = " It holds a private key: keep it secret." * (b"PRIVATE KEY" in content)
    raise InputError(
        f"{str(path)!r} is not an Ed25519 public key in PEM; make one with: openssl pkey -in officer.pem"
        f" -pubout -out officer.pub.pem{private}",
        parameter="public_key",
    )
