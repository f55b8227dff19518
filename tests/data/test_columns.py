"""Which column is which: by hand-written answers, and refusals that name no column that is there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hushrec.data import Domain, Ratings
from hushrec.data.columns import find_columns, marks_of
from hushrec.errors import InputError

USUAL = {"user": "user", "item": "item", "rating": "rating"}
NAMES = ["when", "user", "item", "rating", "time", "who"]


@pytest.mark.parametrize(
    ("names", "columns", "implicit", "found"),
    [
        (NAMES, None, False, USUAL),
        (NAMES, {"time": True}, False, {**USUAL, "time": "time"}),
        (NAMES, {"time": "when", "user": True}, False, {**USUAL, "time": "when"}),
        (NAMES, None, True, USUAL),
        (NAMES, {"rating": "when", "time": "time"}, True, {**USUAL, "rating": "when", "time": "time"}),
        (["user", "item", "Qty", "label"], {"time": None}, True, {**USUAL, "rating": "Qty"}),
        (["user", "item", "qty", "QTY", "plays"], None, True, {**USUAL, "rating": "plays"}),
        (["user", "item", "qty"], {"quantity": True}, True,
         {"user": "user", "item": "item", "quantity": "qty"}),
        (["CustomerID", "StockCode", "InvoiceDate"], {"time": True}, True,
         {"user": "CustomerID", "item": "StockCode", "time": "InvoiceDate"}),
        (["visitorid", "parent_asin", "asin"], None, True, {"user": "visitorid", "item": "asin"}),
        (["visitorid", "parent_asin"], None, True, {"user": "visitorid", "item": "parent_asin"}),
        (["Stars", "Client.ID", "book-id"], None, False,
         {"user": "Client.ID", "item": "book-id", "rating": "Stars"}),
        (["sku", "overall", "item", "uid", "user_id", "score"], None, False,
         {"user": "user_id", "item": "item", "rating": "score"}),
    ],
)  # fmt: skip
def test_columns_are_found_by_name_or_as_asked_for(names, columns, implicit, found) -> None:
    assert find_columns(names, columns, implicit) == found


FIRST_LINE = "; hushrec check lists its columns"
OF_RATINGS = (
    "; where all rows are likes, say implicit=True (--implicit), or else name the column; pass"
    " columns={'rating': 'NAME'}."
)
SHAPE = "columns must be a dictionary such as {'user': NAME, 'item': NAME, 'rating': NAME}."


@pytest.mark.parametrize(
    ("names", "columns", "says", "parameter"),
    [
        ([], None, "The table has no columns, which a text file names in its first line.", None),
        (["user", "rating"], None, "The table has no column for the items, which is looked for under names"
         f" such as item, itemid, iid, movie, movieid, product{FIRST_LINE}; pass columns={{'item': 'NAME'}}.",
         "columns"),
        (["user", "item"], {"rating": True}, "The table has no column for the ratings, which is looked for"
         f" under names such as rating, score, value, stars, starrating, ratingvalue{FIRST_LINE}{OF_RATINGS}",
         "columns"),
        (["user", "item", "rating"], {"user": "x"}, f"The table has no column named 'x'{FIRST_LINE};"
         " pass columns={'user': 'NAME'}.", "columns"),
        (["user", "item", "rating"], {"time": True}, "The table has no column for the times, which is looked"
         f" for under names such as timestamp, time, datetime, date, createdat, ratedat{FIRST_LINE};"
         " pass columns={'time': 'NAME'}.", "columns"),
        (["user", "item", "rating", "rating"], None,
         "The table has several columns named 'rating'; rename all but one.", None),
        (["user", "User", "item", "rating"], None,
         f"The table has several columns for the users{FIRST_LINE}; pass columns={{'user': 'NAME'}}.",
         "columns"),
        (["user", "item", "rating"], {"item": "user"},
         f"The table has one column for the items and for another role{FIRST_LINE};"
         " pass columns={'item': 'NAME'}.", "columns"),
        (["user", "item", "rating"], {"users": "user"}, SHAPE, None),
        (["user", "item", "rating"], ("user", "item", "rating"), SHAPE, None),
    ],
)  # fmt: skip
def test_what_is_not_found_is_said_in_one_sentence(names, columns, says, parameter) -> None:
    with pytest.raises(InputError) as refused:
        find_columns(names, columns, False)
    assert (str(refused.value), refused.value.parameter) == (says, parameter)


def test_marks_are_those_that_are_known() -> None:
    schema = pa.schema([("user", pa.string())])
    assert marks_of(schema) == () == marks_of(schema.with_metadata({"other": "hand_picked"}))
    words = b"by_position more split:ratings:3 \xff hand_picked splits"
    marks = ("by_position", "split:ratings:3", "hand_picked")
    assert marks_of(schema.with_metadata({b"hushrec.ratings": words})) == marks


def test_a_private_look_lists_the_columns_and_the_nearest_name(tmp_path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("Kunde;Artikel;Sterne\na;1;4\n")
    wanted = "named 'kunden'; there are: Kunde, Artikel, Sterne (nearest: Kunde); pass columns="
    for read, shows in ((Ratings.check, True), (Ratings.from_any, False)):
        with pytest.raises(InputError) as caught:
            read(path, Domain([1], rating_range=(1, 5)), columns={"user": "kunden"})
        assert (wanted in str(caught.value)) == shows
