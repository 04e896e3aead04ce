"""The keys of locks, pools, shards and cached values, and which names share none."""

import gzip
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from segmented import MemoryStore, Order, Outbox, Pool, protocol as op, single_flight
from segmented.celery.selling.orders_file import read_orders
from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import cache_keys, cart_keys, lock_keys, message_key, once_keys, operator_keys, shard_keys
from segmented.locks import MultiLock, locked
from segmented.models import Shard, checked_pool_name
from segmented.stock import Cart
from segmented.stock.sharded import opening
from tests.support.contract.locks.kinds import HANDLES

NASTY = ["a", "{a}", "}", "{", "a{b}c", "%", "%7B", "100 % {x}", "a:b", "ü票", " ", "a\nb", "{}"]


def slot(key: str) -> int:
    return redis.crc.key_slot(key.encode())


@pytest.mark.parametrize("name", NASTY)
def test_a_key_has_one_hash_tag_whatever_the_name(name: str) -> None:
    for key in [*lock_keys(name).listed(), *shard_keys(name).listed()]:
        assert key.count("{") == key.count("}") == 1
        assert key.index("{") + 1 < key.index("}")


@pytest.mark.parametrize("name", NASTY)
def test_all_keys_of_a_name_are_in_one_hash_slot(name: str) -> None:
    shard = shard_keys(name)
    assert len({slot(key) for key in lock_keys(name).listed()}) == 1
    assert len({slot(key) for key in [*shard.listed(), *(f"{shard.lock}:{segment}" for segment in range(100))]}) == 1


def test_a_cached_values_keys_are_these() -> None:
    assert cache_keys("price:shirt").listed() == [
        "seg:lock:{price:shirt}",
        "seg:lock:{price:shirt}:fence",
        "seg:lock:{price:shirt}:freed",
        "seg:lock:{price:shirt}:cached",
    ]


BAD_PLACES = [
    "",
    "0",
    "a",
    "00a",
    "01a",
    "64a",
    "100a",
    "-1a",
    "0A",
    "0ä",
    "٣a",
    "0a1",
    "0a ",
    "0a\n",
    " 0a",
    "0a\x1f1a",
]


@pytest.mark.parametrize("place", [*BAD_PLACES, "0a}:b", "0" + "a" * 9], ids=repr)
def test_a_text_that_is_not_quite_the_name_of_a_shard_is_refused(place: str) -> None:
    with pytest.raises(InvalidInput, match=r"^'ticket\\x1f.*names no shard of 'ticket'$"):
        checked_pool_name(f"ticket\x1f{place}")


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 129, 7, None, b"a"])
def test_what_names_no_pool_at_all_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        checked_pool_name(name)


def test_every_master_has_equally_many_shards() -> None:
    three = [((0, 5460),), ((5461, 10922),), ((10923, 12000), (12001, 16383))]
    for sku in ("ticket", "{x}:y", "Bücher"):
        for shard_count in range(1, 65):
            salts = opening.salts(sku, shard_count, three)
            found = Counter(master_of(sku, number, salt, three) for number, salt in enumerate(salts))
            assert max(found.values()) - min(found.get(master, 0) for master in range(3)) <= 1
            assert all(salt.isalpha() and salt.islower() for salt in salts)


def master_of(sku: str, number: int, salt: str, masters: list[op.SlotRanges]) -> int:
    slot = key_slot(shard_keys(Shard(sku, number, salt)).meta.encode())
    (found,) = [index for index, ranges in enumerate(masters) if any(first <= slot <= last for first, last in ranges)]
    return found


def test_a_master_with_few_slots_is_found_and_one_without_is_an_error() -> None:
    few: list[op.SlotRanges] = [((7, 7), (100, 160)), ((0, 6), (8, 99), (161, 16383))]
    assert sorted(master_of("x", number, salt, few) for number, salt in enumerate(opening.salts("x", 2, few))) == [
        0,
        1,
    ]
    none: list[op.SlotRanges] = [(), ((0, 16383),)]
    with pytest.raises(StoreRefused, match=r"no place was found for shard . of 'x' on the master with the slots"):
        opening.salts("x", 2, none)


@pytest.mark.parametrize(
    ("name", "homes"),
    [("a", (0, 1, 4, 3)), ("order-1", (0, 1, 6, 47)), ("ü {%}", (0, 1, 4, 5)), ("", (0, 0, 0, 0))],
)
def test_the_home_of_an_order_is_the_same_in_every_process(name: str, homes: tuple[int, ...]) -> None:
    assert tuple(opening.home_of(name, count) for count in (1, 2, 7, 64)) == homes


STORE = MemoryStore()
NAME = "_segmented:sweep of segmented"
KINDS: dict[str, Callable[[], object]] = {
    **{kind.title: partial(kind.sync, STORE, NAME) for kind in HANDLES if kind.servers == 1},
    "MultiLock": lambda: MultiLock(STORE, ["a", NAME]),
    "locked": locked(NAME, store=STORE)(lambda: 7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_of_the_librarys_own_is_refused_in_one_sentence(kind: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        KINDS[kind]()
    assert str(caught.value) == (
        "the name of a lock begins with '_segmented:', which the library uses for its own locks: "
        "'_segmented:sweep of segmented'"
    )


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


HOSTILE = ("a", "0", ":", "{", "}", "%", "%7B", ":lock", "~1", "*")
NAMES = ["".join(parts) for length in (1, 2, 3) for parts in product(HOSTILE, repeat=length)]
FAMILIES: dict[str, Callable[[str], list[Any]]] = {
    "locks": lambda name: [operator_keys(name), cache_keys(name)],
    "pools": lambda sku: [shard_keys(sku), cart_keys(sku)],
    "queues": lambda queue: [message_key(queue)],
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
