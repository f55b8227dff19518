"""Primitives of secure aggregation against textbook arithmetic and published vectors."""

import hmac
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.errors import InputError

x25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
masks = pytest.importorskip("hushrec.engines.secure.masks", exc_type=ImportError)


def test_key_agreement_is_x25519():
    """RFC 7748, section 6.1: the public keys."""
    alice = masks.new_secret()
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert masks.public_part(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    others = {"bob": masks.public_part(bob)}
    one = masks.pair_keys(alice, "alice", others, "purpose", 3)["bob"]
    assert one == masks.pair_keys(bob, "bob", {"alice": masks.public_part(alice)}, "purpose", 3)["alice"]
    assert one != masks.pair_keys(alice, "alice", others, "purpose", 4)["bob"] and len(one) == 32
    with pytest.raises(InputError):
        masks.pair_keys(alice, "alice", {"bob": bytes(32)})  # a point of small order


def test_keys_of_a_pair_are_hkdf_of_the_shared_secret():
    """RFC 5869 by HMAC of the standard library, with the purpose in its fixed spelling."""
    alice, bob = (bytes([number]) * 32 for number in (1, 2))
    shared = x25519.X25519PrivateKey.from_private_bytes(alice).exchange(
        x25519.X25519PublicKey.from_public_bytes(masks.public_part(bob))
    )
    pseudorandom = hmac.digest(bytes(32), shared, "sha256")
    purpose = b"hushrec mask\0session\x007\0n1\0n2"
    expected = hmac.digest(pseudorandom, purpose + b"\x01", "sha256")
    found = masks.pair_keys(alice, "n2", {"n1": masks.public_part(bob)}, "hushrec mask", "session", 7)
    assert found == {"n1": expected}


def stream(seed, size):
    words = np.zeros(size, dtype=np.uint64)
    masks.add_stream(words, seed)
    return words


def test_stream_is_aes_in_counter_mode():
    """AES-256 of the counter blocks 0 and 1, from an independent call of the block cipher."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    seed = bytes(range(32))
    blocks = Cipher(algorithms.AES(seed), modes.ECB()).encryptor().update(bytes(31) + b"\x01")
    np.testing.assert_array_equal(stream(seed, 4), np.frombuffer(blocks, "<u8"))
    np.testing.assert_array_equal(stream(seed, 3), stream(seed, 4)[:3])
    for size in (10_001, masks._PIECE // 8, masks._PIECE // 4 + 3):  # in pieces, too
        long = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
        np.testing.assert_array_equal(stream(seed, size), np.frombuffer(long, "<u8"))
    words = np.arange(10_001, dtype=np.uint64)
    masks.add_stream(words, seed)
    masks.add_stream(words, seed, negative=True)
    np.testing.assert_array_equal(words, np.arange(10_001))


def test_secret_sharing_interpolates():
    secret = masks.new_secret()
    shares = dict(enumerate(masks.split(secret, 6, 3), 1))
    for places in itertools.combinations(range(1, 7), 3):
        assert masks.join({place: shares[place] for place in places}) == secret
    assert masks.join(shares) == secret
    for places in itertools.combinations(range(1, 7), 2):
        assert masks.join({place: shares[place] for place in places}) != secret


def test_shares_lie_on_a_random_polynomial():
    """Differences of order `threshold` vanish, those below do not, and two splits differ."""
    values = [int.from_bytes(share, "little") for share in masks.split(masks.new_secret(), 8, 4)]

    def differences(points):
        return [(b - a) % masks.PRIME for a, b in itertools.pairwise(points)]

    for _ in range(3):
        values = differences(values)
        assert any(values)
    assert len(set(values)) == 1 and not any(differences(values))
    assert masks.split(bytes(32), 3, 2) != masks.split(bytes(32), 3, 2)
    # coefficients are drawn one by one: with two alike, one share less than the threshold would be enough
    one, two = (int.from_bytes(share, "little") for share in masks.split(bytes(32), 2, 3))
    second = (two - 2 * one) * pow(2, -1, masks.PRIME) % masks.PRIME
    assert 0 != second != (one - second) % masks.PRIME != 0


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(1, 40))
def test_pairwise_masks_cancel(n_nodes, size):
    names = [f"n{number}" for number in range(n_nodes)]
    seeds = {frozenset(pair): masks.new_secret() for pair in itertools.combinations(names, 2)}
    total = np.zeros(size, dtype=np.uint64)
    for name in names:
        pairs = {other: seeds[frozenset((name, other))] for other in names if other != name}
        total += masks.pairwise_total(name, pairs, size)
    assert not total.any()


def test_sealed_shares_are_bound_to_their_way():
    key = masks.new_secret()
    sealed = masks.seal(key, 3, "a", "b", b"share")
    assert masks.unseal(key, 3, "a", "b", sealed) == b"share"
    for number, sender, receiver in ((4, "a", "b"), (3, "b", "a")):
        with pytest.raises(InputError):
            masks.unseal(key, number, sender, receiver, sealed)
    with pytest.raises(InputError):
        masks.unseal(key, 3, "a", "b", bytes([sealed[0] ^ 1]) + sealed[1:])


def test_what_must_be_fresh_is_drawn_anew():
    """Each equal by a chance below 2^-90."""
    key = masks.new_secret()
    assert masks.new_secret() != key
    first, second = (masks.seal(key, 3, "a", "b", b"share") for _ in range(2))
    assert first != second and first[:12] != second[:12]
