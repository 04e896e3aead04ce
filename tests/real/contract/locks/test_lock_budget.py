"""A wait ends at its deadline, whatever the transport does: connecting, sending, and every retry are inside it."""

import pytest
import redis

from segmented import Lock, RedisStore
from segmented.errors import AcquireTimeout, StoreUnavailable
from tests.support.servers.deployments import ReplicaPair

WAIT = 0.4
"""Seconds of a wait on a server that has been stopped, and says nothing before the test lets it go on."""


@pytest.fixture
def patient_attempts() -> None:
    """Have the product's own bounds: with longer ones no wait here would end."""


@pytest.mark.parametrize("is_known", [True, False], ids=["connected-before", "never-connected"])
def test_e2_a_server_that_hangs_ends_a_wait_at_its_deadline(replica_pair: ReplicaPair, *, is_known: bool) -> None:
    with redis.Redis.from_url(replica_pair.url) as client, RedisStore(client) as store:
        if is_known:
            Lock(store, "hung", ttl=600).acquire(timeout=60).release()
        replica_pair.master.pause()
        with pytest.raises((StoreUnavailable, AcquireTimeout)):
            Lock(store, "hung", ttl=600).acquire(timeout=WAIT)
        replica_pair.master.resume()
