"""The core of the contract, on every deployment and in both colours."""

from functools import partial
from typing import Final

import pytest

from segmented.errors import StoreUnavailable
from segmented.models import Acquired, Held, Released, SoldOut
from segmented.protocol import AcquireLock, ReleaseLock
from segmented.stock import Grant
from tests.fixtures.stores import Blocking, Side
from tests.fixtures.stores_deployed import COLOURS, deployed_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.servers.deployments import ReplicaPair
from tests.support.servers.nodes import Node

LONG: Final = 600.0
SOON: Final = 60.0
"""A bound for what takes milliseconds, generous on a busy machine and far below LONG."""


def test_a_lock_excludes_the_other_process_until_it_is_released(deployed: tuple[Side, Side]) -> None:
    ours, theirs = deployed
    name = ours.name("lock")
    first = ours.lock(name, ttl=LONG).acquire(timeout=0)
    assert theirs.lock(name, ttl=LONG).try_acquire() is None
    first.renew()
    first.release()
    second = theirs.lock(name, ttl=LONG).try_acquire()
    assert second is not None
    assert second.fencing_token > first.fencing_token
    second.release()


def test_a_waiter_is_woken_by_the_release_of_another_process(deployed: tuple[Side, Side]) -> None:
    ours, theirs = deployed
    name = ours.name("lock")
    held = theirs.lock(name, ttl=LONG).acquire(timeout=0)
    lock = ours.lock(name, ttl=LONG)
    waiter = ours.start(lambda: lock.acquire(timeout=LONG / 2))
    wait_until(partial(has_come_to_rest, ours.store, 1))
    held.release()
    waiter.result(SOON).release()


def test_operations_go_on_after_the_scripts_are_forgotten(
    deployed: tuple[Side, Side], deployed_nodes: list[Node]
) -> None:
    ours, _ = deployed
    name = ours.name("lock")
    answer = ours.execute(AcquireLock(name, "a", 60_000))
    assert isinstance(answer, Acquired)
    for node in deployed_nodes:
        if node.info("replication")["role"] == "master":
            with node.client() as client:
                client.script_flush()
    assert isinstance(ours.execute(AcquireLock(name, "b", 60_000)), Held)
    assert ours.execute(ReleaseLock(name, "a")) == Released()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_master_that_became_a_replica_is_unavailable(private_replica_pair: ReplicaPair, colour: str) -> None:
    old, new = private_replica_pair.master, private_replica_pair.replica
    side = deployed_side(old.url, colour)
    assert isinstance(side.execute(AcquireLock("a", "x", 60_000)), Acquired)
    new.ask("REPLICAOF", "NO", "ONE")
    old.ask("REPLICAOF", *new.address)
    with pytest.raises(StoreUnavailable, match="has no master that can do it now"):
        side.execute(AcquireLock("a", "x", 60_000))
    side.close()


def test_a_pool_is_sold_to_the_last_unit_and_its_books_are_right(deployed: tuple[Side, Side]) -> None:
    ours, theirs = deployed
    sku = ours.name("ticket")
    pools = [side.pool(sku) for side in (ours, theirs)]
    pools[0].open(stock=12, segments=4)
    for index in range(12):
        grant = pools[index % 2].grant(f"order{index}", timeout=SOON)
        assert isinstance(grant, Grant | Blocking)
        with grant:
            grant.require()
    refusal = pools[1].grant("one more", timeout=0)
    assert isinstance(refusal, SoldOut)
    state = pools[1].state()
    assert (state.available, state.reserved, state.confirmed) == (0, 0, 12)
    assert pools[0].audit().is_clean
