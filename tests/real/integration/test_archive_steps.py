"""The steps of an archive are bounded, also with the largest records that a pool can have."""

from pathlib import Path
from typing import Final

import pytest
from redis import Redis

from segmented.errors import PoolArchived, StoreError
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import archive, lines_of
from segmented.stores.redis import RedisStore

SKU: Final = "concert"


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
