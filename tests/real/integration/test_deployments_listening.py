"""A listener asks now and then whether its connection still lives, and the answer is not taken for a loss."""

from functools import partial

import pytest

from segmented.clock import SystemClock
from segmented.stores.redis import async_listener, listener
from tests.fixtures.stores import REDIS, make_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.flavour import Flavour
from tests.support.servers.nodes import Node, eventually

QUICK = 0.05
LONG = 600.0
SOON = 60.0
ENOUGH = 5
"""Answered questions, each of which would have been taken for a lost connection if it were not understood."""


def pings(node: Node) -> int:
    calls: int = node.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]
    return calls


def subscribers(node: Node) -> set[str]:
    with node.client() as client:
        return {found["id"] for found in client.client_list(_type="pubsub")}


class Kept:
    """Counts the questions that the one subscribed connection of a server has been asked so far.

    On a busy machine an answer may take too long, and the connection is made again: then the count begins again.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connections, self._asked = subscribers(node), pings(node)

    def is_kept(self) -> bool:
        """Return whether the connection was asked often enough since it was made."""
        asked, found = pings(self._node), subscribers(self._node)
        if found != self._connections:
            self._connections, self._asked = found, pings(self._node)
        return len(found) == 1 and asked >= self._asked + ENOUGH


@pytest.mark.parametrize("flavour", [REDIS[0], REDIS[-1]], ids=str)
def test_a_parked_waiters_connection_is_asked_for_a_sign_of_life_and_kept(
    flavour: Flavour, single_server: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (listener, async_listener):
        monkeypatch.setattr(module, "PING_SECONDS", QUICK)
        monkeypatch.setattr(module, "POLL_SECONDS", QUICK)
    side = make_side(flavour, SystemClock(), single_server.url)
    held = side.lock("a", ttl=LONG).acquire(timeout=0)
    lock = side.lock("a", ttl=LONG)
    waiter = side.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, side.store, 1))
    eventually(Kept(single_server).is_kept, "one connection is asked, and kept", seconds=SOON)
    held.release()
    waiter.result(SOON).release()
    side.close()
