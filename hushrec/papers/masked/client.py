"""A node of masked completion (Algorithm 2): masks its ratings, uploads them once, decrypts the reply.

The private key, token and mask coefficients, is in a file of its owner alone before anything is sent. A
repeated upload is the same to the last bit: two masks over one column would reveal their difference.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hushrec.disk import check_only_name, the_path
from hushrec.errors import InputError
from hushrec.network.messages import check, check_name
from hushrec.network.transport import Connection
from hushrec.papers.masked.masking import draw_coefficients, masked, unmasked
from hushrec.papers.masked.messages import Accepted, Column, Task, Upload
from hushrec.serving.modelfile import write_atomically
from hushrec.types import Array

#: Bytes of a task or a column: about 5,000,000 numbers.
_LONGEST = 1 << 26


@dataclass
class PrivateKey:
    """A node's secrets for one task; ``coefficients`` and ``uploads`` (digests) are by round."""

    path: Path
    node: str
    token: str
    catalogue: str
    coefficients: list[Array] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, path: str | os.PathLike[str], node: str, catalogue: str) -> PrivateKey:
        check_name(node)
        return cls(the_path(path, "The key file"), node, secrets.token_urlsafe(32), catalogue)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivateKey:
        """Refuse a key file that others may read."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                shared = os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077
                entries = json.load(file)
            node, token, catalogue = (str(entries[name]) for name in ("node", "token", "catalogue"))
            coefficients = [np.array(part, dtype=np.float64) for part in entries["coefficients"]]
            check(all(np.isfinite(part).all() for part in coefficients), "Coefficients are finite.")
            key = cls(
                the_path(path, "The key file"),
                node,
                token,
                catalogue,
                coefficients,
                [*map(str, entries["uploads"])],
            )
        except OSError as error:
            raise InputError(f"Cannot read the key file {str(path)!r} ({error.strerror}).") from None
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{str(path)!r} is not a key file of `hushrec papers node submit`.") from None
        if shared:
            raise InputError(
                f"Others may read the key file {str(path)!r}; close it with: chmod 600 {str(path)!r}"
            )
        return key

    def save(self) -> None:
        """For its owner's eyes only, on the disk before this returns."""
        check_only_name(self.path, "The key file")
        entries = {**vars(self), "coefficients": [part.tolist() for part in self.coefficients]}
        del entries["path"]
        write_atomically(self.path, [json.dumps(entries).encode()])


def submit(connection: Connection, key: PrivateKey, items: Array, values: Array) -> tuple[Task, Upload]:
    """Mask a node's ratings with its key, and upload them for the open round; return an eavesdropper's view.

    The key is saved before anything is sent. ``items`` are ascending positions in the catalogue.
    """
    task = connection.get(Task, "task", most=_LONGEST)
    if task.catalogue != key.catalogue:
        raise InputError("The server works on another catalogue; pass the one it was started with.")
    check(int(items[-1]) < len(task.keys[0]), "The server's key has fewer rows than the catalogue; refused.")
    round = len(task.keys)
    while len(key.coefficients) < round:
        key.coefficients.append(draw_coefficients(task.keys[len(key.coefficients)].shape[1], task.noise_sd))
    values = masked(values, items, task.keys, key.coefficients[:round])
    upload = Upload(key.node, round, np.asarray(items, dtype=np.int32), values)
    if len(key.uploads) < round - 1:
        raise InputError("The server is in round 2 and this node was not in round 1; it cannot join.")
    if len(key.uploads) < round:
        key.uploads.append(upload.fingerprint())
        key.save()
    elif key.uploads[round - 1] != upload.fingerprint():
        raise InputError(
            "This key file was used for other ratings, and a second upload with it would reveal them; use "
            "the same ratings, or another key file and node name."
        )
    connection.post(upload, Accepted, "columns", token=key.token)
    return task, upload


def fetch(connection: Connection, key: PrivateKey) -> Array:
    """Return the node's completed column, decrypted."""
    values = connection.get(Column, "columns", key.node, token=key.token, most=_LONGEST).values
    task = connection.get(Task, "task", most=_LONGEST)
    shapes = [(len(values), len(part)) for part in key.coefficients]
    expected = [public.shape for public in task.keys]
    check(
        shapes == expected, "The server's column, key and this node's key file do not go together; refused."
    )
    return unmasked(values, task.keys, key.coefficients)
