"""Claims of messages, their rounds and their upkeep."""

from dataclasses import replace
from typing import Any

import pytest

from segmented import MemoryStore, protocol as op
from segmented.clock import ManualClock
from segmented.dedup import Dedup, EffectUnknown
from segmented.errors import InvalidInput
from segmented.keys import once_keys
from segmented.models.dedup import (
    AttemptOutdated,
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
)
from segmented.protocol.wire import text
from tests.fixtures.stores import Side
from tests.support.contract.bodies import Since
from tests.support.contract.dedup.dedup_calls import Calls, Refused, Work, raising
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

SEATED = ["unique", "latest"]
CLAIMED = KeyClaimed(replay=False)


def timeless(answer: object) -> object:
    """Leave out the times, of which other tests speak."""
    match answer:
        case KeyHeld():
            return replace(answer, free_in_ms=None, wait_ms=0)
        case OutcomeKept():
            return replace(answer, age_ms=0)
    return answer


@pytest.mark.parametrize("point", SEATED)
def test_the_first_message_has_the_seat_and_the_second_is_told_whose_it_is(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    assert client.claim("a") == CLAIMED
    answer = client.claim("b")
    assert answer == KeyHeld("a", "waiting", answer.free_in_ms)
    assert LONG_MS - 30_000 < answer.free_in_ms <= LONG_MS


@pytest.mark.parametrize("point", SEATED)
def test_a_claim_repeated_after_a_lost_reply_is_the_same_claim(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    assert client.claim("a", delay_ms=LONG_MS) == KeyClaimed(replay=False, delay_ms=LONG_MS)
    again = client.claim("a", delay_ms=LONG_MS)
    assert again == KeyClaimed(replay=True, delay_ms=again.delay_ms)
    assert LONG_MS - 30_000 < again.delay_ms <= LONG_MS


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_message_whose_worker_died_is_a_repeat_of_the_one_that_took_its_place(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("new") == CLAIMED
    client.finish("new", client.token("new"))
    assert timeless(client.begin("old", "again")) == OutcomeKept("new", "value", "1", 0)  # it is delivered once more


def test_another_payload_under_a_key_is_refused_wherever_the_key_is_in_use(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", "p")
    assert client.claim("b", "q") == PayloadDiffers("a", "task")
    assert timeless(client.claim("b", "")) == KeyHeld("a", "waiting", None)
    token = client.token("a")
    assert client.claim("b", "q") == PayloadDiffers("a", "task")
    client.finish("a", token, keep_ms=LONG_MS)
    assert client.claim("b", "q") == PayloadDiffers("a", "task", is_kept=True)
    assert timeless(client.claim("b", "p")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_run_keeps_publishers_away_with_unique_alone(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.token("a")
    assert timeless(client.claim("b")) == (KeyHeld("a", "running", None) if point == "unique" else CLAIMED)


def test_an_outcome_is_given_to_publishers_for_as_long_as_it_is_kept(side: Side) -> None:
    client, brief = KeyClient(side), KeyClient(side)
    client.run("a", body="7", keep_ms=LONG_MS)
    assert timeless(client.claim("b")) == OutcomeKept("a", "value", "7", 0)
    brief.run("a", body="7", keep_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert brief.claim("b") == CLAIMED


# --- one that waits ---


def test_one_of_the_publishers_is_asked_to_send_a_message_again_that_waits_too_long(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", resend_ms=SHORT_MS)
    assert not client.claim("b", resend_ms=LONG_MS).resend
    side.pass_time(SHORT)
    assert not client.claim("b").resend
    since = Since(side)
    assert client.claim("b", resend_ms=SHORT_MS).resend
    assert not (client.claim("c", resend_ms=SHORT_MS).resend and since.is_within(SHORT_MS / 1000))


@pytest.mark.parametrize("point", SEATED)
def test_a_message_cancelled_while_its_claim_was_repeated_blocks_nobody_on_arrival(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.cancel("a")
    assert client.claim("a") == CLAIMED
    assert client.begin("a") == MessageCancelled()
    assert client.claim("b") == CLAIMED


# --- the latest call ---


def test_a_call_replaces_the_arguments_of_the_message_that_waits_and_puts_it_off(side: Side) -> None:
    client, since = KeyClient(side, "latest"), Since(side)
    assert client.claim("a", delay_ms=SHORT_MS, call="1") == KeyClaimed(replay=False, delay_ms=SHORT_MS)
    assert timeless(client.claim("b", delay_ms=LONG_MS, call="2")) == KeyHeld("a", "waiting", None)
    assert timeless(client.claim("c", delay_ms=LONG_MS, call="3")) == KeyHeld("a", "waiting", None)
    early = client.begin("a")
    assert isinstance(early, MessageEarly)
    assert LONG_MS - 30_000 < early.due_in_ms <= LONG_MS
    client.claim("d", call="4")
    begun = client.begin("a")
    assert (begun.call, client.begin("a").call) == ("4", "4"), "a repeated beginning has the same arguments"
    assert since.is_within(LONG_MS / 1000)


def test_a_message_is_not_put_off_beyond_the_most_that_is_said(side: Side) -> None:
    client = KeyClient(side, "latest")
    client.claim("a", delay_ms=SHORT_MS, delay_max_ms=SHORT_MS, call="1")
    side.pass_time(SHORT)
    client.claim("b", delay_ms=LONG_MS, delay_max_ms=SHORT_MS, call="2")
    assert client.begin("a").call == "2"


def test_a_call_during_a_run_makes_one_more_message_with_the_latest_arguments(side: Side) -> None:
    client = KeyClient(side, "latest")
    client.claim("a", call="1")
    token = client.token("a")
    assert client.claim("b", call="2") == CLAIMED
    assert timeless(client.claim("c", call="3")) == KeyHeld("b", "waiting", None)
    assert timeless(client.begin("b")) == KeyHeld("a", "running", None, goes_round=True, next_round=1)
    client.finish("a", token)
    assert client.begin("b").call == "3"


def test_a_message_whose_worker_died_is_delivered_again_with_the_latest_arguments(side: Side) -> None:
    client = KeyClient(side, "latest")
    client.claim("a", call="1")
    client.claim("b", call="2")
    client.token("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.begin("a", "again").call == "2"


def test_a_retry_has_the_latest_arguments_or_leaves_them_to_the_message_that_waits(side: Side) -> None:
    client, other = KeyClient(side, "latest"), KeyClient(side, "latest")
    for one in (client, other):
        one.claim("a", call="1")
        one.token("a")
    client.abandon("a", next_attempt=1)
    client.claim("b", call="2")
    assert client.begin("a", attempt=1).call == "2"
    other.claim("b", call="2")
    other.abandon("a", next_attempt=1)
    other.run("b", body="7")
    assert timeless(other.begin("a", attempt=1)) == OutcomeKept("b", "value", "7", 0)


def test_two_thousand_calls_change_one_message_at_the_same_cost_each(plain_redis_side: Side) -> None:
    client, server = KeyClient(plain_redis_side, "latest"), plain_redis_side.raw()
    server.config_resetstat()
    for number in range(2_000):
        client.claim(str(number), delay_ms=LONG_MS, call=str(number))
    calls = {name: found["calls"] for name, found in server.info("commandstats").items()}
    assert calls["cmdstat_hmget"] <= 10 * 2_000
    assert calls.get("cmdstat_hget", 0) <= 2_000
    assert {text(key) for key in server.keys(f"*{client.record.namespace}*")} == {
        client.record_key,
        once_keys(client.record.namespace, client.key).claims,
    }


def round_of(answer: KeyHeld) -> int | None:
    """Return the round that the copy is sent with; None when it is dropped."""
    return answer.next_round if answer.goes_round else None


# --- rounds ---


@pytest.mark.parametrize("point", POINTS)
def test_a_copy_goes_round_by_round(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", "runs")
    for number in range(3):
        assert round_of(client.begin("a", f"h{number}", round_number=number)) == number + 1


def test_a_second_delivery_takes_the_place_of_the_first_that_has_not_come_back(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.begin("b", "h0", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert round_of(client.begin("b", "h1", ttl_ms=SHORT_MS)) == 1
    assert round_of(client.begin("b", "h2", ttl_ms=LONG_MS)) == 0


# --- followers ---


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_waits_for_the_run_of_the_first_and_is_given_its_outcome(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert timeless(client.begin("f", follows="a")) == KeyHeld("a", "running", None, goes_round=True, next_round=1)
    client.finish("a", token, body="7")
    assert timeless(client.begin("f", follows="a")) == OutcomeKept("a", "value", "7", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_follower_runs_itself_when_the_first_never_came_died_or_was_never_retried(side: Side, point: str) -> None:
    never, died, unretried = KeyClient(side, point), KeyClient(side, point), KeyClient(side, point)
    never.claim("a", wait_ms=SHORT_MS)
    died.begin("a", ttl_ms=SHORT_MS)
    unretried.begin("a")
    unretried.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    for client in (never, died, unretried):
        assert isinstance(client.begin("f", follows="a"), RunBegun)


# --- herds ---


def test_copies_that_wait_for_one_run_come_back_later_and_apart(side: Side) -> None:
    client = KeyClient(side)
    token = client.token("a")
    waits = [client.begin(f"f{number}", follows="a").wait_ms for number in range(100)]
    assert waits[0] >= 100
    assert waits[-1] >= 100 + 99 * 20 - 1_000, "100 copies come back within more than a second"
    client.finish("a", token)
    client.token("b")
    assert client.begin("f", follows="b").wait_ms < 200, "a new run begins without the herd of the last one"


def test_messages_of_a_serial_key_run_in_the_order_in_which_they_came(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    waits = [client.begin(f"m{number}", at_once=1).wait_ms for number in range(1, 5)]
    assert waits == sorted(waits)
    assert waits[3] > waits[0]
    client.finish("m0", token)
    ahead = client.begin("m2", at_once=1, round_number=1)
    assert (ahead.message, ahead.state, ahead.goes_round) == ("m1", "waiting", True)
    assert client.begin("m5", at_once=1).state == "waiting", "a new message does not overtake those that wait"
    for number in range(1, 6):
        begun = client.begin(f"m{number}", f"h{number}", at_once=1, round_number=2)
        assert isinstance(begun, RunBegun), number
        client.finish(f"m{number}", begun.fencing_token, f"h{number}")


def test_a_message_that_does_not_come_back_is_passed_over_after_a_lease(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    for message in ("lost", "m1"):
        client.begin(message, at_once=1, ttl_ms=SHORT_MS, text="text")
    client.finish("m0", token)
    side.pass_time(1.0)
    assert isinstance(client.begin("m1", at_once=1, round_number=1, ttl_ms=SHORT_MS), RunBegun)


def test_a_cancelled_message_leaves_the_line(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    for message in ("m1", "m2"):
        client.begin(message, at_once=1)
    client.cancel("m1")
    client.finish("m0", token)
    assert isinstance(client.begin("m2", at_once=1, round_number=1), RunBegun)


def test_the_end_of_a_run_names_the_next_message_and_nobody_calls_it_twice(side: Side) -> None:
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=2).fencing_token
    other = client.begin("n0", at_once=2).fencing_token
    for number in range(1, 4):
        client.begin(f"m{number}", at_once=2, text=f"text {number}")
    assert client.finish("m0", token).next_text == "text 1"
    assert client.finish("n0", other).next_text == "text 2"
    assert client.begin("m1", "called", at_once=2, round_number=2, text="again").next_text == "text 3"
    assert client.side.execute(op.CallNext(client.record)) == ""


def test_a_copy_that_comes_late_of_a_message_that_was_called_does_not_answer_again(side: Side) -> None:
    """Its chord would count it twice."""
    client = KeyClient(side, "serial")
    token = client.begin("m0", at_once=1).fencing_token
    client.begin("m1", at_once=1, text="text")
    client.finish("m0", token)
    called = client.begin("m1", "called", at_once=1, round_number=2)
    client.finish("m1", called.fencing_token, "called")
    assert client.begin("m1", "late", at_once=1, round_number=1) == AttemptOutdated(0)
    assert timeless(client.begin("m1", "copy", at_once=1, round_number=2)) == OutcomeKept("m1", "value", "1", 0)


# Calls that must not be made twice: after a death or an error it is unknown whether one was made.


def made(side: Side, **options: Any) -> Calls:  # noqa: ANN401  # those of Dedup
    return Calls(side, on_crash="unknown", **options)


def is_settled(calls: Calls, key: str, result: object) -> bool:
    return bool(calls.side.made(lambda _: calls.target, lambda _: calls.target).settle(key, result))


def test_an_error_in_the_call_makes_the_key_unknown_at_once(side: Side) -> None:
    calls, work = made(side), Work()
    with pytest.raises(Refused):
        calls.call("a", raising(Refused()))
    for _ in range(2):
        with pytest.raises(EffectUnknown):
            calls.call("a", work)
    assert work.done == 0


def test_a_call_does_not_wait_for_what_only_a_human_can_end() -> None:
    clock = ManualClock(auto=True)
    dedup = Dedup(MemoryStore(clock=clock), "n", on_crash="unknown")
    with pytest.raises(Refused):
        dedup.call("a", raising(Refused()))
    before = clock.now()
    with pytest.raises(EffectUnknown):
        dedup.call("a", Work(), timeout=60)
    assert clock.now() == before


def test_a_call_that_abandons_its_run_leaves_the_key_free(side: Side) -> None:
    calls, work = made(side), Work()
    calls.run("a").abandon()
    assert calls.call("a", work) == 1


def test_an_unknown_key_is_settled_as_made_with_a_result_or_freed_as_not_made(side: Side) -> None:
    calls, work = made(side), Work()
    assert not is_settled(calls, "a", "sms-1"), "nothing is unknown"
    for key in ("a", "b"):
        with pytest.raises(Refused):
            calls.call(key, raising(Refused()))
    assert is_settled(calls, "a", "sms-1")
    assert calls.call("a", work) == "sms-1"
    freed = calls.free("b")
    assert freed == Freed("unknown", freed.message)
    assert (calls.call("b", work), work.done) == (1, 1)


def test_a_wrong_choice_is_one_sentence() -> None:
    with pytest.raises(InvalidInput) as caught:
        Dedup(MemoryStore(), "n", on_crash="never")  # type: ignore[arg-type]  # that is the test
    assert str(caught.value) == (
        'on_crash is \'never\': give "again", or "unknown" for a call that must not be made twice'
    )
