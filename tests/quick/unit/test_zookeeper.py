"""Locks in ZooKeeper without a server: paths, the order of a queue, bad input, how long a session is trusted."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from types import SimpleNamespace
from typing import Any, Final

import pytest

from segmented.clock import ManualClock
from segmented.errors import InvalidInput
from segmented.locks import ZooKeeperLock
from segmented.locks.other_servers.zookeeper import AsyncZooKeeperLease, ZooKeeperLease, checked_root, lock_path
from segmented.process import THIS
from tests.support.rings import require_module

ROOT = "/segmented/locks"
LAST = 2**31 - 1

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("report", "/segmented/locks/report"),
        ("report:2026-11", "/segmented/locks/report%3A2026-11"),
        ("a/b", "/segmented/locks/a%2Fb"),
        ("a%2Fb", "/segmented/locks/a%252Fb"),
        (".", "/segmented/locks/%2E"),
        ("..", "/segmented/locks/%2E%2E"),
        ("%2E", "/segmented/locks/%252E"),
        ("a.b", "/segmented/locks/a.b"),
        ("票 x", "/segmented/locks/%E7%A5%A8%20x"),
    ],
)
def test_a_name_is_percent_encoded_into_one_segment(name: str, path: str) -> None:
    assert lock_path(ROOT, name) == path


@pytest.mark.parametrize("root", ["", "/", "//", "locks", "/a//b", "/a/./b", "/..", "/a\n", "/\ud800", 7, None, b"/a"])
def test_a_root_that_is_no_path_is_refused_with_one_sentence(root: Any) -> None:  # noqa: ANN401  # on purpose wrong
    with pytest.raises(InvalidInput, match=r"^root of .* is not a path for locks: give one like '/segmented/locks'$"):
        checked_root(root)


def test_what_is_no_kazoo_client_is_refused() -> None:
    require_module("ZooKeeper's client", "kazoo")
    with pytest.raises(InvalidInput, match=r"^client is a kazoo.client.KazooClient, not str: 'localhost:2181'$"):
        ZooKeeperLock("localhost:2181", "report")


def test_nodes_of_others_are_no_contenders() -> None:
    require_module("ZooKeeper's client", "kazoo")
    from segmented.locks.other_servers.zookeeper_session import Contender, contender  # noqa: PLC0415  # kazoo is an extra

    nodes = ["ab-0000000007", "ab--2147483648", "ab", "ab-", "-0000000001", "ab-x", "ab-١", "ab-0000000001-2"]  # noqa: RUF001  # a digit that is none of ZooKeeper's
    found = [one for node in nodes if (one := contender("/p", node)) is not None]
    assert found == [Contender("ab", 7, "/p/ab-0000000007"), Contender("ab", -(2**31), "/p/ab--2147483648")]


@pytest.mark.parametrize("sequences", [[0, 1, 9, 10, 11], [LAST - 2, LAST - 1, LAST, -LAST - 1, -LAST], [-2, -1, 0, 1]])
def test_the_order_is_that_of_arrival_also_when_the_counter_wraps(sequences: list[int]) -> None:
    require_module("ZooKeeper's client", "kazoo")
    from segmented.locks.other_servers.zookeeper_session import Contender, in_order  # noqa: PLC0415  # kazoo is an extra

    arrived = [Contender("ab", sequence, f"/p/ab-{sequence:010d}") for sequence in sequences]
    shuffled = random.Random(7).sample(arrived, len(arrived))
    assert in_order(shuffled) == tuple(arrived)


SESSION_SECONDS = 10.0


class OpenClient:
    """A client as a session sees one that is connected."""

    hosts = (("localhost", 1),)
    client_state = "CONNECTED"

    def add_listener(self, _: object) -> None:
        """Say nothing: no connection changes here."""


def trusting(clock: ManualClock) -> Any:  # noqa: ANN401  # kazoo is an extra
    """A connected session of 10 s."""
    require_module("ZooKeeper's client", "kazoo")
    from segmented.locks.other_servers.zookeeper_session import Session  # noqa: PLC0415  # kazoo is an extra

    session = Session(OpenClient(), clock)
    session.seconds = SESSION_SECONDS
    return session


def seen_now(session: Any) -> Any:  # noqa: ANN401  # as above
    from segmented.locks.other_servers.zookeeper_session import Seen  # noqa: PLC0415  # kazoo is an extra

    return Seen(session.era, session.link, session.clock.now())


def test_a_lease_is_trusted_for_two_fifths_of_the_session_after_it_was_seen() -> None:
    session = trusting(ManualClock())
    assert session.trusted_until(seen_now(session)) == session.clock.now() + 4.0


def test_a_lease_is_lost_a_little_before_the_session_time_is_over() -> None:
    clock = ManualClock()
    session = trusting(clock)
    seen = seen_now(session)
    clock.advance(9.9 - 0.0021)
    assert not session.is_over(seen)
    clock.advance(0.0002)
    assert session.is_over(seen)


def test_a_lease_is_in_doubt_until_it_is_seen_on_the_next_connection() -> None:
    session = trusting(ManualClock())
    seen = seen_now(session)
    session.client.client_state = "CONNECTING"
    session.on_state("SUSPENDED")
    assert (session.trusted_until(seen), session.is_over(seen)) == (-inf, False)
    session.client.client_state = "CONNECTED"
    session.on_state("CONNECTED")
    assert session.trusted_until(seen) == -inf
    assert session.trusted_until(seen_now(session)) > 0


def test_the_end_of_a_session_ends_its_leases_and_forgets_its_time() -> None:
    session = trusting(ManualClock())
    seen = seen_now(session)
    session.on_state("LOST")
    assert (session.is_over(seen), session.seconds) == (True, None)


def test_what_is_left_with_a_closed_client_needs_no_thread() -> None:
    before = set(threading.enumerate())
    session = trusting(ManualClock())
    session.client.client_state = "CLOSED"
    session.abandon("/locks/job", "somebody", session.era)
    assert set(threading.enumerate()) == before


# --- leases, while the client has no connection, so that nothing is asked ---

SOON: Final = 20.0


def attempt_of(clock: ManualClock | None = None) -> Any:  # noqa: ANN401  # as above
    """Return a stand-in for the finished acquire of a lease, without a connection."""
    session = trusting(clock or ManualClock())
    session.client.client_state = "CONNECTING"
    names = {"name": "job", "holder_id": "ab", "parent": "/locks/job", "fencing_token": 7}
    return SimpleNamespace(
        session=session, seen=seen_now(session), contender=SimpleNamespace(path="/locks/job/ab"), **names
    )


def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def in_loop(body: Callable[[Any, AsyncZooKeeperLease], Any]) -> None:
    """Run the body with a session and its lease; the session ends with it."""

    async def whole() -> None:
        attempt = attempt_of()
        await body(attempt.session, AsyncZooKeeperLease(attempt))
        attempt.session.on_state("LOST")

    asyncio.run(whole())


def test_a_lease_whose_event_loop_is_blocked_is_told_once_and_watched_no_more() -> None:
    before = set(threading.enumerate())

    async def body(session: Any, lease: AsyncZooKeeperLease) -> None:  # noqa: ANN401  # as above
        (watcher,) = set(threading.enumerate()) - before
        session.on_state("LOST")
        watcher.join(SOON)  # in the loop, on purpose
        is_watched = watcher.is_alive()
        await lease.lost.wait()
        assert not is_watched

    in_loop(body)


def test_the_lease_after_one_that_no_thread_could_watch_is_told_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = attempt_of()
    with monkeypatch.context() as full:
        no_threads(full)
        with pytest.raises(RuntimeError):
            ZooKeeperLease(attempt)
    lease = ZooKeeperLease(attempt)
    attempt.session.on_state("LOST")
    assert lease.lost.wait(SOON)


def test_a_holder_is_told_of_its_loss_also_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the thread that tells it nor the one that deletes its node."""
    clock = ManualClock()
    attempt = attempt_of(clock)
    lease = ZooKeeperLease(attempt)
    no_threads(monkeypatch)
    clock.advance(SESSION_SECONDS)
    attempt.session.on_state("SUSPENDED")  # wakes the thread that watches
    assert lease.lost.wait(SOON)


