"""Decorated functions and coroutine functions: which calls are the same, and what is refused at decoration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from segmented import AsyncDedup, Dedup
from segmented.errors import InvalidInput, OtherPayload, ResultUnkept
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.support.contract.dedup.dedup_calls import Calls, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side


@dataclass(frozen=True)
class Order:
    id: str
    units: int = 1


def test_calls_with_equal_arguments_are_one_however_they_are_given(side: Side) -> None:
    work = Work()

    def charge(order: str, units: int = 1, *, currency: str = "EUR") -> int:
        return work(order, units, currency)

    once = Calls(side).once(charge)
    assert [once("7"), once("7", 1), once(order="7", currency="EUR"), once("7", units=1)] == [1, 1, 1, 1]
    assert [once("7", 2), once(7), once("7", currency="USD"), once("7", units=True)] == [2, 3, 4, 5]


@pytest.mark.parametrize("key", [None, "{order}"], ids=["all arguments", "an expression"])
def test_a_parameter_with_a_default_can_be_added_while_old_and_new_processes_run(side: Side, key: str | None) -> None:
    work, calls = Work(), Calls(side)

    def old(order: str, units: int) -> int:
        return work(order, units)

    def new(order: str, units: int, currency: str = "EUR", *rest: str, **more: str) -> int:
        return work(order, units, currency, rest, more)

    new.__qualname__ = old.__qualname__
    before, after = calls.once(old, key), calls.once(new, key)
    assert (before("7", 1), after("7", 1), after("8", 1), before("8", 1), before("8", units=1)) == (1, 1, 2, 2, 2)


def test_an_argument_without_a_text_form_is_not_compared_where_a_key_is_named(side: Side) -> None:
    work = Work()

    class Shop:
        def pay(self, order: str, cents: int) -> int:
            return work(order, cents)

    def charge(order: str, card: object) -> int:
        return work(order, card)

    pay = Calls(side).once(Shop.pay, "{order}")
    assert (pay(Shop(), "7", 5), pay(Shop(), "7", 5)) == (1, 1)
    with pytest.raises(OtherPayload):
        pay(Shop(), "7", 6)
    for card in (object(), {"client": object()}):
        with pytest.raises(InvalidInput, match=r"argument 'card'.* has no text form"):
            Calls(side).once(charge, "{order}")("7", card)
    with pytest.raises(InvalidInput, match=r"argument 'self' of .* has no text form"):
        Calls(side).once(Shop.pay)(Shop(), "7", 5)


RESULTS = [
    Decimal("1.50"),
    UUID(int=7),
    datetime(2026, 11, 29, 5, tzinfo=UTC),
    date(2026, 11, 29),
    time(5, 7),
    timedelta(days=-1, microseconds=3),
    b"\x00\xff",
    {"rows": [{"price": Decimal(2)}]},
]


def test_a_repeat_gets_a_result_of_the_type_that_the_first_call_gave(side: Side) -> None:
    def given(number: int) -> object:
        return RESULTS[number]

    once = Calls(side).once(given)
    first, again = ([once(number) for number in range(len(RESULTS))] for _ in range(2))
    assert (first, again, list(map(type, again))) == (RESULTS, RESULTS, list(map(type, RESULTS)))


def test_a_result_that_cannot_be_kept_is_told_at_the_first_call(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    def charge(order: str) -> object:
        return Order(order)

    once = Calls(side).once(charge)
    assert once("7") == Order("7")
    assert "charge cannot be kept for repeats: TypeError: Order has no form in JSON" in caplog.messages[0]
    with pytest.raises(ResultUnkept):
        once("7")


def test_an_expression_names_the_key_and_all_else_is_the_payload(side: Side) -> None:
    work = Work()

    def charge(order: Order) -> int:
        return work(order)

    once = Calls(side).once(charge, "{order.id}")
    assert (once(Order("7")), once(Order("7")), once(Order("8"))) == (1, 1, 2)
    with pytest.raises(OtherPayload):
        once(Order("7", 2))


def test_the_payload_can_be_named_too_or_be_nothing(side: Side) -> None:
    work = Work()

    def charge(order: str, units: int, trace: str) -> int:
        return work(order, units, trace)

    once = Calls(side).once(charge, "{order}", payload="{units}")
    assert (once("7", 2, "a"), once("7", 2, "b")) == (1, 1)
    with pytest.raises(OtherPayload):
        once("7", 3, "a")
    lax = Calls(side).once(charge, "{order}", payload=False)
    assert (lax("7", 2, "a"), lax("7", 3, "b")) == (2, 2)


def test_a_callable_names_the_key(side: Side) -> None:
    work = Work()

    def charge(order: Order, units: int = 1) -> int:
        return work(order, units)

    once = Calls(side).once(charge, lambda order, units: (order.id, units), payload=False)
    assert (once(Order("7", 1)), once(Order("7", 5)), once(Order("7"), 2)) == (1, 1, 2)


def test_f25_values_that_only_look_alike_are_different_calls(side: Side) -> None:
    work = Work()

    def task(a: object, b: object = None) -> int:
        return work(a, b)

    once = Calls(side).once(task)
    found = [
        once("1_b-2"),
        once(1, 2),
        once("1", 2),
        once(1, "2"),
        once(a=True, b=2),
        once(1.0, 2),
        once([1, 2]),
        once("[1, 2]"),
    ]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]


def test_two_functions_with_equal_arguments_are_two_calls(side: Side) -> None:
    calls, work = Calls(side), Work()

    def one(a: int) -> int:
        return work(a)

    def other(a: int) -> int:
        return work(a)

    assert (calls.once(one)(1), calls.once(other)(1)) == (1, 2)


# --- refused ---


def decorators() -> list[Callable[..., Any]]:
    return [Dedup(MemoryStore(), "n"), AsyncDedup(AsyncMemoryStore(), "n")]


def plain(order: Order, units: int = 1) -> None:
    """Be decorated."""


async def coroutine(order: Order, units: int = 1) -> None:
    """Be decorated."""


BAD_KEYS = [
    ("{ordr.id}", "'ordr' is not an argument; there are order, units"),
    ("fixed", "names no argument, so all its calls would be one"),
    ("{order", "key expression '{order' of"),
    (7, "is an expression or a callable, not 7"),
]


@pytest.mark.parametrize("what", ["key", "payload"])
def test_an_expression_that_does_not_fit_is_refused_at_decoration(what: str) -> None:
    for (key, sentence), (decorate, target) in product(BAD_KEYS, zip(decorators(), (plain, coroutine), strict=True)):
        options: Any = {"key": "{order.id}", what: key}
        with pytest.raises(InvalidInput) as refused:
            decorate(**options)(target)
        assert sentence.removeprefix("key " if what == "payload" else "") in str(refused.value)
        assert "\n" not in str(refused.value)


def test_functions_of_the_other_colour_and_what_is_no_function_are_refused() -> None:
    sync, asynchronous = decorators()
    for decorate, target, sentence in (
        (sync(), coroutine, "Dedup runs a function, and .*coroutine is a coroutine function"),
        (asynchronous(), plain, "AsyncDedup runs a coroutine function, and .*plain is a function"),
        (sync(), 7, "decorates a function, not 7; a decorator without options needs its \\(\\)$"),
        (sync(), Order, "decorates a function"),
        (sync(), staticmethod(plain), "stands below @staticmethod"),
        (sync(), lambda order: order, "has no name of its own"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            decorate(target)


def test_a_store_of_the_other_colour_is_refused_when_it_is_given() -> None:
    with pytest.raises(InvalidInput, match="a Dedup needs a store for threads"):
        Dedup(AsyncMemoryStore(), "n")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidInput, match="a Dedup needs a store for asyncio"):
        AsyncDedup(MemoryStore(), "n")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidInput, match="needs a store, or a callable that gives one"):
        Dedup(None, "n")  # type: ignore[arg-type]  # wrong on purpose


def test_an_argument_without_a_text_is_refused_in_one_sentence_and_nothing_runs(side: Side) -> None:
    work = Work()

    def charge(order: object, units: int = 1) -> int:
        return work(order, units)

    once = Calls(side).once(charge)
    for value, sentence in (
        (object(), "argument 'order' of .*charge is object, which has no text"),
        ({7: "x"}, "argument 'order' of .*charge has the key 7, which is not a text"),
        (float("nan"), "argument 'order' of .*charge is nan, which equals nothing"),
        ("\ud800", "argument 'order' of .*charge holds a lone surrogate"),
        ([[object()]], r"argument 'order' of .*charge\[0\]\[0\] is object"),
    ):
        with pytest.raises(InvalidInput, match=sentence) as refused:
            once(value)
        assert "\n" not in str(refused.value)
    assert work.done == 0


def test_a_store_can_be_given_when_it_is_there() -> None:
    stores: list[AsyncMemoryStore] = []
    dedup = AsyncDedup(lambda: stores[0], "late")
    work = Work()

    @dedup()
    async def charge(order: str) -> int:
        return work(order)

    async def scene() -> list[int]:
        stores.append(AsyncMemoryStore())
        return [await charge("7"), await charge("7")]

    assert asyncio.run(scene()) == [1, 1]
