"""``hushrec sign``."""

from __future__ import annotations

import os
from pathlib import Path

from hushrec.cli import output
from hushrec.cli.options import File, Json
from hushrec.disk import content_of
from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically


def sign(dossier: str, signature: str, /, *, public_key: File, as_json: Json = False) -> None:
    """Add a signature to DOSSIER (its .json), made by openssl with a private key that stays where it is.

      hushrec certify model.hush --controller "ACME GmbH" --out dossier.html
      openssl pkeyutl -sign -rawin -inkey officer.pem \\
                      -in dossier.tosign -out dossier.sig
      hushrec sign dossier.json dossier.sig --public-key officer.pub.pem

    Parameters
    ----------
    dossier
        A JSON file that hushrec certify wrote.
    signature
        The file of 64 bytes that openssl wrote.
    public_key
        The key of the signature, from: openssl pkey -in officer.pem -pubout -out officer.pub.pem
    """
    from hushrec import dossier as made  # the help does not need it

    envelope = made.envelope_of(content_of(dossier, "Dossier"))
    if envelope["signatures"]:
        raise InputError(
            f"{dossier!r} is signed already; write it again with hushrec certify.", parameter="dossier"
        )
    key = made.public_key(public_key)
    complete = made.attach(envelope, content_of(signature, "Signature"), key)
    write_atomically(Path(os.path.realpath(dossier)), [made.canonical(complete)])
    output.done(as_json, {"file": dossier, "public_key": key}, f"Signed {dossier} with key {key}")
