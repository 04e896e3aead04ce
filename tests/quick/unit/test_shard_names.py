"""How shards are named, on which masters they lie, and which is the home of an order."""

from __future__ import annotations

import pickle
from collections import Counter
from copy import deepcopy
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from redis.crc import key_slot

from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import directory_keys, shard_keys
from segmented.models import SHARD_COUNT_MAX, SKU_BYTES_MAX, Shard, checked_pool_name
from segmented.stock.sharded import opening
from segmented.stock.sharded.opening import COPIES

if TYPE_CHECKING:
    from segmented import protocol as op


def test_skus_that_look_like_places_of_each_other_share_no_key() -> None:
    skus = ["a", "a:0", "a:0a", "a:copy1", "{a", "a}", "{a:0a}", "%7Ba", "a%7D"]
    found: Counter[str] = Counter()
    for sku in skus:
        found.update(shard_keys(sku).listed())
        for number in range(3):
            found.update(shard_keys(Shard(sku, number, "a")).listed())
        found.update(directory_keys(sku, copy).directory for copy in range(COPIES))
    assert max(found.values()) == 1


@pytest.mark.parametrize("sku", ["a", "7", "a7b", "Bücher {1}:2", "0a"])
def test_a_shard_travels_and_knows_its_parts(sku: str) -> None:
    shard = Shard(sku, 12, "abz")
    copies = [pickle.loads(pickle.dumps(shard, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]  # noqa: S301  # our own
    for one in (shard, *copies, deepcopy(shard)):
        assert type(one) is Shard
        assert (one, one.sku, one.number, one.salt) == (shard, sku, 12, "abz")
        assert repr(one) == f"shard 12 of {sku!r}"


@pytest.mark.parametrize("sku", ["a", "7", "a7b", "Bücher {1}:2", "0a", "x" * SKU_BYTES_MAX])
def test_a_text_that_was_a_name_is_the_name_again(sku: str) -> None:
    assert checked_pool_name(sku) == sku
    assert type(checked_pool_name(sku)) is str
    for number in range(SHARD_COUNT_MAX):
        for salt in ("a", "abz", "zzzz"):
            shard = Shard(sku, number, salt)
            for name in (shard, "".join(shard)):
                found = checked_pool_name(name)
                assert type(found) is Shard
                assert (found, found.sku, found.number, found.salt) == (shard, sku, number, salt)


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


@pytest.mark.parametrize(
    "name", ["", "\x1f0a", "a\tb", "a\tb\x1f0a", "x" * 129, "x" * 129 + "\x1f0a", 7, None, b"a", ["a"]]
)
def test_what_names_no_pool_at_all_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        checked_pool_name(name)


def test_no_salt_is_longer_than_a_name_may_have() -> None:
    longest = next(islice(opening.letters(), opening.SALTS_MAX - 1, None))
    assert checked_pool_name(Shard("ticket", 63, longest)) == Shard("ticket", 63, longest)


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


def test_single_shards_of_many_pools_are_spread_over_the_masters_too() -> None:
    masters: list[op.SlotRanges] = [((0, 8191),), ((8192, 16383),)]
    found = Counter(master_of(f"s{i}", 0, opening.salts(f"s{i}", 1, masters)[0], masters) for i in range(200))
    assert min(found.values()) > 70


def test_the_order_in_which_masters_are_told_does_not_matter() -> None:
    first, second = ((0, 8191),), ((8192, 16383),)
    assert opening.salts("x", 5, [first, second]) == opening.salts("x", 5, [second, first])


def test_a_master_with_few_slots_is_found_and_one_without_is_an_error() -> None:
    few: list[op.SlotRanges] = [((7, 7), (100, 160)), ((0, 6), (8, 99), (161, 16383))]
    assert sorted(master_of("x", number, salt, few) for number, salt in enumerate(opening.salts("x", 2, few))) == [
        0,
        1,
    ]
    none: list[op.SlotRanges] = [(), ((0, 16383),)]
    with pytest.raises(StoreRefused, match=r"no place was found for shard . of 'x' on the master with the slots"):
        opening.salts("x", 2, none)


def test_without_masters_any_salt_will_do() -> None:
    assert opening.salts("x", 3, ()) == ("a", "a", "a")


@pytest.mark.parametrize(
    ("name", "homes"),
    [("a", (0, 1, 4, 3)), ("order-1", (0, 1, 6, 47)), ("ü {%}", (0, 1, 4, 5)), ("", (0, 0, 0, 0))],
)
def test_the_home_of_an_order_is_the_same_in_every_process(name: str, homes: tuple[int, ...]) -> None:
    assert tuple(opening.home_of(name, count) for count in (1, 2, 7, 64)) == homes
