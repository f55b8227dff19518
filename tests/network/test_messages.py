"""Messages survive the trip unchanged, and nothing else is let in."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hushrec.errors import InputError
from hushrec.network.messages import from_json
from hushrec.papers.masked.messages import Accepted, Column, Record, Task, Upload

UPLOAD = Upload("alice", 1, np.array([0, 4, 9], dtype=np.int32), np.array([1.5, -2.25, 1e-300]))


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


def array(values, dtype):
    return fields(Column(np.array(values, dtype=np.float64)))["values"] | (
        {} if dtype is None else {"type": dtype}
    )


@pytest.mark.parametrize(
    "entries",
    [
        {},
        [],
        changed(extra=1),
        {key: value for key, value in fields(UPLOAD).items() if key != "round"},
        changed(round=3),
        changed(round=True),
        changed(round="1"),
        changed(node=""),
        changed(node="x" * 201),
        changed(node="a\nb"),
        changed(items=[0, 4, 9]),
        changed(items={"type": "<i4", "shape": [2], "bytes": fields(UPLOAD)["items"]["bytes"]}),
        changed(items={"type": "<i4", "shape": [-3], "bytes": ""}),
        changed(items={"type": "<i4", "shape": [3], "bytes": "???"}),
        changed(items={"type": "<i8", "shape": [3], "bytes": ""}),
        changed(items={"type": [], "shape": [3], "bytes": ""}),
        changed(items={"type": {}, "shape": [3], "bytes": ""}),
        changed(items={"type": "<i4", "shape": [1] * 65, "bytes": "AAAAAA=="}),
        changed(items={"type": "<i4", "shape": [0] * 70, "bytes": ""}),
        changed(items={"type": "<i4", "shape": None, "bytes": ""}),
        changed(items={"type": "<i4", "shape": [1 << 30, 1 << 30], "bytes": ""}),
        changed(items=fields(UPLOAD)["values"]),
        changed(values=array([1.0, 2.0], None)),
        changed(values=array([1.0, np.inf, 2.0], None)),
        changed(values=array([1.0, np.nan, 2.0], None)),
        changed(items={"type": "<i4", "shape": [3], "bytes": "AAAAAAkAAAAEAAAA"}),  # not ascending
        changed(items={"type": "<i4", "shape": [3], "bytes": "/////wQAAAAJAAAA"}),  # -1
        changed(items={"type": "<i4", "shape": [3], "bytes": "AAAAAAUAAAAAAACA"}),  # 0, 5, -2^31
        changed(values=array([], None), items={"type": "<i4", "shape": [0], "bytes": ""}),
    ],
)
def test_malformed_uploads_are_refused(entries):
    with pytest.raises(InputError):
        from_json(Upload, json.dumps(entries).encode())


@pytest.mark.parametrize("sd", ["NaN", "Infinity", "1" + "0" * 400])
def test_a_task_without_a_finite_noise_is_refused(sd):
    raw = Task("ab", (np.eye(3),), 10.0, 1, True).to_json().replace(b"10.0", sd.encode())
    with pytest.raises(InputError):
        from_json(Task, raw)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_that_are_not_finite_are_refused_wherever_they_are(value, place):
    """Killed: a check of float32 arrays alone, or of the first array, whose message looks no further."""
    keys = [np.eye(3), np.eye(3)]
    keys[place][2, 1] = value
    with pytest.raises(InputError, match="not finite"):
        from_json(Task, Task("ab", tuple(keys), 10.0, 2, True).to_json())


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"{", b"null", b"[" * 100_000, b'{"error": 3}'])
def test_no_json_is_refused(raw):
    with pytest.raises(InputError):
        from_json(Upload, raw)


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