def test_two_releases_at_once_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two deletes, the first may find that the second has deleted the node, which is no loss."""
    releases: list[Future[bool]] = []

    def release(*_: object, **__: object) -> Future[bool]:
        releases.append(Future())
        return releases[-1]

    async def body(session: Any, lease: AsyncZooKeeperLease) -> None:  # noqa: ANN401  # as above
        monkeypatch.setattr(session, "release", release)
        both = asyncio.gather(lease.release(), lease.release())
        await asyncio.sleep(0)
        for number, one in enumerate(reversed(releases)):
            one.set_result(number == 0)
        await both

    in_loop(body)


def test_a_release_is_no_loss_if_one_beside_it_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancelled call deletes the node in the background, perhaps before the release does."""
    deletion: Future[bool] = Future()
    deletion.set_running_or_notify_cancel()

    async def body(session: Any, lease: AsyncZooKeeperLease) -> None:  # noqa: ANN401  # as above
        monkeypatch.setattr(session, "release", lambda *_, **__: deletion)
        cancelled, waiting = asyncio.ensure_future(lease.release()), asyncio.ensure_future(lease.release())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        deletion.set_result(False)
        await waiting

    in_loop(body)


def test_the_longest_wait_for_an_answer_is_one_that_the_system_can_count() -> None:
    def wait(seconds: float) -> None:
        threading.Lock().acquire(timeout=seconds)

    answered = SimpleNamespace(wait=wait, ready=lambda: True, exception=None, value="here")
    assert trusting(ManualClock()).answer(answered, 1e10) == "here"


def test_a_forked_child_sees_a_loss_but_does_not_run_its_parents_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    attempt = attempt_of(clock)
    lease = ZooKeeperLease(attempt)
    clock.advance(SESSION_SECONDS)
    with monkeypatch.context() as child:
        child.setattr(THIS, "process_id", 0)
        assert (lease.is_lost, lease.lost.is_set()) == (True, False)
    assert (lease.is_lost, lease.lost.is_set()) == (True, True)
    attempt.session.on_state("LOST")
