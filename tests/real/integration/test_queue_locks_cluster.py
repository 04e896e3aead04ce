"""Fair and reentrant locks on a cluster, where no node knows all subscribers, and on the oldest server we speak to."""

from concurrent.futures import Future
from functools import partial
from typing import Final

import pytest

from segmented.keys import fair_keys
from segmented.locks import AsyncFairLock, FairLock, Lease
from segmented.locks.fair import FairClaim, FairTry
from segmented.protocol.fair import FairTimes
from tests.fixtures.stores import Side
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until
from tests.support.servers.deployments import Cluster

pytestmark = pytest.mark.usefixtures("patient_attempts")

SOON: Final = 30.0
"""Less than twenty claims take, one after the other."""
PATIENCE: Final = 100.0
SLOW: Final = FairTimes(presence_ms=1_800_000, look_ms=600_000, claim_ms=600_000)
"""No claim lapses and no waiter looks by itself, so that a machine that stands still changes no order."""


@pytest.fixture
def slow_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.fair.FairTry", partial(FairTry, times=SLOW))
    monkeypatch.setattr("segmented.locks.fair.FairClaim", partial(FairClaim, times=SLOW))


def fair(side: Side, name: str) -> FairLock:
    return side.made(lambda store: FairLock(store, name, ttl=600), lambda store: AsyncFairLock(store, name, ttl=600))


def start_waiting(side: Side, name: str) -> Future[Lease]:
    waiters = sum(len(line) for line in lines_of(side.store).values())
    call = side.start(lambda: fair(side, name).acquire(timeout=PATIENCE))
    wait_until(partial(has_come_to_rest, side.store, waiters + 1))
    return call


def names_on_all_masters(cluster: Cluster, side: Side) -> list[str]:
    """Return three names, one on each master."""
    word, found = side.name("fair"), dict[int, str]()
    for number in range(1_000):
        name = f"{word}-{number}"
        found.setdefault(id(cluster.master_of(fair_keys(name).lock)), name)
        if len(found) == 3:
            break
    assert len(found) == 3
    return list(found.values())


@pytest.mark.usefixtures("slow_times")
def test_the_order_is_one_over_all_processes_of_a_cluster(shared_sides: tuple[Side, Side], cluster: Cluster) -> None:
    for name in names_on_all_masters(cluster, shared_sides[0]):
        held = fair(shared_sides[0], name).acquire(timeout=0)
        waiters = [start_waiting(shared_sides[index % 2], name) for index in range(4)]
        for index, waiter in enumerate(waiters):
            held.release()
            held = waiter.result(SOON)
            assert not any(later.done() for later in waiters[index + 1 :])
        held.release()


@pytest.mark.usefixtures("slow_times")
def test_living_waiters_of_which_a_node_sees_no_subscriber_are_not_passed_over(
    shared_sides: tuple[Side, Side], cluster: Cluster
) -> None:
    for name in names_on_all_masters(cluster, shared_sides[0]):  # one of them at most is where a side listens
        held = fair(shared_sides[0], name).acquire(timeout=0)
        first, second = (start_waiting(side, name) for side in shared_sides)
        waiters, master = fair_keys(name).waiters, cluster.master_of(fair_keys(name).lock)
        for holder_id in master.ask("HKEYS", waiters):  # as if the node had seen a subscription, and it had gone
            entry = master.ask("HGET", waiters, holder_id)
            master.ask("HSET", waiters, holder_id, f"{entry[:-1]}+")
        held.release()
        lease = first.result(SOON)
        assert not second.done()
        lease.release()
        second.result(SOON).release()
