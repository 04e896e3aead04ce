"""The scripts of locks that several may hold, on a real server: which keys they touch, and that each of them ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import redis

from segmented import protocol as op
from segmented.errors import StoreRefused
from segmented.keys import lock_keys, read_write_keys
from segmented.models import Released, Renewed
from segmented.protocol.wire import text

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore


NAME: Final = "n{a}me"
KEYS: Final = read_write_keys(NAME)
DAY_MS: Final = 24 * 3_600_000


def lives_of(store: RedisStore) -> dict[str, int]:
    """Return every key of the lock with the milliseconds that it has left; -1 for one without end."""
    found = [text(key) for key in store.client.keys("*")]
    return {key: store.client.pttl(key) for key in found if key.startswith(KEYS.lock)}


def test_a_reader_is_a_member_of_a_set_that_lives_as_long_as_the_last(store: RedisStore) -> None:
    store.execute(op.AcquireRead(NAME, "r1", 60_000))
    store.execute(op.AcquireRead(NAME, "r2", 30_000))
    lives = lives_of(store)
    assert set(lives) == {KEYS.lock, KEYS.fence, KEYS.readers}
    assert 30_000 < lives[KEYS.lock] <= 60_000
    assert 30_000 < lives[KEYS.readers] <= 60_000
    assert DAY_MS < lives[KEYS.fence] <= DAY_MS + 60_000
    store.execute(op.RenewReadWrite(NAME, "r2", 90_000))
    assert 60_000 < lives_of(store)[KEYS.lock] <= 90_000
    store.execute(op.ReleaseReadWrite(NAME, "r2"))
    assert 30_000 < lives_of(store)[KEYS.lock] <= 60_000
    store.execute(op.ReleaseReadWrite(NAME, "r1"))
    assert set(lives_of(store)) == {KEYS.fence}


def test_a_writer_is_one_hash_and_a_waiting_one_a_member_of_a_set_that_ends(store: RedisStore) -> None:
    store.execute(op.AcquireWrite(NAME, "w1", 60_000))
    store.execute(op.AcquireWrite(NAME, "w2", 60_000, 30_000))
    lives = lives_of(store)
    assert set(lives) == {KEYS.lock, KEYS.fence, KEYS.writers}
    assert 30_000 < lives[KEYS.lock] <= 60_000
    assert 10_000 < lives[KEYS.writers] <= 30_000
    assert store.client.hget(KEYS.lock, "holder") == b"w1"
    assert store.client.hmget(KEYS.fence, ["kind"]) == [b"read_write"]
    store.execute(op.ReleaseReadWrite(NAME, "w2"))
    store.execute(op.ReleaseReadWrite(NAME, "w1"))
    assert set(lives_of(store)) == {KEYS.fence}


def test_a_semaphore_is_one_set_that_lives_as_long_as_the_last_permit(store: RedisStore) -> None:
    keys = lock_keys(NAME)
    store.execute(op.AcquirePermit(NAME, "a", 60_000, 3))
    store.execute(op.AcquirePermit(NAME, "b", 30_000, 3))
    lives = lives_of(store)
    assert set(lives) == {keys.lock, keys.fence}
    assert 30_000 < lives[keys.lock] <= 60_000
    assert DAY_MS < lives[keys.fence] <= DAY_MS + 60_000
    assert store.client.hmget(keys.fence, ["kind", "permits"]) == [b"semaphore", b"3"]
    for holder in ("a", "b"):
        store.execute(op.ReleasePermit(NAME, holder))
    assert set(lives_of(store)) == {keys.fence}


def test_a_thousand_dead_permits_are_forgotten_by_the_next_acquire(store: RedisStore) -> None:
    keys = lock_keys(NAME)
    store.execute(op.AcquirePermit(NAME, "living", 60_000, 2_000))
    store.client.zadd(keys.lock, {f"dead{index}": 1 for index in range(1_000)})
    store.execute(op.AcquirePermit(NAME, "new", 60_000, 2_000))
    assert store.client.zrange(keys.lock, 0, -1) == [b"living", b"new"]


@pytest.mark.parametrize(
    ("acquire", "renew", "release"),
    [
        (op.AcquireRead(NAME, "h", 60_000), op.RenewReadWrite(NAME, "h", 60_000), op.ReleaseReadWrite(NAME, "h")),
        (op.AcquireWrite(NAME, "h", 60_000), op.RenewReadWrite(NAME, "h", 60_000), op.ReleaseReadWrite(NAME, "h")),
        (op.AcquirePermit(NAME, "h", 60_000, 2), op.RenewPermit(NAME, "h", 60_000), op.ReleasePermit(NAME, "h")),
    ],
)
def test_without_memory_a_lease_is_renewed_and_released_and_none_is_granted(
    store: RedisStore, acquire: op.Operation[object], renew: op.Operation[object], release: op.Operation[object]
) -> None:
    store.execute(acquire)
    store.client.config_set("maxmemory", 1)
    try:
        assert store.execute(renew) == Renewed(60_000)
        assert store.execute(release) == Released()
        with pytest.raises(StoreRefused, match="maxmemory"):
            store.execute(acquire)
    finally:
        store.client.config_set("maxmemory", 0)


def test_the_historical_lock_is_one_plain_string_without_an_end(store: RedisStore) -> None:
    keys = lock_keys(NAME)
    store.execute(op.SetNx(NAME, "1700000000.000000"))
    assert lives_of(store) == {keys.lock: -1}
    store.execute(op.DeleteValue(NAME))
    assert lives_of(store) == {}


def test_all_keys_of_a_name_are_in_one_hash_slot() -> None:
    assert len({redis.crc.key_slot(key.encode()) for key in KEYS.listed()}) == 1
