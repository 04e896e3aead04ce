"""The header of a deduplicated message: read back as it was written, and never trusted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from segmented.dedup.celery.message import HEADER, OnceHeader, header_of

WHOLE = OnceHeader("m", "k", "p", follows="f", is_claimed=True, is_put_off=True, round=3)
PLAIN = {"message": "m", "key": "k", "payload_print": ""}


def test_a_header_is_read_as_it_was_written_after_json_has_carried_it() -> None:
    carried = json.loads(json.dumps(WHOLE.carried({"other": 1})))
    assert header_of(carried, "m") == WHOLE
    assert carried["other"] == 1


def test_carrying_a_header_changes_no_headers_that_were_given() -> None:
    given = {HEADER: "old"}
    assert header_of(replace(WHOLE, round=4).carried(given), "m") == replace(WHOLE, round=4)
    assert given == {HEADER: "old"}


@pytest.mark.parametrize(
    "fields", [{}, {"other": 1}, {"headers": None}, {"headers": {"other": 1}}, {"headers": "text"}]
)
def test_a_message_without_a_header_has_none(fields: dict[str, object]) -> None:
    assert header_of(fields, "m") is None


@pytest.mark.parametrize("hiding", [{}, {"trace": 1}, {HEADER: {**PLAIN, "message": "other"}}, "text", 7, None, [1]])
def test_a_header_called_headers_hides_nothing(hiding: object) -> None:
    assert header_of(WHOLE.carried({"headers": hiding}), "m") == WHOLE
    assert header_of({"headers": WHOLE.carried({"headers": hiding})}, "m") == WHOLE
    assert header_of(WHOLE.carried(hiding), "m") == WHOLE


def test_a_header_that_was_copied_to_another_message_says_nothing_about_that_one() -> None:
    assert header_of(WHOLE.carried(None), "other") is None


def test_a_header_of_another_version_is_read_as_far_as_it_is_known() -> None:
    assert header_of({HEADER: PLAIN}, "m") == OnceHeader("m", "k", "")
    assert header_of({HEADER: {**PLAIN, "version": 9, "colour": ["blue"]}}, "m") == OnceHeader("m", "k", "")


@pytest.mark.parametrize(
    "found",
    [
        "text",
        7,
        None,
        [PLAIN],
        {},
        {"message": "m"},
        {"message": "m", "key": "k"},
        {**PLAIN, "key": ""},
        {**PLAIN, "key": 5},
        {**PLAIN, "key": None},
        {**PLAIN, "payload_print": None},
        {**PLAIN, "follows": 1},
        {**PLAIN, "is_claimed": "yes"},
        {**PLAIN, "is_put_off": 1},
        {**PLAIN, "round": "1"},
        {**PLAIN, "round": -1},
        {**PLAIN, "round": 1.5},
        {**PLAIN, "round": True},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_read_is_as_none(found: object) -> None:
    assert header_of({HEADER: found}, "m") is None
