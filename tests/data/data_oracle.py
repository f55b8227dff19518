"""Slow twins of the data room, written from the documented rules with dictionaries and Python integers."""

from __future__ import annotations

import hashlib

import numpy as np

MASK = (1 << 64) - 1


def build(rows, catalogue, low, high):
    """Ratings of each user from rows of plain (user, item, rating); ids are text or None, ratings are floats.

    Returns {user: {item position: float32}} in order of first appearance of a user in the rows.
    """
    position = {item: index for index, item in enumerate(catalogue)}
    users = {}
    for user, item, rating in rows:
        if user is None:
            continue
        own = users.setdefault(user, {})
        if item in position and np.isfinite(rating) and low <= np.float32(rating) <= high:
            own[position[item]] = np.float32(rating)
    return {user: own for user, own in users.items() if own}


def as_dictionary(ratings):
    """Ratings in the form that `build` returns, read through to the CSR arrays."""
    matrix = ratings.matrix
    users = ratings.user_texts.to_pylist()
    found = {}
    for row, user in enumerate(users):
        part = slice(matrix.indptr[row], matrix.indptr[row + 1])
        items = matrix.indices[part].tolist()
        assert items == sorted(set(items))
        found[user] = dict(zip(items, matrix.data[part], strict=True))
    return found


def splitmix(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def text_key(text):
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"hushrec.user.v1").digest()
    return int.from_bytes(digest, "little")


def user_base(user, seed, purpose):
    return splitmix(text_key(user) ^ splitmix(text_key(f"{purpose}:{seed}")))


def item_key(user, item, seed, purpose):
    """A hash of the user's id, the item, the seed and nothing else."""
    return splitmix((user_base(user, seed, purpose) + 0x9E3779B97F4A7C15 * (item + 1)) & MASK)


def item_order(user, items, seed, purpose):
    """One user's items in their keyed order."""
    return sorted(items, key=lambda item: item_key(user, item, seed, purpose))


def lines(data):
    """Lines of a file: every kind of line break ends one, empty lines do not count."""
    unified = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return [line for line in unified.split(b"\n") if line]
