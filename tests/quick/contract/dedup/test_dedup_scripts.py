"""Deduplication records on a real server: their keys, how long these live, and effects in the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models.dedup import KeyHeld, MessageCancelled, OutcomeKept, RunBegun, RunFinished, RunOvertaken
from segmented.once_keys import once_claimed, once_claims, once_keys, once_partition
from segmented.protocol.wire import text
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer
    from tests.fixtures.stores import Side

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


@pytest.mark.parametrize("key", ["k", "a b", "a:b", "a%20b", "a%3Ab", "%25", " ", ""])
def test_an_entry_of_the_claims_says_which_key_it_is_about(key: str) -> None:
    member = once_keys("app", key).member
    assert once_claimed(member) == (key, "")
    assert once_claimed(f"{member} m 1:2") == (key, "m 1:2")


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


# --- memory lost ---


@pytest.mark.own_keys
@pytest.mark.parametrize("point", POINTS)
def test_a_finish_after_the_server_lost_its_memory_is_overtaken_and_has_no_effect(
    plain_redis_side: Side, valkey: ValkeyServer, point: str
) -> None:
    assert valkey.url
    client, server = KeyClient(plain_redis_side, point), plain_redis_side.raw()
    token = client.token("a")
    server.flushall()
    assert client.finish("a", token) == RunOvertaken()
    assert effect_of(client, "a", token, ADD, key="count") == RunOvertaken()
    assert server.keys(f"*{client.record.namespace}*") == []
    assert server.exists("count") == 0
    assert client.token("a", "again") > token


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


@pytest.mark.parametrize("point", POINTS)
def test_an_effect_of_a_run_that_was_overtaken_is_not_done(plain_redis_side: Side, point: str) -> None:
    client, server = KeyClient(plain_redis_side, point), plain_redis_side.raw()
    count = f"{client.record_key}:count"
    token = client.token("a", "a's", ttl_ms=SHORT_MS)
    plain_redis_side.pass_time(SHORT)
    client.token("a", "other")
    assert effect_of(client, "a", token, ADD, key=count) == RunOvertaken()
    assert server.get(count) is None


@pytest.mark.own_keys
def test_an_effect_that_fails_leaves_the_record_as_it_was(redis_side: Side) -> None:
    client, server = KeyClient(redis_side), redis_side.raw()
    token = client.token("a")
    before = server.hgetall(client.record_key)
    for broken in ("error('no')", "return redis.call('INCRBY', KEYS[1], 'x')", "return redis.call('NONSENSE')"):
        with pytest.raises(SegmentedError):
            effect_of(client, "a", token, broken, key=f"{client.record_key}:count")
    with pytest.raises(SegmentedError):
        effect_of(client, "a", token, "this is no Lua", key="count")
    assert server.hgetall(client.record_key) == before
    assert isinstance(client.begin("a"), RunBegun)
    assert effect_of(client, "a", token, ADD, key=f"{client.record_key}:count") == RunFinished(replay=False, body="5")


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


@pytest.mark.own_keys
def test_an_effect_whose_result_has_no_json_is_done_once_all_the_same(plain_redis_side: Side) -> None:
    client = KeyClient(plain_redis_side)
    count = f"{client.record_key}:count"
    token = client.token("a")
    script = "redis.call('INCRBY', KEYS[1], ARGV[1])\nreturn function() end"
    for replay in (False, True):
        assert effect_of(client, "a", token, script, key=count) == RunFinished(replay=replay, body="null")
    assert plain_redis_side.raw().get(count) == "5"
    answer = client.begin("a", "copy")
    assert (answer.kind, "function" in answer.body) == ("unkept", True)


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
