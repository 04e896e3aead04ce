"""Locks in ZooKeeper without a server: paths, the order of a queue, bad input, how long a session is trusted."""

import random
import threading
from math import inf
from typing import Any

import pytest

from segmented.clock import ManualClock
from segmented.errors import InvalidInput
from segmented.locks import ZooKeeperLock
from segmented.locks.zookeeper_paths import Contender, checked_root, contender, in_order, lock_path
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
    nodes = ["ab-0000000007", "ab--2147483648", "ab", "ab-", "-0000000001", "ab-x", "ab-١", "ab-0000000001-2"]  # noqa: RUF001  # a digit that is none of ZooKeeper's
    found = [one for node in nodes if (one := contender("/p", node)) is not None]
    assert found == [Contender("ab", 7, "/p/ab-0000000007"), Contender("ab", -(2**31), "/p/ab--2147483648")]


@pytest.mark.parametrize("sequences", [[0, 1, 9, 10, 11], [LAST - 2, LAST - 1, LAST, -LAST - 1, -LAST], [-2, -1, 0, 1]])
def test_the_order_is_that_of_arrival_also_when_the_counter_wraps(sequences: list[int]) -> None:
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
    from segmented.locks.zookeeper_session import Session  # noqa: PLC0415  # kazoo is an extra

    session = Session(OpenClient(), clock)
    session.seconds = SESSION_SECONDS
    return session


def seen_now(session: Any) -> Any:  # noqa: ANN401  # as above
    from segmented.locks.zookeeper_session import Seen  # noqa: PLC0415  # kazoo is an extra

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
