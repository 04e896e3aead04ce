from __future__ import annotations

import pytest
import redis

from segmented.keys import cache_keys, lock_keys


def test_a_cached_values_keys_are_these() -> None:
    assert cache_keys("price:shirt").listed() == [
        "seg:lock:{price:shirt}",
        "seg:lock:{price:shirt}:fence",
        "seg:lock:{price:shirt}:freed",
        "seg:lock:{price:shirt}:cached",
    ]


@pytest.mark.parametrize("name", ["a", "{a}", "}", "a{b}c", "%7B", "ü票"])
def test_a_cached_value_is_in_the_hash_slot_of_its_lock(name: str) -> None:
    keys = [*cache_keys(name).listed(), *lock_keys(name).listed()]
    assert len({redis.crc.key_slot(key.encode()) for key in keys}) == 1


def test_a_cached_value_is_no_lock_of_another_name() -> None:
    names = ["a", "a:cached", "a}:cached", "{a}:cached"]
    assert not {cache_keys(name).cached for name in names} & {lock_keys(name).lock for name in names}
