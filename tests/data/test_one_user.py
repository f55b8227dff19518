"""One user's own ratings are read by a short way: the same rows as by the long one, for any input."""

import math
import uuid
from decimal import Decimal

import numpy as np
from hypothesis import given, strategies as st

from hushrec.data import Domain, Ratings

ITEMS = ("a", " b", 7, "007", -3, 2.5, True, uuid.UUID(int=5), b"\xff", "\ud800", "naïve ☂", 2**60, "x" * 300)
IDS = st.one_of(
    st.sampled_from(ITEMS),
    st.sampled_from(
        [" a ", "b", "7", "7.0", 7.0, np.int32(7), "true", b"a", str(uuid.UUID(int=5)), str(2**60)]
    ),
    st.sampled_from(
        [None, math.nan, math.inf, float(2**60), [], {}, (), "", "\ufffdxff", "unknown", 10**5000]
    ),
    st.integers(),
    st.text(max_size=3),
)
VALUES = st.one_of(
    st.sampled_from([1, 5, 4.1, "3", b"2", True, Decimal("2.5"), 5.0000001, np.float32(0.1)]),
    st.sampled_from([None, math.nan, -math.inf, 1e300, 10**400, "n/a", "1_0", [], 0.999, 5.1]),
    st.floats(),
)


@given(
    st.lists(st.tuples(IDS, VALUES), max_size=12), st.sampled_from([1, 3, 100]), st.booleans(), st.booleans()
)
def test_the_short_way_reads_what_the_long_one_reads(pairs, cap: int, likes: bool, as_list: bool) -> None:
    domain = Domain(ITEMS, None if likes else (0.1, 5), max_ratings_per_user=cap, likes=likes)
    items, values = [item for item, _ in pairs], [value for _, value in pairs]
    table = (["user"] * len(items), items, values)
    long = Ratings.from_any(table, domain).for_users(["user"])
    short = Ratings.of_user([list(pair) if as_list and not likes else pair for pair in pairs], domain)
    for part in ("indptr", "indices", "data"):
        one, other = getattr(short.matrix, part), getattr(long.matrix, part)
        assert one.tobytes() == other.tobytes() and one.dtype == other.dtype
    assert short.matrix.shape == long.matrix.shape and short.matrix.has_sorted_indices
    assert short.users.tolist() == long.users.tolist() == ["user"]
    assert short.user_texts.equals(long.user_texts) and not short.hand_picked


@given(IDS)
def test_the_position_of_one_id_is_its_index(item) -> None:
    domain = Domain(ITEMS, (1, 5))
    assert domain.position(item) == domain.index([item])[0]
