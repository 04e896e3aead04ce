from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from segmented.errors import InvalidInput, LoaderFailed
from segmented.locks.flight_plan import Entry, FlightOptions
from segmented.models import Cached


class OddError(Exception):
    """An error with a name of its own."""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep": 0}, "keep of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"keep": inf}, "keep of inf s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"ttl": 0.0005}, "ttl of 0.0005 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"keep_none": -1}, "keep_none of -1 s is not a duration: give 0 or more"),
        ({"keep_failures": nan}, "keep_failures of nan s is not a duration: give between 0.001 and 9007199254740 s"),
        (
            {"keep_failures": False},
            "keep_failures is a number of seconds or a timedelta, not bool: False",
        ),
        ({"refresh_ahead": 0}, "refresh_ahead of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"refresh_ahead": 60}, "refresh_ahead of 60 s must be less than the keep of 60 s"),
        ({"timeout": -1}, "timeout of -1 s is not a waiting time: give 0 or more, or None for no limit"),
        ({"size_max": 0}, "size_max of 0 is not a number of bytes: give 1 or more"),
        ({"size_max": 1.5}, "size_max of 1.5 is not a number of bytes: give 1 or more"),
        (
            {"dump": None},
            "dump and load are callables: one makes str or bytes of a value, the other the value again",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        FlightOptions(**{"keep": 60, **options})
    assert str(caught.value) == sentence


def test_a_value_is_kept_as_text_for_its_time_to_live() -> None:
    options = FlightOptions(keep=60)
    assert options.entry("shirt", {"left": 3}) == Entry(Cached("text", '{"left": 3}'), 60_000, None)
    assert options.opened("shirt", Cached("text", '{"left": 3}')) == {"left": 3}


def test_a_value_that_is_made_anew_early_is_due_so_long_before_its_end() -> None:
    entry = FlightOptions(keep=60, refresh_ahead=10).entry("shirt", 1)
    assert entry == Entry(Cached("text", "1"), 60_000, 50_000)


def test_bytes_are_kept_as_text_that_every_client_can_read() -> None:
    options = FlightOptions(keep=60, dump=bytes, load=list)
    entry = options.entry("shirt", [0, 255])
    assert entry == Entry(Cached("bytes", "AP8="), 60_000)
    assert options.opened("shirt", entry.value) == [0, 255]


@pytest.mark.parametrize(
    ("keep_none", "expected"),
    [(None, Entry(Cached("none", ""), 60_000)), (5, Entry(Cached("none", ""), 5_000)), (0, None), (0.0, None)],
    ids=["as a value", "5 s", "not", "not at all"],
)
def test_none_is_kept_for_a_time_of_its_own(keep_none: float | None, expected: Entry | None) -> None:
    options = FlightOptions(keep=60, refresh_ahead=10, keep_none=keep_none)
    assert options.entry("shirt", None) == expected
    assert options.opened("shirt", Cached("none", "")) is None


def test_a_failure_is_kept_by_its_type_and_the_beginning_of_its_message() -> None:
    entry = FlightOptions(keep=60, keep_failures=2).failure(OddError("ü" * 1_000))
    assert entry is not None
    assert entry.ttl_ms == 2_000
    assert json.loads(entry.value.body) == {"kind": "OddError", "detail": "ü" * 500}
    with pytest.raises(LoaderFailed) as caught:
        FlightOptions(keep=60).opened("shirt", entry.value)
    assert (caught.value.name, caught.value.kind, len(caught.value.detail)) == ("shirt", "OddError", 500)
    assert FlightOptions(keep=60, keep_failures=0).failure(OddError()) is None


def test_a_value_of_the_greatest_size_is_kept_and_one_byte_more_is_not() -> None:
    options = FlightOptions(keep=60, size_max=5)
    assert options.entry("shirt", "abc") is not None
    with pytest.raises(InvalidInput, match=r"^the value of 'shirt' has 6 bytes; the maximum is 5$"):
        options.entry("shirt", "abcd")


def test_a_failed_refresh_keeps_the_next_one_off_for_a_second_at_least() -> None:
    assert [FlightOptions(keep=60, keep_failures=ttl).hold_off_ms for ttl in (0, 0.1, 3)] == [1_000, 1_000, 3_000]
