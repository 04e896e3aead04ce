"""Failover by Sentinels, in mid-wait and in mid-hold: what holds, and what is lost."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from segmented.errors import LeaseLost, StoreUnavailable
from segmented.masking import masked
from segmented.protocol import AcquireLock
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import COLOURS, deployed_side, sentence_of
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.servers.deployments import Sentinels
from tests.support.servers.nodes import Node, eventually

LONG: Final = 600.0
SOON: Final = 60.0
FAILOVER: Final = 60.0
"""Far above what a failover takes here (two seconds, and the pauses of a busy machine), far below LONG."""


@pytest.fixture
def sides(request: pytest.FixtureRequest, private_sentinels: Sentinels) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on a deployment that the test may break."""
    made = [
        deployed_side(private_sentinels.url, getattr(request, "param", "sync"), patience=FAILOVER) for _ in range(2)
    ]
    yield made[0], made[1]
    for side in made:
        side.close()


def let_replicas_catch_up(deployment: Sentinels) -> None:
    """Wait until both replicas have all that the master has had until now."""
    with deployment.master().client() as client:
        client.set("marker", "1")
        eventually(lambda: client.execute_command("WAIT", 2, 1_000) == 2, "the replicas have it all")


@pytest.mark.parametrize("sides", COLOURS, indirect=True)
def test_a_lease_that_was_replicated_outlives_the_master(
    private_sentinels: Sentinels, sides: tuple[Side, Side]
) -> None:
    ours, theirs = sides
    held = ours.lock("a", ttl=LONG).acquire(timeout=0)
    let_replicas_catch_up(private_sentinels)
    old = private_sentinels.master()
    old.kill()
    held.renew()  # asked again until the new master is in office
    assert private_sentinels.wait_failover(old) is not old
    assert theirs.lock("a", ttl=LONG).try_acquire() is None
    held.release()
    taken = theirs.lock("a", ttl=LONG).acquire(timeout=SOON)
    assert taken.fencing_token > held.fencing_token
    taken.release()


@pytest.mark.parametrize(("sides", "way"), [("sync", "kill"), ("async", "cut")], indirect=["sides"])
def test_a_waiter_waits_on_at_the_new_master_and_is_woken_there(
    private_sentinels: Sentinels, sides: tuple[Side, Side], way: str
) -> None:
    ours, theirs = sides
    held = theirs.lock("a", ttl=2 * LONG).acquire(timeout=0)
    lock = ours.lock("a", ttl=LONG)
    waiter = ours.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, ours.store, 1))
    let_replicas_catch_up(private_sentinels)
    old = private_sentinels.master()
    if way == "kill":
        old.kill()
    else:
        old.pause()
    new = private_sentinels.wait_failover(old)
    eventually(lambda: new.ask("PUBSUB", "NUMSUB", "seg:lock:{a}:freed")[1] == 1, "the waiter listens there")
    held.release()
    taken = waiter.result(SOON)
    assert taken.fencing_token > held.fencing_token
    taken.release()


def test_a_lease_that_was_not_replicated_is_lost_but_tokens_still_grow(
    private_sentinels: Sentinels, sides: tuple[Side, Side]
) -> None:
    ours, theirs = sides
    old = private_sentinels.master()
    replicas = [server for server in private_sentinels.servers if server is not old]
    for replica in replicas:
        replica.pause()
    old.ask("CLIENT", "KILL", "TYPE", "replica")  # what was sent already would still be read
    held = ours.lock("a", ttl=LONG).acquire(timeout=0)
    old.kill()
    for replica in replicas:
        replica.resume()
    private_sentinels.wait_failover(old)
    taken = theirs.lock("a", ttl=LONG).acquire(timeout=FAILOVER)  # exclusion was lost with the key
    assert taken.fencing_token > held.fencing_token  # the resource refuses the older one
    with pytest.raises(LeaseLost):
        held.renew()
    taken.release()


def test_a_master_that_was_cut_off_and_comes_back_is_followed_by_nobody(
    private_sentinels: Sentinels, sides: tuple[Side, Side]
) -> None:
    ours, theirs = sides
    for side in sides:
        side.execute(AcquireLock("warm", "a", 60_000))
    old = private_sentinels.master()
    old.pause()
    held = ours.lock("a", ttl=LONG).acquire(timeout=FAILOVER)
    new = private_sentinels.wait_failover(old)
    old.resume()
    private_sentinels.wait_whole()
    assert theirs.lock("a", ttl=LONG).try_acquire() is None
    held.release()
    assert new.ask("EXISTS", "seg:lock:{a}") == 0


@pytest.mark.parametrize(("colour", "deadline"), [("sync", 0.5), ("async", None)])
def test_without_any_master_an_operation_is_given_up_at_its_patience_or_deadline(
    private_sentinels: Sentinels, colour: str, deadline: float | None
) -> None:
    side = deployed_side(private_sentinels.url, colour, patience=1.5 if deadline is None else LONG)
    for sentinel in private_sentinels.sentinels:
        sentinel.kill()
    private_sentinels.servers[0].kill()
    lock = side.lock("a", ttl=LONG)
    with pytest.raises(StoreUnavailable, match="did not answer"):  # long before the test's time limit
        lock.try_acquire() if deadline is None else lock.acquire(timeout=deadline)
    side.close()


# --- at the first contact ---


def test_a_service_that_no_sentinel_knows(sentinels: Sentinels) -> None:
    url = sentinels.url.replace("/stock", "/other")
    assert sentence_of(url, StoreUnavailable) == f"no server answers at {url}: No master found for 'other'"


def test_a_sentinel_given_as_a_server(sentinels: Sentinels) -> None:
    url = sentinels.sentinels[0].url
    assert sentence_of(url) == f"the server at {url} is a Sentinel: give redis+sentinel://HOST:PORT/SERVICE"


def test_a_replica_given_as_a_server(sentinels: Sentinels) -> None:
    replica = next(server for server in sentinels.servers if server is not sentinels.master())
    sentence = f"the server at {replica.url} is a replica, which takes no locks and no stock: give its master's address"
    assert sentence_of(replica.url) == sentence


def test_passwords_of_servers_and_sentinels_are_used_and_not_shown(private_sentinels: Sentinels) -> None:
    def protect(node: Node, secret: str) -> None:
        node.ask("CONFIG", "SET", "requirepass", secret)

    for sentinel in private_sentinels.sentinels:  # which connect again should a server stand still for a while
        sentinel.ask("SENTINEL", "SET", "stock", "auth-pass", "sesame")
    for server in private_sentinels.servers:
        server.ask("CONFIG", "SET", "masterauth", "sesame")
        protect(server, "sesame")
    bare = private_sentinels.url
    assert sentence_of(bare).startswith(f"{bare} asks for a password, and the URL has none: ")
    url = bare.replace("://", "://:sesame@")
    with RedisStore.from_url(url) as store:
        store.execute(AcquireLock("a", "x", 60_000))
        assert "sesame" not in repr(store)
    for sentinel in private_sentinels.sentinels:
        sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">open")
    assert sentence_of(url).endswith("/stock/0: No master found for 'stock'; a Sentinel refused its password")
    with RedisStore.from_url(f"{url}?sentinel_password=open") as store:
        store.execute(AcquireLock("b", "x", 60_000))
        assert repr(store).startswith(f"RedisStore({bare.replace('://', '://:***@')}?sentinel_password=***, ")
    wrong = bare.replace("://", "://:mistaken@") + "?sentinel_password=open"
    assert sentence_of(wrong) == f"{masked(wrong)} refused the password or account of the URL"
