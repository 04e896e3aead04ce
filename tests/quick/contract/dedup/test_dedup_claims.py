"""Publication: who gets the seat of a key, and what the others are told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.models.dedup import (
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    PayloadDiffers,
    RunBegun,
)
from segmented.once_keys import once_keys
from segmented.protocol.wire import text
from tests.support.contract.bodies import Since
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

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


def test_a_repeated_claim_is_told_so_before_all_else_that_is_known_of_the_key(side: Side) -> None:
    client = KeyClient(side, "latest")
    token = client.token("old")
    assert client.claim("a") == CLAIMED
    assert client.claim("a") == KeyClaimed(replay=True)
    client.finish("old", token, keep_ms=LONG_MS)
    assert client.claim("a") == KeyClaimed(replay=True)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_message_whose_worker_died_is_a_repeat_of_the_one_that_took_its_place(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("new") == CLAIMED
    client.finish("new", client.token("new"))
    assert timeless(client.begin("old", "again")) == OutcomeKept("new", "value", "1", 0)  # it is delivered once more


def test_a_message_whose_worker_died_runs_where_its_successor_never_comes(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    since = Since(side)
    assert client.claim("new", wait_ms=SHORT_MS) == CLAIMED
    found = timeless(client.begin("old", "again"))
    held = KeyHeld("new", "waiting", None, goes_round=True, next_round=1)
    assert found == held or not since.is_within(SHORT_MS / 1000)
    side.pass_time(SHORT)
    assert isinstance(client.begin("old", "again"), RunBegun)


def test_a_message_whose_worker_died_runs_where_its_successor_was_cancelled(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.claim("new")
    client.cancel("new")
    assert isinstance(client.begin("old", "again"), RunBegun)


def test_another_payload_does_not_take_the_place_of_a_message_whose_worker_died(side: Side) -> None:
    client = KeyClient(side)
    client.begin("old", seen="p", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("new", "q") == CLAIMED
    client.finish("new", client.begin("new", seen="q").fencing_token)
    assert isinstance(client.begin("old", "again", seen="p"), RunBegun)


@pytest.mark.parametrize("point", SEATED)
def test_a_seat_that_nobody_came_for_is_free_after_its_time(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("b") == CLAIMED


def test_another_payload_under_a_key_is_refused_wherever_the_key_is_in_use(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", "p")
    assert client.claim("b", "q") == PayloadDiffers("a")
    assert timeless(client.claim("b", "")) == KeyHeld("a", "waiting", None)
    token = client.token("a")
    assert client.claim("b", "q") == PayloadDiffers("a")
    client.finish("a", token, keep_ms=LONG_MS)
    assert client.claim("b", "q") == PayloadDiffers("a")
    assert timeless(client.claim("b", "p")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", POINTS)
def test_a_run_keeps_publishers_away_with_unique_alone(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.token("a")
    assert timeless(client.claim("b")) == (KeyHeld("a", "running", None) if point == "unique" else CLAIMED)


def test_an_unknown_run_keeps_publishers_away_and_says_for_how_long_nobody_knows(side: Side) -> None:
    client = KeyClient(side)
    client.begin("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    assert client.claim("b") == KeyHeld("a", "unknown", None)


def test_an_outcome_is_given_to_publishers_for_as_long_as_it_is_kept(side: Side) -> None:
    client, brief = KeyClient(side), KeyClient(side)
    client.run("a", body="7", keep_ms=LONG_MS)
    assert timeless(client.claim("b")) == OutcomeKept("a", "value", "7", 0)
    brief.run("a", body="7", keep_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert brief.claim("b") == CLAIMED


def test_a_kept_cancellation_is_told_as_an_outcome(side: Side) -> None:
    client = KeyClient(side)
    token = client.token("a")
    side.execute(client.finishing("a", token, kind="cancelled", body="", keep_ms=LONG_MS))
    assert timeless(client.claim("b")) == OutcomeKept("a", "cancelled", "", 0)
    assert timeless(client.begin("foreign")) == OutcomeKept("a", "cancelled", "", 0)
    assert client.begin("a", "2") == MessageCancelled()


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


def test_a_message_that_is_not_due_yet_is_not_sent_again(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", delay_ms=LONG_MS)
    side.pass_time(SHORT)
    assert not client.claim("b", resend_ms=SHORT_MS).resend
    seat = client.read().seat  # type: ignore[union-attr]  # it was just claimed
    assert seat is not None
    assert -LONG_MS <= seat.sent_ago_ms < 0


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
