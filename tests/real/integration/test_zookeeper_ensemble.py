"""`ZooKeeperLock` on an ensemble of three servers, whose leader dies."""

from collections.abc import Callable
from typing import Final

import pytest
from kazoo.client import KazooClient

from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.contract.parking import wait_until
from tests.support.servers.zookeeper_sides import ZooKeeperSide, new_name

SOON: Final = 50.0


def leads(node: ZooKeeperNode) -> bool:
    try:
        return "Mode: leader" in node.ask("srvr")
    except OSError:  # it is electing, or dead
        return False


@pytest.mark.long
def test_a_lock_outlives_the_leader_of_its_ensemble_and_its_next_token_is_greater(
    ensemble: list[ZooKeeperNode], start_kazoo: Callable[..., KazooClient], zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    holder, other = (start_kazoo(ensemble, timeout=60.0) for _ in range(2))
    lease = zookeeper_side.lock(holder, name).acquire(timeout=SOON)
    (leader,) = [node for node in ensemble if leads(node)]
    leader.kill()
    living = [node for node in ensemble if node is not leader]
    wait_until(lambda: sum(leads(node) for node in living) == 1, seconds=SOON)
    wait_until(lambda: lease.is_trusted, seconds=SOON)
    assert zookeeper_side.lock(other, name).try_acquire() is None
    lease.release()
    with zookeeper_side.lock(other, name).acquire(timeout=SOON) as successor:
        assert successor.fencing_token > lease.fencing_token
