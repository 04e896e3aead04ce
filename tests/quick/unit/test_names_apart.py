"""Names and numbers of users: none stands for another's, none misleads a reader, and absurd ones get a sentence."""

from __future__ import annotations

import gzip
from dataclasses import astuple
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from segmented import InvalidInput, Lock, MemoryStore, Order, Outbox, Pool, single_flight
from segmented.celery.selling.orders_file import read_orders
from segmented.keys import cache_keys, cart_keys, message_keys, operator_keys, shard_keys
from segmented.locks.key_expressions import KeyExpression
from segmented.once_keys import once_keys
from segmented.stock import Cart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNSEEN = {
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "right to left override": "\u202e",
    "isolate": "\u2066",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "line separator": "\u2028",
    "escape": "\x1b",
}
DIGEST = "0123456789ab"
PIECES = st.lists(st.sampled_from(["a", "b:", ":", "{id}", "{{", "}}", "-{id}"]), min_size=1, max_size=4).map("".join)


@pytest.mark.parametrize("character", UNSEEN.values(), ids=UNSEEN)
def test_no_id_has_a_character_that_is_not_seen(character: str, tmp_path: Path) -> None:
    odd = f"o-{character}1"
    makers: dict[str, Callable[[], object]] = {
        "order id": lambda: Order(odd, 1),
        "customer id": lambda: Order("o-1", 1, odd),
        "cart id": lambda: Cart(odd, [("mug", 1)]),
        "sku": lambda: Pool(MemoryStore(), odd),
        "sku in cart 'c'": lambda: Cart("c", [(odd, 1)]),
    }
    for what, make in makers.items():
        with pytest.raises(InvalidInput) as caught:
            make()
        assert str(caught.value) == f"{what} {odd!r} has characters that cannot be printed"
    path = tmp_path / "orders.csv"
    path.write_text(f'order_id,quantity\n"{odd}x",1\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 2: order_id .* has characters that cannot be printed$"):
        read_orders(path)


def test_an_id_of_the_form_of_a_carts_orders_is_for_carts_only(tmp_path: Path) -> None:
    pool = Pool(MemoryStore(), "mug", outbox=Outbox())
    pool.open(stock=10, segments=2)
    odd = f"cart~{DIGEST}"
    sentence = f"order id '{odd}' ends like those of carts: end it otherwise than with ~ and a digest"
    asks: tuple[Callable[[Any], object], ...] = (
        pool.reserve,
        lambda order: pool.grant(order, timeout=0),
        pool.submit,
    )
    lists: tuple[Callable[[Any], object], ...] = (pool.reserve_many, pool.submit_many)
    for call, given_order in [
        *((ask, one) for ask in asks for one in (odd, Order(odd, 1))),
        *((ask, [Order("o-1", 1), Order(odd, 1)]) for ask in lists),
    ]:
        with pytest.raises(InvalidInput) as caught:
            call(given_order)
        assert str(caught.value) == sentence
    path = tmp_path / "orders.csv.gz"
    path.write_bytes(gzip.compress(f"order_id,quantity\n{odd},1\n".encode()))
    with pytest.raises(InvalidInput) as caught:
        read_orders(path)
    assert str(caught.value) == f"{path}, line 2: {sentence}"
    assert pool.state().available == 10
    for like in (f"~{DIGEST[:-1]}", f"cart~{DIGEST}0", f"cart~{DIGEST.upper()}", f"cart{DIGEST}"):
        assert pool.reserve(like)


def test_functions_with_other_expressions_share_no_kept_value() -> None:
    flight = single_flight(MemoryStore(), keep=60)

    @flight("user:{id}")
    def user(id: str) -> str:  # noqa: A002  # as in the expression
        return f"the user {id}"

    @flight("user:{id}:orders")
    def orders(id: int) -> str:  # noqa: A002  # as in the expression
        return f"the orders of {id}"

    assert [user("7:orders"), orders(7)] == ["the user 7:orders", "the orders of 7"]


@given(PIECES, PIECES, st.text("ab:-{}%1", min_size=1, max_size=4), st.text("ab:-{}%1", min_size=1, max_size=4))
def test_marked_keys_are_equal_for_equal_literals_and_arguments_only(
    one: str, two: str, first: str, second: str
) -> None:
    try:
        expressions = [KeyExpression(one), KeyExpression(two)]
    except InvalidInput:
        return  # two fields without a separator
    parts = ({"id": first}, {"id": second})
    keys = [expression.key(part, marked=True) for expression, part in zip(expressions, parts, strict=True)]
    is_same = one == two and (first == second or "{id}" not in one)
    assert (keys[0] == keys[1]) is is_same


@pytest.mark.parametrize("absurd", [1e308, 1e300, 2**53, 10**400, float("inf"), float("nan")], ids=repr)
def test_an_absurd_duration_gets_a_sentence(absurd: float) -> None:
    store = MemoryStore()
    makers: dict[str, Callable[[], object]] = {
        "ttl": lambda: Lock(store, "n", ttl=absurd),
        "lock_delay": lambda: Lock(store, "n", lock_delay=absurd),
        "hold": lambda: Pool(store, "n", hold=absurd),
        "keep": lambda: single_flight(store, keep=absurd),
    }
    for what, make in makers.items():
        with pytest.raises(InvalidInput, match=rf"^{what} of .* s is not a duration: give ") as caught:
            make()
        assert "\n" not in str(caught.value)
    Lock(store, "n", ttl=timedelta(days=365_000)).acquire(timeout=0).release()


@pytest.mark.parametrize("absurd", [0, -1, 2**70, 10**400, 1e308, "1", None, True], ids=str)
def test_an_absurd_epoch_gets_a_sentence(absurd: Any) -> None:  # noqa: ANN401  # what is tested
    pool = Pool(MemoryStore(), "mug")
    pool.open(stock=10, segments=2)
    with pytest.raises(
        InvalidInput, match=r"^epoch .* of 'mug' (is not a whole number|must be between 1 and 1,048,576)$"
    ):
        pool.epoch(at_least=absurd)


HOSTILE = ("a", "0", ":", "{", "}", "%", "%7B", ":lock", "~1", "*")
NAMES = ["".join(parts) for length in (1, 2, 3) for parts in product(HOSTILE, repeat=length)]
FAMILIES: dict[str, Callable[[str], list[Any]]] = {
    "locks": lambda name: [operator_keys(name), cache_keys(name)],
    "pools": lambda sku: [shard_keys(sku), cart_keys(sku)],
    "queues": lambda queue: [message_keys(queue)],
    "runs": lambda key: [once_keys("app", key).record],
    "runs of an app": lambda namespace: [once_keys(namespace, "key").record],
}


def texts(found: Any) -> Iterator[str]:  # noqa: ANN401  # a dataclass of keys, a tuple of them, or a key
    """Yield the keys in what the key module returns."""
    if isinstance(found, str):
        yield found
    else:
        for part in found if isinstance(found, (list, tuple)) else astuple(found):
            yield from texts(part)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_two_of_1110_hostile_names_share_a_key(family: str) -> None:
    owners: dict[str, str] = {}
    for name in NAMES:
        for key in texts(FAMILIES[family](name)):
            assert owners.setdefault(key, name) == name, key
    assert (len(NAMES), len(set(NAMES))) == (1_110, len(set(owners.values())))
