"""``hushrec sign``."""

from __future__ import annotations

from pathlib import Path

from hushrec.cli import output
from hushrec.cli.files import output_file
from hushrec.cli.options import File, Force, Json
from hushrec.disk import content_of
from hushrec.errors import InputError
from hushrec.serving.modelfile import write_atomically


def sign(
    dossier: str, signature: str, /, *, public_key: File, force: Force = False, as_json: Json = False
) -> None:
    """Write the signed dossier from DOSSIER (its .tosign) and a signature by openssl.

    The private key stays where it is.

      hushrec certify model.hush --controller "ACME GmbH" --out dossier.html
      openssl pkeyutl -sign -rawin -inkey officer.pem \\
                      -in dossier.tosign -out dossier.sig
      hushrec sign dossier.tosign dossier.sig --public-key officer.pub.pem

    Parameters
    ----------
    dossier
        dossier.tosign of hushrec certify; dossier.json is written next to it.
    signature
        The file of 64 bytes that openssl wrote.
    public_key
        The key of the signature, from: openssl pkey -in officer.pem -pubout -out officer.pub.pem
    """
    from hushrec import dossier as made  # the help does not need it

    envelope = made.envelope_of(content_of(dossier, "Dossier"))
    if envelope["signatures"]:
        raise InputError(f"{dossier!r} is signed already; pass a .tosign of hushrec certify.")
    out = str(Path(dossier).with_suffix(".json"))
    target = output_file(out, (dossier, signature, public_key), force)
    key = made.public_key(public_key)
    complete = made.attach(envelope, content_of(signature, "Signature"), key)
    write_atomically(target, [made.canonical(complete)])
    output.done(as_json, {"file": out, "public_key": key}, f"Wrote {out}, signed with key {key}")
