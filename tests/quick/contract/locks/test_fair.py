"""A fair lock's queue, operation by operation: who is next, when to look again, and what the keys are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.keys import fair_keys
from segmented.locks import fair
from segmented.models import Acquired, Held, Lost, Released, Renewed
from tests.support.contract.locks.fair_queue import DYING_MS, HASTY, LAPSED, LONG_MS, TIMES, Queue

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


# --- order ---


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


def test_whoever_missed_its_turn_and_comes_back_has_its_old_place(side: Side) -> None:
    queue = Queue(side, HASTY)
    queue.take("holder")
    queue.wait("stopped", "next", "last")
    queue.release("holder")
    side.pass_time(LAPSED)
    queue.take("next")
    queue.times = TIMES
    queue.wait("stopped")
    queue.release("next")
    queue.wait("last")
    queue.take("stopped")


def test_any_look_hands_the_lock_on_when_its_holder_has_died(side: Side) -> None:
    queue = Queue(side)
    queue.take("dies")
    queue.wait("first", "second")
    queue.die("dies")
    assert 0 < queue.look_ms("second") <= TIMES.claim_ms
    assert queue.take("first").replay is False


def test_d12_whoever_leaves_the_queue_is_not_in_the_way(side: Side) -> None:
    queue = Queue(side)
    queue.take("holder")
    queue.wait("gives up", "second", "gives up too", "last")
    assert queue.release("gives up") == Released()
    assert queue.release("gives up") == Lost()
    assert queue.release("gives up too") == Released()
    queue.release("holder")
    queue.take("second")
    queue.release("second")
    queue.take("last")


def test_a_waiter_that_leaves_while_the_lock_is_free_hands_it_on(side: Side) -> None:
    queue = Queue(side)
    queue.take("dies")
    queue.wait("gives up", "next")
    queue.die("dies")
    assert queue.release("gives up") == Released()
    assert queue.renew("next", TIMES.claim_ms) == Renewed(TIMES.claim_ms)  # it is the holder, without having asked
    assert queue.take("next").replay is False


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


# --- when to look again ---


def test_the_head_minds_the_holders_end_and_the_others_only_show_that_they_live(side: Side) -> None:
    queue = Queue(side)
    queue.take("holder", ttl_ms=30_000)
    assert 18_000 < queue.look_ms("head") <= 30_000
    assert queue.look_ms("second") == TIMES.look_ms
    queue.renew("holder", LONG_MS)
    assert queue.look_ms("head") == TIMES.look_ms
    queue.renew("holder", 30_000)
    queue.release("head")
    assert 18_000 < queue.look_ms("second") <= 30_000


def test_of_many_of_the_holders_process_the_first_of_another_one_minds_its_end(side: Side) -> None:
    queue = Queue(side)
    queue.take("holder", ttl_ms=30_000, process="p")
    assert 18_000 < queue.look_ms("p1", process="p") <= 30_000
    assert queue.look_ms("p2", process="p") == TIMES.look_ms
    assert 18_000 < queue.look_ms("q", process="q") <= 30_000
    assert queue.look_ms("p1", process="p") == TIMES.look_ms
    queue.release("holder")
    queue.take("p1", ttl_ms=30_000, process="p")
    assert queue.look_ms("p2", process="p") == TIMES.look_ms
    assert 18_000 < queue.look_ms("q", process="q") <= 30_000


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


def test_a_fence_that_was_deleted_is_made_anew_with_an_end_and_greater_tokens(redis_side: Side) -> None:
    queue, server = Queue(redis_side), redis_side.raw()
    keys = fair_keys(queue.name)
    tokens = [queue.take("0").fencing_token]
    for index in range(3):
        queue.wait(f"{index + 1}")
        server.delete(keys.fence)
        queue.release(f"{index}")
        assert server.pttl(keys.fence) > 0
        tokens.append(queue.take(f"{index + 1}").fencing_token)
    server.delete(keys.fence)
    tokens.append(queue.take("3").fencing_token)
    assert server.pttl(keys.fence) > 0
    assert tokens == sorted(set(tokens))


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
