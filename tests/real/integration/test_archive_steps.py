"""The steps of an archive are bounded, also with the largest records that a pool can have."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from redis import Redis

from segmented import protocol as op
from segmented.errors import PoolArchived, StoreError
from segmented.keys import shard_keys
from segmented.models.archives import ENTRIES_AT_ONCE, REMOVED_AT_ONCE
from segmented.stock import Pool
from segmented.stock.archiving import archive
from segmented.stock.archiving.checking import check_archive
from segmented.stock.archiving.file import lines_of
from segmented.stock.archiving.plan import ENTRIES_READ
from segmented.stores.redis import RedisStore
from tests.support.servers.cpu import StepTimes

if TYPE_CHECKING:
    from pathlib import Path

    from segmented.servers import ValkeyServer

SKU: Final = "concert"
KEYS: Final = shard_keys(SKU)
RECORD: Final = "c\t4096\t0\t5\t" + ",".join(f"{segment}:1" for segment in range(4_096))
"""The record of an order with a unit of every segment."""
LINES: Final = "\n".join(f"{number:0240d}\t1\t0" for number in range(1_000))
"""The lines of a batch of 1,000 orders with the longest ids."""
ROUNDS: Final = 3


def fill(store: RedisStore) -> None:
    """Write the largest records, as a pool would have them after long sales."""
    for first in range(0, REMOVED_AT_ONCE, 100):
        store.client.hset(KEYS.orders, mapping={f"order {first + place}": RECORD for place in range(100)})
    fields = ("kind", "reserved", "at_us", "1", "lines", LINES, "chain", "0" * 16)
    for _ in range(ENTRIES_AT_ONCE):
        store.client.execute_command("XADD", KEYS.ledger, "*", *fields)


@pytest.mark.long
def test_no_step_of_an_archive_takes_the_server_ten_milliseconds(private_valkey: ValkeyServer) -> None:
    names = tuple(f"order {number}" for number in range(REMOVED_AT_ONCE))
    steps: dict[str, op.Operation[Any]] = {
        "read orders": op.ScanRecords(SKU, "orders", 0),
        "read entries": op.ScanLedger(SKU, "0-0", ENTRIES_READ),
        "remove orders": op.RemoveRecords(SKU, "orders", names),
        "remove entries": op.RemoveRecords(SKU, "ledger"),
    }
    with RedisStore.from_url(private_valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=10, segments=4_096)
        pool.close()
        store.execute(op.BeginArchive(SKU))
        store.execute(op.CompleteExport(SKU, "ab", "/file"))
        store.execute(op.RemoveRecords(SKU, "orders", ("none",)))  # so that the script is there
        times = StepTimes(store.client)
        for _ in range(ROUNDS):
            fill(store)
            for name, step in steps.items():
                times.measure(name, partial(store.execute, step))
            assert store.client.hlen(KEYS.orders) == 0
            assert store.client.xlen(KEYS.ledger) == 2
        assert times.too_long() == {}


def sell(pool: Pool, count: int) -> None:
    """Open the pool, sell some of its units, and close it."""
    pool.open(stock=40, segments=4)
    for number in range(count):
        pool.reserve(f"order {number}")
        pool.confirm(f"order {number}")
    pool.close()


DENIED: Final = ("hset", "hdel", "zrem", "xtrim", "del", "pexpire", "srem", "hscan", "zscan", "xrange", "hkeys", "xlen")


def test_an_account_without_a_right_is_told_and_another_account_finishes(
    private_valkey: ValkeyServer, tmp_path: Path
) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        for command in DENIED:
            pool, file = Pool(store, command), tmp_path / f"{command}.jsonl"
            sell(pool, 4)
            store.client.execute_command("ACL", "SETUSER", "clerk", "on", ">word", "~*", "&*", "+@all")
            clerk = Redis.from_url(private_valkey.url, username="clerk", password="word")  # of a test
            with RedisStore(clerk) as denied:
                # at the first contact it is refused
                store.client.execute_command("ACL", "SETUSER", "clerk", f"-{command}")
                with pytest.raises(StoreError, match=command):
                    archive(Pool(denied, pool.sku), file)
            clerk.close()
            left = store.client.hget(shard_keys(pool.sku).meta, "archive")
            assert left is None or left.startswith((b"exporting", b"removing"))
            if left is None or left.startswith(b"exporting"):
                assert pool.state().order_count == 4
                assert pool.audit().is_clean
            else:
                assert check_archive(lines_of(file), "here").orders == 4
            assert archive(pool, file).orders == 4
            assert check_archive(lines_of(file), "here").confirmed == 4


def test_an_archive_works_when_memory_is_full(private_valkey: ValkeyServer, tmp_path: Path) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        pool = Pool(store, SKU)
        sell(pool, 25)
        store.client.config_set("maxmemory", "1")
        assert archive(pool, tmp_path / "sold.jsonl").orders == 25
        with pytest.raises(PoolArchived):
            pool.state()
