"""Fair locks, and sequencers."""

from typing import Final

import pytest

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.keys import fair_keys, read_write_keys, reentrant_keys
from segmented.locks import fair
from segmented.models import Acquired, Held, Lost, Released, Renewed, Standing
from segmented.protocol import Operation
from segmented.protocol.fair import FairTimes
from tests.fixtures.stores import Side, another_process

LONG_MS: Final = 60_000
TIMES: Final = op.FairTimes(presence_ms=100_000, look_ms=36_000, claim_ms=20_000)
"""Longer than a busy machine stands still, apart from each other, and shorter than LONG_MS."""
HASTY: Final = op.FairTimes(presence_ms=100_000, look_ms=36_000, claim_ms=300)
"""A lock that was handed over and is not claimed lapses soon."""
DYING_MS: Final = 300
LAPSED: Final = 0.35
"""Seconds after which what lives for 300 ms has lapsed."""


class Queue:
    """One fair lock, by its operations."""

    def __init__(self, side: Side, times: op.FairTimes = TIMES) -> None:
        self.side, self.times, self.name = side, times, side.name("lock")

    def ask(
        self, holder_id: str, *, ttl_ms: int = LONG_MS, waits: bool = True, process: str | None = None
    ) -> Acquired | Held:
        """Attempt; every holder is a process of its own, unless it is said which."""
        return self.side.execute(op.AcquireFair(self.name, holder_id, process or holder_id, ttl_ms, self.times, waits))

    def take(self, holder_id: str, *, ttl_ms: int = LONG_MS, process: str | None = None) -> Acquired:
        answer = self.ask(holder_id, ttl_ms=ttl_ms, process=process)
        assert isinstance(answer, Acquired), answer
        return answer

    def wait(self, *holder_ids: str, process: str | None = None) -> None:
        for holder_id in holder_ids:
            assert isinstance(self.ask(holder_id, process=process), Held)

    def look_ms(self, holder_id: str, *, process: str | None = None) -> int:
        """Attempt once more, and return when to look again."""
        answer = self.ask(holder_id, process=process)
        assert isinstance(answer, Held)
        assert answer.free_in_ms is not None
        return answer.free_in_ms

    def release(self, holder_id: str) -> Released | Lost:
        return self.side.execute(op.ReleaseFair(self.name, holder_id, self.times))

    def die(self, holder_id: str) -> None:
        """End the holder's lease as its time would."""
        assert self.renew(holder_id, DYING_MS) == Renewed(DYING_MS)
        self.side.pass_time(LAPSED)

    def renew(self, holder_id: str, ttl_ms: int = LONG_MS) -> Renewed | Lost:
        return self.side.execute(op.RenewFair(self.name, holder_id, ttl_ms))


# --- order ---


def test_d14_a_newcomer_does_not_pass_those_who_wait_while_the_lock_is_free(side: Side) -> None:
    queue = Queue(side)
    queue.take("dies")
    queue.wait("first", "second")
    queue.die("dies")
    assert isinstance(queue.ask("newcomer"), Held)
    assert isinstance(queue.ask("passer-by", waits=False), Held)
    assert isinstance(queue.ask("second"), Held)
    queue.take("first")
    queue.release("first")
    queue.take("second")
    queue.release("second")
    queue.take("newcomer")


# --- the hand-over ---


def test_a_hand_over_lasts_for_the_claim_and_from_the_claim_for_the_full_time(side: Side) -> None:
    queue = Queue(side)
    holder = queue.take("holder")
    queue.wait("next", "last")
    queue.release("holder")
    assert 8_000 < queue.look_ms("last") <= TIMES.claim_ms
    taken = queue.take("next", ttl_ms=LONG_MS)
    assert taken.replay is False
    assert taken.fencing_token > holder.fencing_token
    assert queue.look_ms("last") == TIMES.look_ms
    assert queue.take("next") == Acquired(taken.fencing_token, LONG_MS, replay=True)


def test_a_hand_over_that_nobody_claims_goes_to_the_next_in_line(side: Side) -> None:
    queue = Queue(side, HASTY)
    queue.take("holder")
    queue.wait("stopped", "next")
    queue.release("holder")
    found = queue.ask("next")
    assert isinstance(found, Held) or side.server is not None  # where a machine that stands still lets it lapse
    side.pass_time(LAPSED)
    queue.take("next")


def test_the_queue_of_a_fair_lock_keeps_its_order_through_a_revoke(side: Side) -> None:
    queue = Queue(side)
    queue.take("holder")
    queue.wait("0", "1", "2")
    assert side.execute(op.RevokeLock(queue.name, "r")) is not None
    assert queue.release("holder") != Released()
    for holder_id in ("0", "1", "2"):
        queue.take(holder_id)
        queue.wait(*[later for later in ("1", "2") if later > holder_id])
        queue.release(holder_id)


# --- the holder ---


