"""What a request may hold, at its edges; that a server says so over HTTP is tested beside it."""

import json
from typing import Any

import pytest

from hushrec.errors import InputError
from hushrec.server.bodies import body_of


def read(path: str, **given: Any) -> dict[str, Any]:
    return body_of(path, json.dumps(given).encode())


def test_what_is_left_out_is_none_or_as_the_document_says() -> None:
    found = {"ratings": {}, "n": 10, "exclude_seen": True, "only": None, "model": None}
    assert read("/v1/recommend", ratings={}) == found
    assert read("/v1/similar", item="a") == {"item": "a", "n": 10, "model": None}
    assert read("/v1/predict", ratings=[], items=[]) == {"ratings": [], "items": [], "model": None}


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/v1/recommend", {"n": 1}),
        ("/v1/recommend", {"n": 1000}),
        ("/v1/recommend", {"exclude_seen": False, "only": ["a", 1, 2.5, True], "model": "m"}),
        ("/v1/recommend", {"ratings": ["a", 1, ["b", 3]]}),
        ("/v1/recommend", {"ratings": [["b", 3]]}),
        ("/v1/predict", {"items": ["a"]}),
        ("/v1/similar", {"item": 7}),
    ],
)
def test_what_may_be_asked(path: str, given: dict[str, Any]) -> None:
    needed: dict[str, dict[str, Any]] = {"/v1/similar": {}, "/v1/predict": {"ratings": {}}}
    given = needed.get(path, {"ratings": {}}) | given
    assert given.items() <= read(path, **given).items()


@pytest.mark.parametrize(
    ("path", "given", "field"),
    [
        ("/v1/recommend", {"n": 0}, "n"),
        ("/v1/recommend", {"n": 1001}, "n"),
        ("/v1/recommend", {"n": None}, "n"),
        ("/v1/recommend", {"n": 2.0}, "n"),
        ("/v1/recommend", {"exclude_seen": 1}, "exclude_seen"),
        ("/v1/recommend", {"only": "abc"}, "only"),
        ("/v1/recommend", {"only": [None]}, "only"),
        ("/v1/recommend", {"model": 1}, "model"),
        ("/v1/recommend", {"ratings": "abc"}, "ratings"),
        ("/v1/recommend", {"ratings": [None]}, "ratings"),
        ("/v1/recommend", {"ratings": [["a"]]}, "ratings"),
        ("/v1/recommend", {"ratings": [[None, 3]]}, "ratings"),
        ("/v1/recommend", {"ratings": [["a", 3, 4]]}, "ratings"),
        ("/v1/recommend", {"ratings": ["a", [["b"], 3]]}, "ratings"),
    ],
)
def test_what_may_not(path: str, given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=rf"^The field {field} is "):
        read(path, **{"ratings": {}} | given)


def test_a_field_too_many_is_named_up_to_fifty_characters() -> None:
    with pytest.raises(InputError, match="^There is no field 'x{50}' here; there are item, n, model[.]$"):
        read("/v1/similar", item="a", **{"x" * 51: 1})


@pytest.mark.parametrize(
    "raw",
    [
        b"needle",
        b'["needle"]',
        b'"needle"',
        b'{"items": ["needle"], "ratings": "needle"}',
        b'{"ratings": {"needle": 3}}',
        b'{"ratings": {"needle": 3}, "items": "needle"}',
        b'{"ratings": {"needle": 3}, "items": [], "model": ["needle"]}',
        b'{"ratings": {"needle": 3}, "items": [], "other": "needle"}',
    ],
)
def test_what_is_refused_is_not_said_again(raw: bytes) -> None:
    """A reply may be kept by others than who asked."""
    with pytest.raises(InputError) as error:
        body_of("/v1/predict", raw)
    assert "needle" not in str(error.value)
