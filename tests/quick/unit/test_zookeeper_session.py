"""What a session notes and passes on, with a client that was never started."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import InvalidInput
from segmented.locks import operator
from segmented.stores.zookeeper import session_of
from tests.support.rings import require_module

if TYPE_CHECKING:
    from segmented.stores.zookeeper.client import ZooKeeperSession


@pytest.fixture
def client() -> Any:  # noqa: ANN401  # a KazooClient, where kazoo is installed
    require_module("ZooKeeper's client", "kazoo")
    from kazoo.client import KazooClient  # noqa: PLC0415  # kazoo is an extra

    return KazooClient("localhost:1")


@pytest.fixture
def session(client: Any) -> ZooKeeperSession:  # noqa: ANN401  # as above
    return session_of(client)


def change(session: ZooKeeperSession, path: str | None) -> None:
    """Report a change of a node as kazoo does."""
    from kazoo.protocol.states import EventType, KeeperState, WatchedEvent  # noqa: PLC0415  # kazoo is an extra

    session.on_event(WatchedEvent(EventType.DELETED, KeeperState.CONNECTED, path))


def test_all_locks_of_a_client_share_its_session(client: Any) -> None:  # noqa: ANN401  # as above
    assert session_of(client) is session_of(client)


def test_a_session_goes_with_its_client() -> None:
    require_module("ZooKeeper's client", "kazoo")
    from kazoo.client import KazooClient  # noqa: PLC0415  # kazoo is an extra

    client = KazooClient("localhost:1")
    gone = weakref.ref(session_of(client))
    del client
    gc.collect()
    assert gone() is None


def test_who_watches_a_node_is_called_back_once(session: ZooKeeperSession) -> None:
    called: list[int] = []
    for number in (1, 2):
        session.watch("/a", lambda number=number: called.append(number))  # type: ignore[misc]  # a default in a lambda
    change(session, "/b")
    change(session, None)
    assert called == []
    change(session, "/a")
    change(session, "/a")
    assert called == [1, 2]


def test_who_stops_watching_takes_nobody_elses_watch_away(session: ZooKeeperSession) -> None:
    called: list[str] = []

    def lease() -> None:
        called.append("lease")

    def waiter() -> None:
        called.append("waiter")

    session.watch("/a", lease)
    session.watch("/a", waiter)
    session.unwatch("/a", lease)
    session.unwatch("/a", lease)
    change(session, "/a")
    assert called == ["waiter"]


def test_what_was_left_with_a_closed_client_is_not_remembered(session: ZooKeeperSession) -> None:
    before = set(threading.enumerate())
    session.abandon("/locks/job", "somebody")
    session.caretaker.start()
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()  # it has no work


def test_an_operator_is_told_to_use_zookeepers_own_tools(session: ZooKeeperSession) -> None:
    from segmented.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415  # kazoo is an extra

    store: Any = ZooKeeperStore(session)
    for ask in (operator.show, operator.revoke):
        with pytest.raises(InvalidInput, match=r"^a ZooKeeper store performs no \w+Lock: show its nodes"):
            ask(store, "job")
    store.close()
