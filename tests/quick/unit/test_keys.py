from __future__ import annotations

import pytest
import redis

from segmented.keys import directory_keys, listener_channel, lock_keys, shard_keys
from segmented.models import Shard

NASTY = ["a", "{a}", "}", "{", "a{b}c", "%", "%7B", "100 % {x}", "a:b", "ü票", " ", "a\nb", "{}"]


def slot(key: str) -> int:
    return redis.crc.key_slot(key.encode())


def test_a_locks_keys_are_these() -> None:
    keys = lock_keys("jobs/nightly")
    assert keys.listed() == [
        "seg:lock:{jobs/nightly}",
        "seg:lock:{jobs/nightly}:fence",
        "seg:lock:{jobs/nightly}:freed",
    ]


def test_a_shards_keys_are_these() -> None:
    assert shard_keys("ticket").listed() == [
        "seg:{ticket:0}:meta",
        "seg:{ticket:0}:stock",
        "seg:{ticket:0}:free",
        "seg:{ticket:0}:orders",
        "seg:{ticket:0}:holds",
        "seg:{ticket:0}:ledger",
        "seg:{ticket:0}:lock",
        "seg:{ticket:0}:freed",
        "seg:{ticket:0}:customers",
        "seg:{ticket:0}:changes",
        "seg:{ticket:0}:transfers",
        "seg:{ticket:0}:outbox",
        "seg:{ticket:0}:entries",
        "seg:{ticket:0}:dead",
    ]
    assert shard_keys(Shard("ticket", 3, "b")).meta == "seg:{ticket:3b}:meta"


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


def test_different_names_have_different_keys() -> None:
    names = [*NASTY, "%7D", "%257B", "a:0", "a:1"]
    assert len({lock_keys(name).lock for name in names}) == len(names)
    assert len({shard_keys(name).meta for name in names}) == len(names)
    assert not {lock_keys(name).lock for name in names} & {shard_keys(name).meta for name in names}


def test_names_that_differ_by_a_shards_number_do_not_meet() -> None:
    found = [Shard("a:1", 0, "b"), Shard("a", 1, "b"), Shard("a", 10, "b"), Shard("a", 1, "bb"), "a:1", "a", "a:1b"]
    assert len({shard_keys(name).meta for name in found}) == len(found)


def test_the_copies_of_a_directory_have_keys_of_their_own() -> None:
    copies = [directory_keys("ticket", copy).directory for copy in range(3)]
    assert copies == ["seg:{ticket:0}:directory", "seg:{ticket:copy1}:directory", "seg:{ticket:copy2}:directory"]
    assert directory_keys("ticket", 0).beside == tuple(shard_keys("ticket").listed())
    assert directory_keys("ticket", 1).beside == ()


def test_a_listener_has_a_channel_of_its_own() -> None:
    assert listener_channel("1f") == "seg:listener:1f"
