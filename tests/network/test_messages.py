"""Messages survive the trip unchanged, and nothing else is let in."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.engines.two_servers import messages as two_servers
from hushrec.engines.two_servers.messages import Sum
from hushrec.errors import InputError
from hushrec.network.messages import Message, Problem, Refusal, check_token, from_json
from hushrec.papers.masked.messages import Accepted, Column, Record, Task, Upload

UPLOAD = Upload("alice", 1, np.array([0, 4, 9], dtype=np.int32), np.array([1.5, -2.25, 1e-300]))


def assert_tells_nothing(error):
    """One short sentence without the received value: others may read a server's refusals."""
    told = str(error.value)
    assert len(told) < 200 and "\n" not in told and not any(mark in told for mark in ("b'", 'b"', "{", "["))


def fields(message):
    return json.loads(message.to_json())


def test_round_trip():
    back = from_json(Upload, UPLOAD.to_json())
    assert (back.node, back.round) == ("alice", 1)
    np.testing.assert_array_equal(back.items, UPLOAD.items)
    np.testing.assert_array_equal(back.values, UPLOAD.values)
    assert back.items.dtype == np.int32 and back.values.dtype == np.float64
    assert back.to_json() == UPLOAD.to_json() and back.fingerprint() == UPLOAD.fingerprint()
    task = Task("ab", (np.eye(3), np.eye(3)[:, :2]), 10.0, 2, True)
    again = from_json(Task, task.to_json())
    np.testing.assert_array_equal(again.keys[1], task.keys[1])
    assert from_json(Accepted, Accepted("x").to_json()) == Accepted("x")


def changed(**changes):
    return {**fields(UPLOAD), **changes}


@pytest.mark.parametrize(
    "entries",
    [
        {},
        changed(extra=1),
        {key: value for key, value in fields(UPLOAD).items() if key != "round"},
        changed(items={"type": "<i4", "shape": [3], "bytes": "AAAAAAkAAAAEAAAA"}),  # not ascending
        changed(items={"type": "<i4", "shape": [3], "bytes": "/////wQAAAAJAAAA"}),  # -1
    ],
)
def test_malformed_uploads_are_refused(entries):
    with pytest.raises(InputError) as error:
        from_json(Upload, json.dumps(entries).encode())
    assert_tells_nothing(error)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_that_are_not_finite_are_refused_wherever_they_are(value, place):
    """Killed: a check of float32 arrays alone, or of the first array only."""
    entries, key = json.loads(Task("ab", (np.eye(3),) * 2, 10.0, 2, True).to_json()), np.eye(3)
    key[2, 1] = value
    entries["keys"][place]["bytes"] = base64.b64encode(key.tobytes()).decode()
    with pytest.raises(InputError, match="not finite"):
        from_json(Task, json.dumps(entries).encode())


def examples():
    """A message of each type, of all protocols."""
    digest = "0123456789abcdef" * 4
    return [
        UPLOAD,
        Task("ab", (np.eye(3), np.eye(3)[:, :2]), 10.0, 2, True),
        Record(np.ones(3), np.ones((3, 2))),
        Accepted(digest),
        Column(np.ones(4)),
        two_servers.Nonce(digest, digest, digest, "first", digest, ""),
        two_servers.State(digest, (0, 0, 2), digest, 1, False, "second"),
        two_servers.Held(digest, ("a", "b")),
        Sum(np.arange(3, dtype=np.uint64)),
        two_servers.Taken("a"),
        Problem("No."),
    ]


def test_there_is_an_example_of_each_message():
    assert {type(each) for each in examples()} == set(Message.__subclasses__())


ODD = [
    None,
    True,
    -1,
    1 << 70,
    0.5,
    1e400,
    "",
    "\ud800",
    "\x1b[31m",
    "z" * 64,
    "0" * 63,
    "first ",
    [],
    [0],
    [0, 1],
]
ODD += [[0, 0, 0], [0, 5, 2], [0, 0, 1, 9], [-1, 0, 1], [True, 0, 1], ["0", "0", "1"], {}, {"type": "<u8"}]
ODD += [
    {"type": "<u8", "shape": shape, "bytes": "AAAAAAAAAAA="} for shape in ([2], [-1], [1, 1], [1 << 40], None)
]


@pytest.mark.parametrize("message", examples(), ids=lambda each: type(each).__name__)
def test_each_field_of_each_message_is_read_as_declared_or_refused(message):
    """For any value of a field. Killed: a round of two or four numbers, a text that no encoding has."""
    kind, whole, read = type(message), fields(message), 0
    for name in whole:
        for odd in ODD:
            try:
                found = from_json(kind, json.dumps({**whole, name: odd}).encode())
            except InputError as error:
                assert len(str(error)) < 200 and "\n" not in str(error)
            else:
                again = fields(found)
                assert type(again[name]) is type(whole[name])  # true is no 1
                assert (
                    again == {**whole, name: odd}
                    and from_json(kind, found.to_json()).to_json() == found.to_json()
                )
                read += 1
    assert read <= 12 * len(whole)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200)
    | st.recursive(st.integers() | st.text() | st.none(), st.lists).map(
        lambda entry: json.dumps({**fields(UPLOAD), "values": entry}).encode()
    )
)
def test_whatever_arrives_is_read_or_refused(raw):
    for kind in (Upload, Task, Record):
        with pytest.raises(InputError):
            from_json(kind, raw)


def test_sizes_at_their_edges():
    """Names of 1 to 200 characters, tokens of 32 characters or more."""
    items, values = UPLOAD.items, UPLOAD.values
    for name in ("x", "x" * 200):
        assert from_json(Upload, Upload(name, 1, items, values).to_json()).node == name
    for name in ("", "  ", "x" * 201, "a\tb"):
        with pytest.raises(InputError, match="1 to 200 printable characters"):
            Upload(name, 1, items, values)
    check_token("t" * 32)
    with pytest.raises(Refusal, match="at least 32 characters"):
        check_token("t" * 31)
    for wrong in (np.zeros(3), np.zeros((3, 1), np.uint64), np.zeros(3, np.int64)):
        with pytest.raises(InputError, match="of type <u8 and has 1 dimension"):
            Sum(wrong)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Task("ab", (np.eye(3),), 0.0, 1, True), "noise_sd is above 0"),
        (lambda: Task("ab", (np.eye(3), np.eye(4)), 1.0, 2, True), "one row per item"),
        (lambda: Task("ab", (np.eye(3), np.zeros((3, 1))), 1.0, 2, True), "orthonormal"),
        (lambda: Record(np.ones(3), np.ones((2, 3))), "one row of the public key for each"),
        (lambda: Upload("a", 0, UPLOAD.items, UPLOAD.values), "round 1 or 2"),
    ],
)
def test_messages_that_make_no_sense_are_refused(make, words):
    for good in (Task("ab", (np.eye(3),), 1.0, 2, True), Task("ab", (np.eye(3),) * 2, 1e-9, 2, False)):
        assert from_json(Task, good.to_json()).to_json() == good.to_json()
    assert len(Record(np.ones(3), np.ones((3, 0))).values) == 3
    with pytest.raises(InputError, match=words):
        make()