def test_e1_an_acquire_that_is_repeated_keeps_its_token_and_counts_its_life_anew(side: Side) -> None:
    queue = Queue(side)
    first = queue.take("holder", ttl_ms=5_000)
    assert queue.take("holder") == Acquired(first.fencing_token, LONG_MS, replay=True)


def test_c5_only_the_holder_renews_and_releases(side: Side) -> None:
    queue = Queue(side)
    queue.take("old", ttl_ms=DYING_MS)
    side.pass_time(LAPSED)
    assert queue.renew("old") == Lost()
    queue.take("new", ttl_ms=LONG_MS)
    assert (queue.renew("old", 1), queue.release("old")) == (Lost(), Lost())
    assert queue.renew("new", LONG_MS) == Renewed(LONG_MS)
    queue.wait("next")
    assert isinstance(queue.ask("new"), Acquired)
    assert queue.release("new") == Released()
    assert queue.release("new") == Lost()
    queue.take("next")


# --- keys and other clients ---


def test_every_key_lapses_and_a_queue_that_is_empty_leaves_the_fence(redis_side: Side) -> None:
    queue, server = Queue(redis_side), redis_side.raw()
    keys = fair_keys(queue.name)
    queue.take("holder")
    queue.wait("waits")
    found = set(server.keys(f"{keys.lock}*"))
    assert found == {keys.lock, keys.fence, keys.queue, keys.waiters, keys.present}
    assert server.get(keys.lock) == "holder"
    for key in (keys.queue, keys.waiters, keys.present):
        assert TIMES.presence_ms < server.pttl(key) <= 2 * TIMES.presence_ms
    queue.release("holder")
    assert server.get(keys.lock) == "waits"
    assert 0 < server.pttl(keys.lock) <= TIMES.claim_ms
    queue.take("waits")
    assert LONG_MS - 10_000 < server.pttl(keys.lock) <= LONG_MS
    queue.release("waits")
    assert server.keys(f"{keys.lock}*") == [keys.fence]
    assert server.hget(keys.fence, "kind") == "fair"
    assert server.pttl(keys.fence) > 24 * 3_600_000


def test_the_first_word_of_a_process_that_goes_on_has_all_its_places_again(side: Side) -> None:
    queue = Queue(side, HASTY)
    queue.take("holder")
    queue.wait("0", "1", "2", process="stopped")
    queue.wait("next", "last")
    queue.release("holder")
    side.pass_time(LAPSED)
    queue.take("next")
    queue.times = TIMES
    queue.wait("1", process="stopped")
    for holder_id in ("0", "1", "2"):
        queue.release("next" if holder_id == "0" else f"{int(holder_id) - 1}")
        queue.wait("last")
        queue.take(holder_id, process="stopped")
    queue.release("2")
    queue.take("last")


def test_whoever_has_been_absent_comes_back_as_a_newcomer(side: Side) -> None:
    queue = Queue(side, op.FairTimes(presence_ms=DYING_MS, look_ms=12_000, claim_ms=2_000))
    queue.take("holder")
    queue.wait("slept")
    side.pass_time(LAPSED)
    queue.times = TIMES
    queue.wait("came later", "slept")
    queue.release("holder")
    queue.wait("slept")
    queue.take("came later")


SEQUENCER_MS = 60_000


def taken(side: Side, operation: op.Operation[object]) -> int:
    """Take a lock and return its token."""
    answer = side.execute(operation)
    assert isinstance(answer, Acquired)
    return answer.fencing_token


def is_current(side: Side, name: str, token: int, mode: str = "exclusive") -> bool:
    return side.execute(op.CheckSequencer(name, mode, token)).is_good  # type: ignore[arg-type]  # one of the two


def test_while_only_a_lock_delay_runs_no_generation_is_current(side: Side) -> None:
    name = side.name("lock")
    token = taken(side, op.AcquireLock(name, "h", SEQUENCER_MS, delay_ms=SEQUENCER_MS))
    assert is_current(side, name, token)
    side.execute(op.RenewLock(name, "h", 200, delay_ms=SEQUENCER_MS))
    side.pass_time(0.25)
    assert side.execute(op.CheckSequencer(name, "exclusive", token)) == Standing(None, is_good=False)


def test_a_semaphore_has_no_living_generation(side: Side) -> None:
    name = side.name("lock")
    taken(side, op.AcquirePermit(name, "h", SEQUENCER_MS, permits=2))
    with pytest.raises(WrongKind, match=r"has no single current generation$"):
        is_current(side, name, 1)


TTL_MS: Final = 60_000
FLOOR_TIMES: Final = FairTimes(presence_ms=60_000, look_ms=60_000, claim_ms=60_000)
AHEAD: Final = 10**9
"""Microseconds by which the lost token was ahead of the clock of the server that took over."""


