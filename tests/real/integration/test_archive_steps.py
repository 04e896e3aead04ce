"""The steps of an archive are bounded, also with the largest records that a pool can have."""

from pathlib import Path
from typing import Final

import pytest

from segmented.errors import PoolArchived
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stock.archiving import archive
from segmented.stores.redis import RedisStore

SKU: Final = "concert"


def sell(pool: Pool, count: int) -> None:
    """Open the pool, sell some of its units, and close it."""
    pool.open(stock=40, segments=4)
    for number in range(count):
        pool.reserve(f"order {number}")
        pool.confirm(f"order {number}")
    pool.close()


def test_an_archive_works_when_memory_is_full(private_valkey: ValkeyServer, tmp_path: Path) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        pool = Pool(store, SKU)
        sell(pool, 25)
        store.client.config_set("maxmemory", "1")
        assert archive(pool, tmp_path / "sold.jsonl").orders == 25
        with pytest.raises(PoolArchived):
            pool.state()
