"""A release whose connection broke tells a lease that was revoked, or whose server lost its data, from a lost reply."""

from collections.abc import Iterator
from typing import Final

import pytest

from segmented.errors import LeaseLost
from segmented.locks import Lock, operator
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support.proxy import RedisProxy

pytestmark = pytest.mark.usefixtures("patient_attempts")

LONG: Final = 60.0
RELEASE: Final = b"DELIFEQ"


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


def break_connections(store: RedisStore) -> None:
    """Let the server close every connection but the one that asks for it."""
    store.client.execute_command("CLIENT", "KILL", "TYPE", "normal")


def test_a_release_after_a_restart_without_data_says_that_the_lease_is_lost(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    store.client.config_set("save", "")
    lease = Lock(store, "door", ttl=LONG).acquire(timeout=60)
    private_valkey.kill()
    private_valkey.restart()
    with pytest.raises(LeaseLost):
        lease.release()
    assert lease.is_lost


def test_a_release_after_a_revoke_and_a_broken_connection_says_the_lease_is_lost(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    lease = Lock(store, "door", ttl=LONG).acquire(timeout=60)
    with RedisStore.from_url(private_valkey.url) as other:
        assert operator.revoke(other, "door") is not None
        Lock(other, "door", ttl=LONG).acquire(timeout=60)  # a successor does not hide the revoke
        break_connections(other)
    with pytest.raises(LeaseLost):
        lease.release()


@pytest.mark.parametrize("then", ["nothing", "another holds it", "another's lease is revoked"])
def test_a_release_whose_reply_was_lost_is_silent_whatever_came_after_it(
    private_valkey: ValkeyServer, store: RedisStore, then: str
) -> None:
    with RedisProxy(private_valkey.url) as proxy, RedisStore.from_url(proxy.url) as far:
        lease = Lock(far, "door", ttl=LONG).acquire(timeout=60)
        proxy.swallow_replies(1, to=RELEASE, and_refuse=True)
        with pytest.raises(Exception, match="did not answer"):
            lease.release()
        if then != "nothing":
            Lock(store, "door", ttl=LONG).acquire(timeout=60)
        if then == "another's lease is revoked":
            assert operator.revoke(store, "door") is not None
        proxy.come_back()
        lease.release()
        assert proxy.swallowed == 1


def test_a_lease_that_was_adopted_is_not_said_to_be_lost_because_its_fence_is_gone(store: RedisStore) -> None:
    first = Lock(store, "door", ttl=LONG).acquire(timeout=60)
    adopted = Lock(store, "door", ttl=LONG).adopt(first.holder_id)  # nobody knows how old its fence is
    store.client.flushall()
    break_connections(store)
    adopted.release()
