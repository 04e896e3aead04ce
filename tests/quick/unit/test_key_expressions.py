"""Keys of calls, the shape of locked functions, and cached values."""

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest

from segmented import AsyncMemoryStore, MemoryStore
from segmented.errors import InvalidInput, LoaderFailed
from segmented.locks.call_keys import CallKey, KeyExpression, part_text
from segmented.locks.flights import Entry, FlightOptions
from segmented.locks.locked_decorator import locked
from segmented.models import Cached

ID = UUID("550E8400-E29B-41D4-A716-446655440000")


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    YES = "yes"


@dataclass
class Order:
    activity_id: object = 7
    mobile: object = "138"
    lines: list[dict[str, object]] = field(default_factory=list)
    reads: int = 0

    @property
    def counted(self) -> str:
        self.reads += 1
        return "counted"

    @property
    def broken(self) -> str:
        return self.nothing_like_it  # type: ignore[attr-defined,no-any-return]  # what is tested


def sell(order: Order, quantity: int = 1, *lines: object, channel: str = "web", **payload: object) -> None:
    """Be a function with every kind of argument."""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nightly-report", "nightly-report"),
        ("order:{order.activity_id}:{order.mobile}", "order:7:138"),
        ("{order.lines[0][sku]}", "shirt"),
        ("{order.lines[-1][sku]}", "shoe"),
        ("{quantity}/{channel}", "1/web"),
        ("{{{quantity}}}", "{1}"),
        ("{payload[a.b]}", "dotted"),
        ("{lines[1]}", "second"),
    ],
)
def test_an_expression_reads_arguments_attributes_and_items(expression: str, expected: str) -> None:
    order = Order(lines=[{"sku": "shirt"}, {"sku": "shoe"}])
    assert CallKey(expression, sell).of((order, 1, "first", "second"), {"a.b": "dotted"}) == expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a-b", "c"), ("a", "b-c")),
        (("a:b", "c"), ("a", "b:c")),
        (("a%3Ab", "c"), ("a:b", "c")),
        (("#", "a"), ("a", "#")),
    ],
)
@pytest.mark.parametrize("expression", ["{a}-{b}", "{a}:{b}", "{a}-:{b}", "x{a}#{b}y", "{a}b{b}", "{a} {b}"])
def test_i6_different_parts_make_different_keys(
    expression: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    parsed = KeyExpression(expression)
    keys = [parsed.key({"a": a, "b": b}) for a, b in (first, second)]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, "1"),
        ("1", "1"),
        (-5, "-5"),
        (True, "True"),
        (ID, "550e8400-e29b-41d4-a716-446655440000"),
        (Colour.RED, "red"),
        (Size.SMALL, "1"),
        (Word.YES, "yes"),
        (date(2026, 11, 1), "2026-11-01"),
        (datetime(2026, 11, 1, 12), "2026-11-01T12:00:00"),  # noqa: DTZ001  # a naive one is meant
        (datetime(2026, 11, 1, 12, tzinfo=UTC), "2026-11-01T12:00:00+00:00"),
        (datetime(2026, 11, 1, 14, tzinfo=timezone(timedelta(hours=2))), "2026-11-01T12:00:00+00:00"),
    ],
    ids=repr,
)
def test_a_part_stands_by_its_text(value: object, expected: str) -> None:
    assert part_text(value, "x") == expected


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "'x' is None, which would put all such calls under one key"),
        ("", "'x' is '', which would put all such calls under one key"),
        (b"a", "'x' is of type bytes; a key is made of str, int, bool, UUID, Enum and date"),
        (1.5, "'x' is of type float; a key is made of str, int, bool, UUID, Enum and date"),
        ([1], "'x' is of type list; a key is made of str, int, bool, UUID, Enum and date"),
        (Order, "'x' is of type type; a key is made of str, int, bool, UUID, Enum and date"),
    ],
)
def test_a_part_without_a_sure_text_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        part_text(value, "x")
    assert str(caught.value) == sentence


