"""Profiles where more than one pool, server or process is concerned: on a cluster, and in the hands of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore, protocol as op
from segmented.errors import AcknowledgementUnknown
from segmented.keys import shard_keys
from segmented.models import Reserved
from segmented.orders.envelopes import take_envelope
from tests.fixtures.stores_deployed import deployed_side
from tests.real.integration.test_profiles import set_profile
from tests.support.long_run import in_the_long_run

if TYPE_CHECKING:
    from tests.support.servers.deployments import Cluster, ReplicaPair

pytestmark = pytest.mark.usefixtures("patient_attempts")

PROFILE: Final = "replicated:1/20000ms"
"""A time that no replica needs which hears its master, however busy the machine is."""
BRIEF: Final = "replicated:1/300ms"
"""The profile while the replica hears nothing."""
SKU: Final = "mug"


@pytest.mark.parametrize("colour", ["sync", *in_the_long_run("async")])
def test_on_a_cluster_the_pools_own_master_is_waited_for(cluster: Cluster, colour: str) -> None:
    side = deployed_side(cluster.url, colour)
    pool = side.pool(f"{SKU}-{colour}")
    pool.open(stock=20, segments=4, profile=PROFILE)
    assert isinstance(pool.reserve("o-1"), Reserved)
    meta = shard_keys(pool.sku).meta
    master = cluster.master_of(meta)
    replica = cluster.replica_of(master)
    master.ask("HSET", meta, "profile", BRIEF)
    replica.pause()
    try:
        with pytest.raises(AcknowledgementUnknown) as caught:
            pool.reserve("o-2")
        many = pool.reserve_many([Order("o-3"), Order("o-4")])
    finally:
        replica.resume()
    master.ask("HSET", meta, "profile", PROFILE)
    assert (caught.value.wanted, caught.value.counted) == (1, 0)
    assert [type(one) for one in many] == [AcknowledgementUnknown] * 2
    assert [type(one) for one in pool.reserve_many([Order(f"o-{number}") for number in (2, 3, 4)])] == [Reserved] * 3
    assert pool.state().reserved == 4
    side.close()


def test_a_worker_defers_an_order_whose_confirm_is_unknown_and_confirms_it_later(replica_pair: ReplicaPair) -> None:
    with RedisStore.from_url(replica_pair.url) as store:
        pool = Pool(store, SKU, outbox=Outbox())
        pool.open(stock=20, segments=4, profile=PROFILE)
        pool.submit("o-1")
        set_profile(replica_pair, BRIEF)
        replica_pair.replica.pause()
        first = take_envelope(pool, ["o-1"])
        replica_pair.replica.resume()
        set_profile(replica_pair, PROFILE)
        again = take_envelope(pool, ["o-1"])
        assert list(first.put_off) == ["o-1"]
        assert (first.settled, [one.state for one in again.settled]) == ([], ["confirmed"])
        assert pool.audit().is_clean


def test_a_pool_without_order_database_waits_also_for_what_its_caller_calls_stored(replica_pair: ReplicaPair) -> None:
    with RedisStore.from_url(replica_pair.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=20, segments=4, profile=PROFILE)
        pool.reserve("o-1")
        set_profile(replica_pair, BRIEF)
        replica_pair.replica.pause()
        with pytest.raises(AcknowledgementUnknown):
            store.execute(op.Confirm(SKU, "o-1", stored=True))
        replica_pair.replica.resume()
        set_profile(replica_pair, PROFILE)
        assert store.execute(op.Confirm(SKU, "o-1", stored=True)).state == "confirmed"
