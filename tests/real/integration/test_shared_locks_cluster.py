"""Readers and writers, permits and several names at once on a cluster, where names live on different masters."""

import random
from functools import partial
from typing import Final

import pytest

from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from tests.fixtures.stores import Side
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, book, room, several, start_waiting
from tests.support.contract.parking import lines_of
from tests.support.servers.deployments import Cluster

pytestmark = pytest.mark.usefixtures("patient_attempts")

VISITS: Final = 12


def names_on_all_masters(cluster: Cluster, side: Side) -> list[str]:
    """Return three names, one on each master, in order."""
    word, found = side.name("spread"), dict[int, str]()
    for number in range(1_000):
        name = f"{word}-{number}"
        found.setdefault(id(cluster.master_of(lock_keys(name).lock)), name)
        if len(found) == 3:
            break
    assert len(found) == 3
    return sorted(found.values())


def test_names_on_three_masters_are_held_together_or_not_at_all(
    shared_sides: tuple[Side, Side], cluster: Cluster
) -> None:
    ours, theirs = shared_sides
    names = names_on_all_masters(cluster, ours)
    lease = several(ours, names).acquire(timeout=0)
    assert all(theirs.lock(name, ttl=LONG).try_acquire() is None for name in names)
    lease.renew()
    lease.release()
    held = theirs.lock(names[1], ttl=LONG).acquire(timeout=0)
    assert several(ours, names).try_acquire() is None
    with pytest.raises(AcquireTimeout, match=f"^lock '{names[1]}' was not free within 0.3 s$"):
        several(ours, names).acquire(timeout=0.3)
    for name in (names[0], names[2]):
        theirs.lock(name, ttl=LONG).acquire(timeout=0).release()
    (waiter,) = start_waiting(ours, several(ours, names))
    held.release()
    waiter.result(SOON).release()


def test_overlapping_sets_on_all_masters_do_not_deadlock(shared_sides: tuple[Side, Side], cluster: Cluster) -> None:
    chance = random.Random(3)
    names = [*names_on_all_masters(cluster, shared_sides[0]), *names_on_all_masters(cluster, shared_sides[1])]
    inside: set[str] = set()
    overlaps: list[str] = []

    def visit(side: Side, wanted: list[str]) -> None:
        with several(side, wanted).acquire(timeout=PATIENCE):
            overlaps.extend(inside.intersection(wanted))
            inside.update(wanted)
            inside.difference_update(wanted)

    visits = [
        partial(visit, shared_sides[number % 2], chance.sample(names, chance.randint(1, 4))) for number in range(VISITS)
    ]
    for visitor in [shared_sides[number % 2].start(one) for number, one in enumerate(visits)]:
        visitor.result(PATIENCE)
    assert overlaps == []
    assert [lines_of(side.store) for side in shared_sides] == [{}, {}]


def test_readers_a_writer_and_permits_are_woken_on_every_master(
    shared_sides: tuple[Side, Side], cluster: Cluster
) -> None:
    ours, theirs = shared_sides
    for name in names_on_all_masters(cluster, ours):
        held = book(theirs, name).write.acquire(timeout=0)
        readers = start_waiting(ours, book(ours, name).read, 3)
        held.release()
        leases = [reader.result(SOON) for reader in readers]
        (writer,) = start_waiting(theirs, book(theirs, name).write)
        for lease in leases:
            lease.release()
        writer.result(SOON).release()
        permits = [room(theirs, name, permits=2).acquire(timeout=0) for _ in range(2)]
        waiters = start_waiting(ours, room(ours, name, permits=2), 2)
        for permit in permits:
            permit.release()
        for waiter in waiters:
            waiter.result(SOON).release()
