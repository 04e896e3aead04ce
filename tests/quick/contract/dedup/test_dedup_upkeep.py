"""An operator lists, frees and settles records, and scripts keep them."""

import pytest
import redis

from segmented import protocol as op
from segmented.keys import once_claims, once_keys, once_partition
from segmented.models.dedup import (
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    RunBegun,
    RunFinished,
    RunOvertaken,
    StillRunning,
)
from segmented.protocol.wire import text
from segmented.servers import ValkeyServer
from tests.fixtures.stores import Side
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

CLAIMED = KeyClaimed(replay=False)


def where(client: KeyClient) -> str:
    """Name the message whose run it is; of a run of the key, none."""
    return "" if client.point.run_on == "key" else "a"


# --- cancel ---


@pytest.mark.parametrize("point", POINTS)
def test_a_message_at_work_is_not_cancelled_unless_its_run_is_known_to_be_over(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    answer = client.cancel("a")
    assert answer == StillRunning(answer.free_in_ms)
    assert LONG_MS - 30_000 < answer.free_in_ms <= LONG_MS
    assert client.cancel("a", is_dead=True) == MessageCancelled()
    assert client.finish("a", token) == RunOvertaken()
    assert client.begin("a", "copy") == MessageCancelled()


@pytest.mark.parametrize("point", POINTS)
def test_a_message_that_has_ended_is_not_cancelled(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.run("a")
    assert timeless(client.cancel("a")) == OutcomeKept("a", "value", "1", 0)
    client.run("b")
    assert timeless(client.cancel("a")) == OutcomeKept("a", "value", "1", 0)


def test_a_message_put_off_is_cancelled_for_as_long_as_it_may_still_arrive(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", delay_ms=SHORT_MS, wait_ms=LONG_MS)
    client.cancel("a", remember_ms=1)
    side.pass_time(SHORT)
    assert client.begin("a") == MessageCancelled()


# --- free ---


def test_a_freed_key_may_be_claimed_whatever_held_it(side: Side) -> None:
    for state in ("waiting", "running", "done", None):
        client = KeyClient(side)
        if state == "waiting":
            client.claim("a")
        elif state == "running":
            client.token("a")
        elif state == "done":
            client.run("a", keep_ms=LONG_MS)
        assert client.free() == Freed(state, "a" if state else None)
        assert client.free() == Freed(None, None)
        assert client.claim("b") == CLAIMED


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_whose_run_was_freed_is_fenced(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert client.free(where(client)) == Freed("running", "a")
    assert client.finish("a", token) == RunOvertaken()
    assert client.begin("b").fencing_token > token


def test_copies_of_an_ended_message_find_its_outcome_after_the_key_was_freed(side: Side) -> None:
    client = KeyClient(side)
    client.run("a", body="7", keep_ms=LONG_MS)
    client.free()
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert isinstance(client.begin("b"), RunBegun)


# --- unknown ---


@pytest.mark.parametrize("point", POINTS)
def test_a_settled_run_has_the_outcome_that_was_said(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", on_lapse="unknown")
    assert client.settle("value", "7", message=where(client)) == NotUnknown()
    client.renew("a", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.settle("value", "7", keep_ms=LONG_MS, message=where(client)) == RunFinished(replay=False)
    assert client.settle("value", "8", message=where(client)) == NotUnknown()
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "7", 0)
    assert client.finish("a", token) == RunOvertaken()


# --- look ---


ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


def effect_of(client: KeyClient, message: str, token: int, script: str, *, key: str, keep_ms: int = 0) -> object:
    """Finish with an effect on `key`, whose argument is 5."""
    finish = client.finishing(message, token, kind="effect", body="", keep_ms=keep_ms)
    return client.side.execute(op.FinishRunWithEffect(finish, script, (key,), ("5",)))


# --- keys ---


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("key", ["k", "order:5 {a}%"])
def test_a_record_keeps_the_keys_of_the_key_module_in_one_slot(
    plain_redis_side: Side, valkey: ValkeyServer, point: str, key: str
) -> None:
    assert valkey.url
    client = KeyClient(plain_redis_side, point, key)
    keys = once_keys(client.record.namespace, key)
    named = {keys.record, keys.claims, *(f"{keys.messages}:{message}" for message in "abcd")}
    client.claim("a")
    client.token("a")
    client.begin("a", "copy")
    client.renew("a")
    client.abandon("a", next_attempt=1)
    client.begin("b")
    client.begin("c", follows="a")
    client.cancel("d")
    found = {text(found) for found in plain_redis_side.raw().keys(f"*{client.record.namespace}*")}
    assert {keys.record, f"{keys.messages}:a", f"{keys.messages}:d"} <= found <= named
    assert len({redis.crc.key_slot(one.encode()) for one in [*named, *keys.listed()]}) == 1
    assert once_claims(client.record.namespace, once_partition(key)) == keys.claims


@pytest.mark.parametrize("point", POINTS)
def test_a_record_lives_as_long_as_it_may_matter_and_is_remembered_a_while_longer(
    plain_redis_side: Side, point: str
) -> None:
    client, server = KeyClient(plain_redis_side, point), plain_redis_side.raw()
    place = client.record_key if client.point.run_on == "key" else client.message_key("a")
    client.claim("a", wait_ms=1_000_000, remember_ms=500_000)
    assert 1_440_000 < server.pttl(client.record_key) <= 1_500_000
    client.begin("a", ttl_ms=300_000, remember_ms=500_000)
    assert 740_000 < server.pttl(place) <= 1_500_000
    client.renew("a", ttl_ms=700_000)
    assert 1_240_000 < server.pttl(place) <= 1_300_000
    token = client.read("" if client.point.run_on == "key" else "a").run.fencing_token  # type: ignore[union-attr]  # it runs
    side = plain_redis_side
    side.execute(client.finishing("a", token, keep_ms=400_000, remember_ms=500_000))
    kept = 400_000 if client.point.run_on == "key" else 0
    assert kept + 440_000 < server.pttl(place) <= kept + 500_000


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_never_lapses_and_one_that_is_over_does(plain_redis_side: Side, point: str) -> None:
    server = plain_redis_side.raw()
    for end in ("finish", "abandon", "retry", "cancel", "free", "settle", "deny"):
        client = KeyClient(plain_redis_side, point)
        where = "" if client.point.run_on == "key" else "a"
        place = client.message_key("a") if where else client.record_key
        token = client.token("a", ttl_ms=10, on_lapse="unknown")
        client.begin("a", "copy", ttl_ms=1)
        assert server.pttl(place) == -1
        plain_redis_side.pass_time(0.012)
        match end:
            case "finish":
                client.finish("a", token)
            case "abandon":
                client.abandon("a")
            case "retry":
                client.abandon("a", next_attempt=1)
            case "cancel":
                client.cancel("a")
                assert server.pttl(place) == -1  # unknown all the same
                client.free(where)
            case "free":
                client.free(where)
            case "settle":
                client.settle("value", message=where)
            case _:
                client.settle(None, message=where)
        assert 0 < server.pttl(place) <= 2 * LONG_MS, end
        held = (("k", None),) if end == "retry" and point != "serial" else ()
        assert client.claims() == held, end


# --- effects ---


@pytest.mark.own_keys
@pytest.mark.parametrize("point", POINTS)
def test_an_effect_is_done_once_with_the_outcome(redis_side: Side, point: str) -> None:
    client, server = KeyClient(redis_side, point), redis_side.raw()
    count = f"{client.record_key}:count"
    token = client.token("a")
    assert effect_of(client, "a", token, ADD, key=count) == RunFinished(replay=False, body="5")
    assert effect_of(client, "a", token, ADD, key=count) == RunFinished(replay=True, body="5")
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "effect", "5", 0)
    assert server.get(count) == "5"


@pytest.mark.own_keys
@pytest.mark.parametrize(
    ("script", "body"),
    [
        ("redis.call('INCRBY', KEYS[1], ARGV[1])", "null"),
        ("redis.call('INCRBY', KEYS[1], ARGV[1])\nreturn nil", "null"),
        (
            "redis.call('INCRBY', KEYS[1], ARGV[1])\nreturn { total = '9007199254740993' }",
            '{"total":"9007199254740993"}',
        ),
        ("redis.call('INCRBY', KEYS[1], ARGV[1])\nreturn true -- done", "true"),
    ],
)
def test_an_effect_gives_json_of_what_it_returns(plain_redis_side: Side, script: str, body: str) -> None:
    client = KeyClient(plain_redis_side)
    count = f"{client.record_key}:count"
    assert effect_of(client, "a", client.token("a"), script, key=count) == RunFinished(replay=False, body=body)
    assert plain_redis_side.raw().get(count) == "5"


# --- numbers ---


def test_numbers_near_the_largest_that_are_exact_are_kept(plain_redis_side: Side) -> None:
    client = KeyClient(plain_redis_side)
    attempt = 2**53 - 2
    client.token("a")
    client.abandon("a", next_attempt=attempt)
    answer = client.claim("b")
    assert answer == KeyHeld("a", "waiting", answer.free_in_ms, attempt)
    client.cancel("a")
    client.token("b")
    assert client.begin("c", round_number=attempt).next_round == attempt + 1
    assert client.begin("a", attempt=attempt) == MessageCancelled()


def test_claims_that_have_long_expired_leave_the_list(plain_redis_side: Side) -> None:
    client = KeyClient(plain_redis_side)
    client.claim("a", wait_ms=SHORT_MS)
    listed = once_keys(client.record.namespace, client.key).claims
    plain_redis_side.raw().zadd(listed, {"old": 1.0})
    client.token("a", ttl_ms=SHORT_MS)
    assert client.claims() == (("k", None),)