WHERE = "key expression {!r} of tests.quick.unit.test_key_expressions.sell: "


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("{oder.id}", "'oder' is not an argument; there are order, quantity, lines, channel, payload"),
        ("{order}{quantity}", "{order} and {quantity} need a character such as : between them"),
        ("{order}A0%{quantity}", "{order} and {quantity} need a character such as : between them"),
        ("{order", "the brace at 0 is not closed"),
        ("a}", "the brace at 1 closes nothing; a literal one is doubled"),
        ("{order._x}", "'order._x' reads '_x': attributes with a leading underscore are not read"),
        ("{order.__class__}", "'order.__class__' reads '__class__': attributes with a leading underscore are not read"),
        ("{order.total()}", "'order.total()' has '()', which is neither .attribute nor [item]"),
        ("{order!r}", "'order!r' has '!r', which is neither .attribute nor [item]"),
        ("{quantity:>3}", "'quantity:>3' has ':>3', which is neither .attribute nor [item]"),
        ("{payload['sku']}", "\"payload['sku']\" has quotes in ['sku']: an item is written without"),
        ("{lines[]}", "'lines[]' has '[]', which is neither .attribute nor [item]"),
        ("{}", "'' does not begin with the name of an argument"),
        ("{0}", "'0' does not begin with the name of an argument"),
        ("", "it is empty or holds characters that cannot be printed"),
        ("a\x00{order}", "it is empty or holds characters that cannot be printed"),
    ],
)
def test_a_wrong_expression_is_refused_at_the_decoration(expression: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        CallKey(expression, sell)
    assert str(caught.value) == WHERE.format(expression) + sentence


@pytest.mark.parametrize(
    ("expression", "arguments", "sentence"),
    [
        (
            "{order.colour}",
            {},
            "'order.colour' leads nowhere: AttributeError: 'Order' object has no attribute 'colour'",
        ),
        ("{order.lines[0]}", {}, "'order.lines[0]' leads nowhere: IndexError: list index out of range"),
        ("{payload[sku]}", {}, "'payload[sku]' leads nowhere: KeyError: 'sku'"),
        (
            "{order.mobile[sku]}",
            {},
            "'order.mobile[sku]' leads nowhere: TypeError: string indices must be integers, not 'str'",
        ),
        ("{channel}", {"channel": None}, "'channel' is None, which would put all such calls under one key"),
        ("{channel}", {"channel": "a" * 1025}, "the name of the key has 1025 characters; the maximum is 1024"),
    ],
)
def test_a_call_without_a_usable_key_is_refused(
    expression: str, arguments: Mapping[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        CallKey(expression, sell).of((Order(),), arguments)
    assert str(caught.value) == WHERE.format(expression) + sentence


def test_a_function_whose_arguments_cannot_be_told_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"of dict.update: its signature cannot be read"):
        CallKey("{x}", dict.update)


SYNC, ASYNC = MemoryStore(), AsyncMemoryStore()
HERE = "tests.quick.unit.test_key_expressions"


def plain(sku: str, quantity: int = 1) -> str:
    """Sell some."""
    return f"{quantity} of {sku}"


async def coroutine(sku: str, quantity: int = 1) -> str:
    return f"{quantity} of {sku}"


def generator(sku: str, quantity: int = 1) -> Iterator[str]:
    yield f"{quantity} of {sku}"


async def async_generator(sku: str, quantity: int = 1) -> AsyncIterator[str]:
    yield f"{quantity} of {sku}"


def is_kind(function: object) -> list[bool]:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.isfunction)
    return [kind(function) for kind in kinds]


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_a_locked_function_is_of_the_kind_it_was_and_has_its_name_and_signature(function: Callable[..., Any]) -> None:
    store = ASYNC if function in (coroutine, async_generator) else SYNC
    decorated = locked("{sku}", store=store)(function)
    assert is_kind(decorated) == is_kind(function)
    assert inspect.signature(decorated) == inspect.signature(function)
    assert (decorated.__name__, decorated.__doc__) == (function.__name__, function.__doc__)
    assert decorated.__wrapped__ is function  # type: ignore[attr-defined]  # functools.wraps sets it


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ttl": 0}, "ttl of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"renew_max": -1}, "renew_max of -1 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"timeout": False}, "timeout=False is not a waiting time: try_acquire() does not wait, acquire() does"),
        ({"timeout": -1}, "timeout of -1 s is not a waiting time: give 0 or more, or None for no limit"),
        ({"retries": -1}, "retries of -1 is not a number of further tries: give 0 or more"),
        ({"retry_every": -1}, "retry_every of -1 s is not a time between tries: give 0 or more"),
        ({"on_busy": "ignore"}, "on_busy is 'ignore': give one of raise, skip, run, or a callable"),
        ({"transaction": "sku", "release_with": print}, "locked takes transaction or release_with, not both"),
        ({"store": None}, f"locked on {HERE}.plain needs a store, or a callable that gives one, and got None"),
        (
            {"store": ASYNC},
            f"locked on {HERE}.plain needs a store for threads, such as RedisStore, and got AsyncMemoryStore",
        ),
        (
            {"lease_as": "lease"},
            f"{HERE}.plain cannot be given its lease as 'lease': that must be an argument by name, or the last by position",  # noqa: E501  # one sentence
        ),
        (
            {"lease_as": "quantity", "expression": "{quantity}"},
            f"key expression '{{quantity}}' of {HERE}.plain: 'quantity' is not an argument; there are sku",
        ),
        (
            {"transaction": "session"},
            f"transaction 'session' in locked on {HERE}.plain: 'session' is not an argument; there are sku, quantity",
        ),
        ({"expression": 5}, f"key expression 5 of {HERE}.plain is neither a text nor a callable"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_at_the_decoration(options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"expression": "{sku}", "store": SYNC, **options}
    expression = given.pop("expression")
    with pytest.raises(InvalidInput) as caught:
        locked(expression, **given)(plain)
    assert str(caught.value) == sentence


def test_a_callable_gives_the_store_when_a_call_needs_it_and_its_colour_is_checked() -> None:
    asked: list[str] = []

    def store() -> MemoryStore:
        asked.append("store")
        return SYNC

    decorated = locked("{sku}", store=store)(plain)
    assert asked == []
    assert decorated("shirt") == "1 of shirt"
    assert asked == ["store"]
    with pytest.raises(InvalidInput, match=r"needs a store for threads, such as RedisStore, and got AsyncMemoryStore$"):
        locked("{sku}", store=lambda: ASYNC)(plain)("shirt")
    with pytest.raises(InvalidInput, match=r"needs a store for threads, such as RedisStore, and got NoneType$"):
        locked("{sku}", store=lambda: None)(plain)("shirt")  # type: ignore[arg-type]  # what is tested


def test_work_that_would_run_after_the_release_is_refused() -> None:
    def makes_coroutine(sku: str) -> Any:  # noqa: ANN401  # a coroutine that must not run unlocked
        return coroutine(sku)

    def makes_generator(sku: str) -> Iterator[str]:
        return generator(sku)

    for function, kind in ((makes_coroutine, "coroutine"), (makes_generator, "generator")):
        with pytest.raises(InvalidInput, match=f"it returned {kind}, which would run unlocked; decorate what makes it"):
            locked("{sku}", store=SYNC)(function)("shirt")


class OddError(Exception):
    """An error with a name of its own."""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"keep": 0}, "keep of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"ttl": 0.0005}, "ttl of 0.0005 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"keep_none": -1}, "keep_none of -1 s is not a duration: give 0 or more"),
        (
            {"keep_failures": False},
            "keep_failures is a number of seconds or a timedelta, not bool: False",
        ),
        ({"refresh_ahead": 0}, "refresh_ahead of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"refresh_ahead": 60}, "refresh_ahead of 60 s must be less than the keep of 60 s"),
        ({"timeout": -1}, "timeout of -1 s is not a waiting time: give 0 or more, or None for no limit"),
        ({"size_max": 0}, "size_max of 0 is not a number of bytes: give 1 or more"),
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