def token(side: Side, operation: Operation[Acquired | Held]) -> int:
    answer = side.execute(operation)
    assert isinstance(answer, Acquired), answer
    return answer.fencing_token


@pytest.fixture
def name(redis_side: Side) -> str:
    return redis_side.name()


def test_the_token_of_a_handed_over_fair_lock_exceeds_all_that_its_holder_has_seen(redis_side: Side, name: str) -> None:
    fence = fair_keys(name).fence
    mine = op.AcquireFair(name, "mine", "here", TTL_MS, FLOOR_TIMES)
    with another_process(redis_side) as other:
        redis_side.raw().hset(fence, mapping={"token": "9007199254740000", "kind": "fair"})
        lost = token(redis_side, mine)
        assert lost == 9007199254740001
        redis_side.execute(op.ReleaseFair(name, "mine", FLOOR_TIMES))
        redis_side.raw().hset(fence, "token", "1")  # as of a server that forgot it
        low = token(other, op.AcquireFair(name, "theirs", "there", TTL_MS, FLOOR_TIMES))
        assert low < lost
        again = op.AcquireFair(name, "again", "here", TTL_MS, FLOOR_TIMES)
        assert isinstance(redis_side.execute(again), Held)
        other.execute(op.ReleaseFair(name, "theirs", FLOOR_TIMES))
        assert token(redis_side, again) == lost + 1
        assert token(redis_side, again) == lost + 1


def test_a_joining_reader_gets_a_token_not_below_those_that_its_process_has_seen(redis_side: Side, name: str) -> None:
    keys = read_write_keys(name)
    with another_process(redis_side) as other:
        first = token(other, op.AcquireRead(name, "theirs", TTL_MS))
        redis_side.raw().hset(keys.lock, "token", str(first + AHEAD))
        assert token(redis_side, op.AcquireRead(name, "lost", TTL_MS)) == first + AHEAD
        redis_side.raw().hset(keys.lock, "token", str(first))
        assert token(redis_side, op.AcquireRead(name, "mine", TTL_MS)) == first + AHEAD + 1
        assert token(other, op.AcquireRead(name, "third", TTL_MS)) == first + AHEAD + 1
        assert redis_side.raw().hget(keys.fence, "token") in (b"%d" % (first + AHEAD + 1), str(first + AHEAD + 1))


def test_readers_that_overlap_share_a_token_that_their_processes_have_seen(redis_side: Side, name: str) -> None:
    first = token(redis_side, op.AcquireRead(name, "first", TTL_MS))
    assert token(redis_side, op.AcquireRead(name, "second", TTL_MS)) == first
    assert token(redis_side, op.AcquireRead(name, "first", TTL_MS)) == first


def test_a_reentered_lock_has_a_token_not_below_those_that_its_process_has_seen(redis_side: Side, name: str) -> None:
    keys = reentrant_keys(name)
    first = token(redis_side, op.AcquireReentrant(name, "me", "one", TTL_MS))
    redis_side.raw().hset(keys.fence, "token", str(first + AHEAD))
    assert token(redis_side, op.AcquireReentrant(name, "me", "two", TTL_MS)) == first + AHEAD
    redis_side.raw().hset(keys.fence, "token", str(first))
    assert token(redis_side, op.AcquireReentrant(name, "me", "three", TTL_MS)) == first + AHEAD + 1
    assert token(redis_side, op.AcquireReentrant(name, "me", "three", TTL_MS)) == first + AHEAD + 1


def test_a_release_hands_the_lock_to_those_who_wait_in_the_order_of_their_arrival(side: Side) -> None:
    queue = Queue(side)
    tokens = [queue.take("0").fencing_token]
    queue.wait("1", "2", "3")
    for index in range(3):
        assert queue.release(f"{index}") == Released()
        for later in range(index + 2, 4):
            assert isinstance(queue.ask(f"{later}"), Held)
        tokens.append(queue.take(f"{index + 1}").fencing_token)
    assert tokens == sorted(set(tokens))
    assert queue.release("3") == Released()
    queue.take("anybody")


def test_a_holder_by_any_other_client_is_waited_for_and_kept_out(redis_side: Side) -> None:
    queue, server = Queue(redis_side), redis_side.raw()
    keys = fair_keys(queue.name)
    server.set(keys.lock, "another client")
    assert queue.look_ms("first") == TIMES.look_ms
    server.pexpire(keys.lock, 30_000)
    assert 18_000 < queue.look_ms("first") <= 30_000
    assert server.pttl(keys.fence) > 0
    server.delete(keys.lock)
    queue.take("first")
    assert server.set(keys.lock, "another client", nx=True, px=60_000) is None


def test_a_waiter_looks_often_enough_to_stay_alive_and_at_most_once_in_ten_seconds() -> None:
    assert fair.TIMES.look_ms > 10_000
    assert fair.TIMES.presence_ms > 2 * fair.TIMES.look_ms
