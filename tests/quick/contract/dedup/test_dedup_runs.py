"""Runs of messages: in doubt, lapsed, and in rounds."""

from collections.abc import Callable
from typing import Final

import pytest

from segmented import protocol as op
from segmented.dedup.operator import namespaces_plan
from segmented.keys import once_keys, once_partition
from segmented.models import Lost, Released, Renewed
from segmented.models.dedup import (
    AttemptOutdated,
    Freed,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    PayloadDiffers,
    RecordName,
    RunBegun,
    RunFinished,
    RunOn,
    RunOvertaken,
)
from tests.fixtures.stores import Side
from tests.quick.contract.dedup.test_dedup_claims import timeless
from tests.support.contract.dedup.dedup_calls import Calls
from tests.support.contract.dedup.dedup_desk import LONG_MS, POINTS, SHORT, SHORT_MS, KeyClient

CLAIMED = KeyClaimed(replay=False)
ON_KEY = ["unique", "latest"]


def running(message: str, attempt: int = 0) -> KeyHeld:
    """What the first copy of a message is told that finds this one running."""
    return KeyHeld(message, "running", None, attempt, goes_round=True, next_round=1)


# --- one run ---


@pytest.mark.parametrize("point", POINTS)
def test_a_message_is_run_by_one_holder_at_a_time(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    assert isinstance(client.begin("a", "h1"), RunBegun)
    assert timeless(client.begin("a", "h2")) == running("a")


def test_up_to_so_many_run_at_once_and_a_dead_holder_counts_until_it_lapses(side: Side) -> None:
    client = KeyClient(side, "serial")
    tokens = {message: client.begin(message, at_once=3).fencing_token for message in "abc"}
    assert timeless(client.begin("d", at_once=3)) == running("a")
    assert client.renew("b") == Renewed(LONG_MS)
    client.finish("a", tokens["a"])
    client.begin("d", at_once=3)
    assert isinstance(client.begin("e", at_once=3), KeyHeld)
    client.renew("d", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert isinstance(client.begin("e", at_once=3), RunBegun)
    assert isinstance(client.begin("f", at_once=3), KeyHeld)
    client.abandon("b")
    assert isinstance(client.begin("f", at_once=3), RunBegun)
    assert client.cancel("c", is_dead=True) == MessageCancelled()
    assert isinstance(client.begin("g", at_once=3), RunBegun)
    client.free("e")
    assert isinstance(client.begin("h", at_once=3), RunBegun)
    assert isinstance(client.begin("i", at_once=3), KeyHeld)


def test_another_payload_is_refused_by_a_run_a_seat_and_a_kept_outcome(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a")
    assert client.begin("b", seen="q") == PayloadDiffers("a", "task")
    token = client.token("a")
    assert client.begin("b", seen="q") == PayloadDiffers("a", "task")
    client.finish("a", token, keep_ms=LONG_MS)
    assert client.begin("b", seen="q") == PayloadDiffers("a", "task", is_kept=True)
    assert timeless(client.begin("a", "copy", seen="q")) == OutcomeKept("a", "value", "1", 0)


@pytest.mark.parametrize("point", ["unique", "latest"])
def test_a_message_nobody_claimed_waits_for_the_one_that_has_the_seat(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    expected = KeyHeld("a", "waiting", None, goes_round=True, next_round=1)
    assert timeless(client.begin("foreign")) == expected
    assert isinstance(client.begin("a"), RunBegun)


def test_serial_knows_no_seat(side: Side) -> None:
    client = KeyClient(side, "serial")
    client.claim("a")
    assert isinstance(client.begin("foreign"), RunBegun)


@pytest.mark.parametrize("point", POINTS)
def test_tokens_grow_from_run_to_run_also_when_the_store_has_lost_its_memory(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    tokens = [client.run(message) for message in ("a", "b", "c")]
    if side.server is not None:
        side.raw().delete(client.record_key)
    tokens.append(client.run("d"))
    assert tokens == sorted(set(tokens))


# --- leases ---


@pytest.mark.parametrize("point", POINTS)
def test_a_renewed_run_lives_on_and_only_its_holder_renews_it(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.begin("a", "h", ttl_ms=LONG_MS // 10)
    assert client.renew("a", "h", ttl_ms=LONG_MS) == Renewed(LONG_MS)
    assert client.renew("a", "other") == Lost()
    assert client.renew("b", "h") == Lost()
    state = client.read("" if client.point.run_on == "key" else "a")
    assert state is not None
    assert state.run is not None
    assert LONG_MS - 60_000 < (state.run.ends_in_ms or 0) <= LONG_MS
    assert timeless(client.begin("a", "h2")) == running("a")


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_lapsed_is_not_renewed_and_goes_to_the_next_delivery(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    token = client.token("a", "h1", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.renew("a", "h1") == Lost()
    assert client.begin("a", "h2").fencing_token > token
    assert client.finish("a", token, "h1") == RunOvertaken()
    assert client.abandon("a", "h1") == Lost()


@pytest.mark.parametrize("point", POINTS)
def test_a_holder_that_began_again_after_its_lease_finishes_under_its_new_token_only(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    old = client.token("a", "h", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    new = client.token("a", "h")
    assert client.finish("a", old, "h") == RunOvertaken()
    assert client.finish("a", new, "h") == RunFinished(replay=False)


@pytest.mark.parametrize("point", POINTS)
def test_an_unknown_run_is_not_repeated_but_its_holder_may_come_back_and_finish_it(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a", ttl_ms=SHORT_MS, on_lapse="unknown")
    side.pass_time(SHORT)
    for _ in range(2):
        assert client.begin("a", "copy") == KeyHeld("a", "unknown", None)
    assert client.finish("a", token) == RunFinished(replay=False)
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "1", 0)


# --- ends ---


@pytest.mark.parametrize("point", POINTS)
def test_a_finish_repeated_after_a_lost_reply_is_told_that_it_was_kept(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    token = client.token("a")
    assert client.finish("a", token, body="first") == RunFinished(replay=False)
    assert client.finish("a", token, body="second") == RunFinished(replay=True)
    assert timeless(client.begin("a", "copy")) == OutcomeKept("a", "value", "first", 0)
    client.run("b")
    assert client.finish("a", token) == RunFinished(replay=True)
    assert client.finish("a", token - 1) == RunOvertaken()


@pytest.mark.parametrize("point", POINTS)
def test_only_the_holder_abandons_a_run(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.token("a", "h1")
    assert client.abandon("a", "h2") == Lost()
    assert timeless(client.begin("a", "h2")) == running("a")


# --- retries ---


@pytest.mark.parametrize("point", POINTS)
def test_a_retry_is_run_and_a_fork_of_its_chain_is_not(side: Side, point: str) -> None:
    client = KeyClient(side, point)
    client.claim("a")
    client.token("a", "h0")
    assert client.abandon("a", "h0", next_attempt=1) == Released()
    assert client.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert isinstance(client.begin("a", "h1", attempt=1), RunBegun)
    assert client.begin("a", "fork", attempt=0) == AttemptOutdated(1)
    assert timeless(client.begin("a", "fork", attempt=1)) == running("a", 1)


@pytest.mark.parametrize("point", POINTS)
def test_a_fork_is_recognised_after_any_end_of_the_later_attempt(side: Side, point: str) -> None:
    """The later attempt was abandoned, freed or settled."""
    where = "" if point in ON_KEY else "a"
    for end in ("abandon", "free", "settle"):
        client = KeyClient(side, point)
        client.begin("a", "h2", attempt=2, ttl_ms=SHORT_MS, on_lapse="unknown" if end == "settle" else "again")
        side.pass_time(SHORT)
        match end:
            case "abandon":
                client.abandon("a", "h2")
            case "free":
                client.free(where)
            case _:
                client.settle(None, message=where)
        assert client.begin("a", "fork", attempt=1) == AttemptOutdated(2), end
        assert isinstance(client.begin("a", "again", attempt=2), RunBegun), end


def test_a_retry_that_never_arrives_frees_the_key_after_its_time(side: Side) -> None:
    client = KeyClient(side)
    client.token("a")
    client.abandon("a", next_attempt=1, wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("b") == CLAIMED


DAY_MS: Final = 86_400_000


class RecordClient:
    """One record."""

    def __init__(self, side: Side, key: str = "k") -> None:
        self.side, self.record = side, RecordName(side.name("effects"), key)

    def begin(self, message: str, holder: str = "h", *, run_on: RunOn = "key", ttl_ms: int = 60_000) -> object:
        return self.side.execute(op.BeginRun(self.record, message, holder, "", "t", ttl_ms, DAY_MS, run_on=run_on))

    def doubt(self, message: str, holder: str = "h", *, run_on: RunOn = "key") -> Released | Lost:
        return self.side.execute(op.DoubtRun(self.record, message, holder, DAY_MS, run_on=run_on))

    def settle(self, of_message: str = "") -> RunFinished | Freed | NotUnknown:
        return self.side.execute(op.SettleRun(self.record, DAY_MS, None, of_message=of_message))


@pytest.fixture
def client(side: Side) -> RecordClient:
    return RecordClient(side)


def test_a_run_in_doubt_is_unknown_at_once_and_a_repeat_of_the_doubt_changes_nothing(client: RecordClient) -> None:
    client.begin("m")
    assert [client.doubt("m"), client.doubt("m")] == [Released(), Released()]
    assert client.begin("n") == KeyHeld("m", "unknown", None)
    (claim,) = client.side.execute(op.ListClaims(client.record.namespace, once_partition(client.record.key), 10))
    assert (claim.key, claim.ends_in_ms) == ("k", None)


@pytest.mark.parametrize("point_name", ["unique", "serial"])
def test_a_retry_of_a_run_in_doubt_lives_and_is_renewed(side: Side, point_name: str) -> None:
    client = KeyClient(side, point_name)
    client.token("m")
    side.execute(op.DoubtRun(client.record, "m", "m's", LONG_MS, client.point.run_on))
    assert isinstance(client.begin("m", "next", attempt=1), RunBegun)
    assert client.renew("m", "next") == Renewed(LONG_MS)
    held = client.begin("m", "third", attempt=1)
    assert (held.state, held.message) == ("running", "m")


def test_only_the_holder_puts_its_run_in_doubt(client: RecordClient) -> None:
    assert client.doubt("m") == Lost()
    client.begin("m")
    assert [client.doubt("m", "other"), client.doubt("n")] == [Lost(), Lost()]
    assert isinstance(client.begin("n"), KeyHeld)
    assert client.settle() == NotUnknown()


def test_a_settlement_of_one_message_does_not_settle_another(client: RecordClient) -> None:
    client.begin("m")
    client.doubt("m")
    assert client.settle("earlier") == NotUnknown()
    assert client.settle("m") == Freed("unknown", "m")
    assert isinstance(client.begin("n"), RunBegun)


@pytest.mark.parametrize("key", ["k", "a*b?[c]\\d", "{k}"])
def test_a_namespace_is_found_by_what_is_held_in_it_and_by_a_key_that_it_knows(side: Side, key: str) -> None:
    client = RecordClient(side, key)
    spaces = [f"{client.record.namespace}-{word}" for word in ("plain", "{od:d}%7D")]
    for number, namespace in enumerate(spaces):
        record = RecordName(namespace, key)
        begun = side.execute(op.BeginRun(record, "m", "h", "", "t", 60_000, DAY_MS))
        assert isinstance(begun, RunBegun)
        if number == 0:
            side.execute(op.FinishRun(record, "m", "h", begun.fencing_token, "value", "1", DAY_MS, DAY_MS))
    held, known = side.run(namespaces_plan()), side.run(namespaces_plan(key))
    assert [name for name in held if name in spaces] == spaces[1:]
    assert [name for name in known if name in spaces] == spaces
    assert [name for name in side.run(namespaces_plan("x" + key)) if name in spaces] == []


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("run_on", ["key", "message"])
def test_a_message_that_is_cancelled_leaves_what_is_unknown_unknown(
    client: RecordClient, run_on: RunOn, *, is_dead: bool
) -> None:
    client.side.execute(
        op.BeginRun(client.record, "m", "h", "", "t", 60_000, DAY_MS, run_on=run_on, on_lapse="unknown"),
    )
    if not is_dead:
        client.doubt("m", run_on=run_on)
    cancel = op.CancelMessage(client.record, "m", DAY_MS, run_on, is_dead=is_dead)
    assert [client.side.execute(cancel), client.side.execute(cancel)] == [MessageCancelled(), MessageCancelled()]
    assert client.begin("m", "other", run_on=run_on) == MessageCancelled()
    found = client.side.execute(op.ReadRecord(client.record, "m" if run_on == "message" else ""))
    assert found is not None
    assert found.run is not None
    assert found.run.is_unknown
    (claim,) = client.side.execute(op.ListClaims(client.record.namespace, once_partition(client.record.key), 10))
    assert claim.ends_in_ms is None
    if run_on == "key":
        assert client.begin("n") == KeyHeld("m", "unknown", None)
        assert client.settle() == Freed("unknown", "m")
        assert isinstance(client.begin("n"), RunBegun)


def test_a_claim_that_lapsed_is_no_replay_for_its_own_message(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("a") == KeyClaimed(replay=False)


def test_a_seat_that_lapsed_is_not_what_an_operator_frees(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.free() == Freed(None, None)


def test_a_holder_that_was_overtaken_has_not_announced_a_later_retry(side: Side) -> None:
    client = KeyClient(side)
    client.token("a", "first", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.token("a", "second")
    assert client.abandon("a", "second", next_attempt=1) == Released()
    assert client.abandon("a", "first", next_attempt=1) == Released()  # it may be its own, whose reply was lost
    assert client.abandon("a", "first", next_attempt=2) == Lost()


def test_the_key_for_a_provider_is_the_same_in_each_attempt(side: Side) -> None:
    calls = Calls(side)
    first = calls.run("order-1")
    first.abandon()
    second = calls.run("order-1")
    assert second.fencing_token > first.fencing_token
    assert second.provider_key("charge") == first.provider_key("charge") == f"{first.key}-charge"


def test_a_token_is_one_past_the_last_where_the_servers_clock_is_behind_it(plain_redis_side: Side) -> None:
    client = KeyClient(plain_redis_side)
    ahead = client.token("a") + 60_000_000
    plain_redis_side.raw().hset(client.record_key, "token", ahead)
    client.abandon("a")
    assert client.token("b") == ahead + 1


@pytest.mark.parametrize("end", ["finish", "abandon", "cancel", "free"])
def test_who_waits_for_a_run_is_woken_by_its_end(plain_redis_side: Side, end: str) -> None:
    client = KeyClient(plain_redis_side)
    token = client.token("a")
    ends: dict[str, Callable[[], object]] = {
        "finish": lambda: client.finish("a", token),
        "abandon": lambda: client.abandon("a"),
        "cancel": lambda: client.cancel("a", is_dead=True),
        "free": client.free,
    }
    assert is_told(client, ends[end])


def is_told(client: KeyClient, end: Callable[[], object]) -> bool:
    """Return whether whoever listens at the key hears of its end."""
    with client.side.raw().pubsub() as heard:
        heard.subscribe(once_keys(client.record.namespace, client.key).freed)
        assert heard.get_message(timeout=30)["type"] == "subscribe"
        end()
        return heard.get_message(timeout=30) is not None
