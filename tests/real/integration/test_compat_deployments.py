"""`segmented.compat` on a cluster, where the keys of a lock have to be in one slot, and by way of Sentinels."""

from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from segmented import RedisStore, compat
from tests.support.servers.deployments import Cluster


def check(client: Any) -> None:  # noqa: ANN401  # of one server or of a cluster
    for name in ("door", "a{b}c"):
        with client.lock(name, timeout=600, lock_class=compat.Lock) as lock:
            assert lock.owned()
            assert not client.lock(name, lock_class=compat.Lock).acquire(blocking_timeout=0.05)
            assert not client.lock(name).acquire(blocking=False)
            assert lock.extend(600)
        assert not lock.locked()
    compat.store_of(client).close()


def test_locks_of_redis_pys_interface_on_a_cluster(cluster: Cluster) -> None:
    with RedisStore.from_url(cluster.url) as store:
        assert isinstance(store.client, redis.RedisCluster)
        check(store.client)
        with pytest.raises(ResponseError, match="same slot"):
            store.client.lock("a}b", lock_class=compat.Lock).acquire(blocking=False)
        compat.store_of(store.client).close()
