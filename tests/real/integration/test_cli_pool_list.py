"""`segmented pool list`: every pool that was opened, in shards or not."""

import json

from segmented import Pool, RedisStore
from segmented.servers import ValkeyServer
from segmented.stock import ShardedPool
from tests.support.command_line import ran


def test_every_pool_that_was_opened_is_listed_until_it_is_archived(valkey: ValkeyServer, tmp_path: object) -> None:
    assert ran("pool", "list", url=valkey.url).stderr == "segmented: no pool was opened on this server\n"
    with RedisStore.from_url(valkey.url) as store:
        poster = Pool(store, "poster")
        poster.open(stock=10, segments=2)
        poster.reserve("a", quantity=3)
        ShardedPool(store, "plate").open(stock=20, segments=4, shards=2)
        assert ran("pool", "list", url=valkey.url).stdout.splitlines() == [
            "plate\t20\t0\t0\topen",
            "poster\t7\t3\t0\topen",
        ]
        listed = json.loads(ran("pool", "list", "--json", "-", url=valkey.url).stdout)["pools"]
        assert [(one["sku"], one["state"]["available"]) for one in listed] == [("plate", 20), ("poster", 7)]
        poster.cancel("a")
        poster.close()
        file = f"{tmp_path}/poster.jsonl"
        assert ran("pool", "archive", "poster", "--to", file, "--yes", url=valkey.url).returncode == 0
    assert ran("pool", "list", url=valkey.url).stdout.splitlines() == ["plate\t20\t0\t0\topen"]
