"""Profiles where more than one pool, server or process is concerned: on a cluster, and in the hands of workers."""

from typing import Final

import pytest

from segmented import Outbox, Pool, RedisStore, protocol as op
from segmented.errors import AcknowledgementUnknown
from segmented.orders.envelopes import take_envelope
from tests.real.integration.test_profiles import set_profile
from tests.support.servers.deployments import ReplicaPair

pytestmark = pytest.mark.usefixtures("patient_attempts")

PROFILE: Final = "replicated:1/20000ms"
"""A time that no replica needs which hears its master, however busy the machine is."""
BRIEF: Final = "replicated:1/300ms"
"""The profile while the replica hears nothing."""
SKU: Final = "mug"


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
            store.execute(op.Confirm(SKU, "o-1", decided=True))
        replica_pair.replica.resume()
        set_profile(replica_pair, PROFILE)
        assert store.execute(op.Confirm(SKU, "o-1", decided=True)).state == "confirmed"
