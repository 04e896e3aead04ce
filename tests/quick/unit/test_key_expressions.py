from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from segmented.errors import InvalidInput
from segmented.locks.call_keys import CallKey, key_for
from segmented.locks.key_expressions import KeyExpression, part_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


class Shop:
    shop_id = "s1"

    def sell(self, order: Order) -> None:
        """Be a method."""


def key(expression: str, *arguments: object, function: Callable[..., object] = sell, **options: object) -> str:
    return CallKey(expression, function).of(arguments, options)


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


def test_an_argument_that_was_left_out_has_its_default() -> None:
    assert key("{quantity}:{channel}", Order()) == "1:web"
    assert key("{quantity}:{channel}", Order(), channel="shop", quantity=2) == "2:shop"


def test_a_method_reads_its_object() -> None:
    assert key("{self.shop_id}:{order.mobile}", Shop(), Order(), function=Shop.sell) == "s1:138"


def test_a_partial_reads_what_it_was_given() -> None:
    assert key("{order.mobile}:{channel}", function=partial(sell, Order(), channel="app")) == "138:app"
    assert key("{order.mobile}:{channel}", channel="web", function=partial(sell, Order(), channel="app")) == "138:web"
    nested = partial(partial(sell, Order()), 3)
    assert key("{order.mobile}:{quantity}", function=nested) == "138:3"


def test_a_field_is_read_once_a_call() -> None:
    order = Order()
    found = CallKey("{order.counted}", sell)
    assert found.of((order,), {}) == "counted"
    assert order.reads == 1


def test_a_callable_is_given_the_bound_arguments_and_called_once() -> None:
    seen: list[tuple[object, ...]] = []

    def made(*arguments: object, **options: object) -> str:
        seen.append((arguments, options))
        return "mine"

    assert CallKey(made, sell).of(("order",), {"channel": "app"}) == "mine"
    assert seen == [(("order", 1), {"channel": "app"})]


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
        ("a:b", "a%3Ab"),
        ("100%", "100%25"),
        ("a\nb", "a%0Ab"),
        ("\ud800", "%ED%A0%80"),
        ("ü票 a-b{}", "ü票 a-b{}"),
    ],
)
def test_a_part_is_escaped_only_where_it_must_be(value: str, expected: str) -> None:
    assert KeyExpression("{a}:{b}").key({"a": value, "b": "x"}) == f"{expected}:x"


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


@pytest.mark.parametrize("made", [None, b"key", "", 5, "a\nb"])
def test_what_a_callable_makes_is_checked(made: object) -> None:
    def maker(*_: object, **__: object) -> str:
        return made  # type: ignore[return-value]  # what is tested

    with pytest.raises(InvalidInput, match=r"^key expression tests.quick.unit.test_key_expressions.*maker of .*sell: "):
        CallKey(maker, sell).of((Order(),), {})


def test_an_error_inside_a_property_is_told_as_it_is() -> None:
    with pytest.raises(InvalidInput, match=r"'order.broken' leads nowhere: .*'nothing_like_it'") as caught:
        key("{order.broken}", Order())
    assert isinstance(caught.value.__cause__, InvalidInput)
    assert isinstance(caught.value.__cause__.__cause__, AttributeError)


def test_a_call_with_wrong_arguments_fails_as_the_call_itself_does() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'order'"):
        CallKey("{order.mobile}", sell).of((), {})


def test_a_function_whose_arguments_cannot_be_told_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"of dict.update: its signature cannot be read"):
        CallKey("{x}", dict.update)


def test_a_function_without_a_key_has_none() -> None:
    with pytest.raises(InvalidInput, match=r"^tests.quick.unit.test_key_expressions.sell has no key expression$"):
        key_for(sell, Order())
