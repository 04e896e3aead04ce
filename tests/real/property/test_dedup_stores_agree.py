"""Deduplication records on Redis answer as the store in memory does, and what the record promises holds in any order.

As in `test_stores_agree`: 3 ms pass between any two operations, for real and by the model's clock. Tokens are the
servers' times, so of them only is compared which of the tokens given so far it is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Released, Renewed
from segmented.models.dedup import (
    Claim,
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    RecordName,
    RecordState,
    RunBegun,
    RunFinished,
    StillRunning,
)
from segmented.once_keys import once_keys, once_partition
from segmented.protocol.wire import Dialect, text
from segmented.stores.memory import MemoryModel
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LAPSED_AT_ONCE, LONG_MS, SETTINGS, STEP_SECONDS, Agreement

if TYPE_CHECKING:
    from segmented.models.dedup import OnLapse, OutcomeKind, RunOn, SeatEnd

KEY: Final = "order:5 %"
MESSAGES: Final = st.sampled_from(["m1", "m2", "m3:x"])
HOLDERS: Final = st.sampled_from(["h1", "h2", "h3"])
PRINTS: Final = st.sampled_from(["", "p", "p", "p", "q"])
LIVES: Final = st.sampled_from([LAPSED_AT_ONCE, LONG_MS, LONG_MS])
WAITS: Final = st.sampled_from([0, LONG_MS])
ATTEMPTS: Final = st.sampled_from([0, 0, 0, 1, 2])
OUTCOMES: Final = st.sampled_from(["value", "error", "unkept", "cancelled"])
POINTS: Final[dict[str, tuple[str, str, bool]]] = {
    "unique": ("end", "key", True),
    "latest": ("start", "key", False),
    "serial": ("none", "message", False),
}
"""Of a face for tasks: seat_end, run_on, and is a publisher refused while the key is run?"""


EXAMPLES: Final = settings(
    SETTINGS,
    max_examples=4,
    phases=[
        Phase.generate
    ],  # with real milliseconds between the steps, to shrink a failure takes longer than a test may
)


def near(milliseconds: int | None) -> int | None:
    """Of a time, keep whether there is one and on which side of now it is."""
    return None if milliseconds is None else (milliseconds > 0) - (milliseconds < -LONG_MS)


class DedupAgrees(Agreement):
    """One key of one point, and its messages."""

    def __init__(self, redis_store: RedisStore, point: str) -> None:
        super().__init__(redis_store)
        seat_end, run_on, self.is_blocked = POINTS[point]
        self.seat_end, self.run_on = cast("SeatEnd", seat_end), cast("RunOn", run_on)
        self.model = MemoryModel(self.clock)
        self.record = RecordName(self.name, KEY)
        self.keys = once_keys(self.name, KEY)
        self.tokens: dict[str, list[int]] = {"model": [1], "redis": [1]}
        self.held: dict[str, tuple[str, int]] = {}
        """By message: its last run that may be finished, as holder and index of its token."""
        self.living: dict[str, str] = {}
        """By what a run keeps others out of: the holder of a run with a long lease."""
        self.over: set[str] = set()
        client: Any = redis_store.client  # redis-py leaves this method untyped
        self.ears = client.pubsub(ignore_subscribe_messages=True)
        self.end = f"{self.keys.freed}:end"
        self.ears.subscribe(self.keys.freed, self.end)

    # --- both at once ---

    def ask(self, operation: op.Operation[Any], other: op.Operation[Any] | None = None) -> Any:  # noqa: ANN401  # answers of any kind
        """Ask both, `other` being what the model is asked where tokens differ; return the model's answer."""
        expected = self.told("model", other or operation)
        found = self.told("redis", operation)
        assert found == expected, operation
        assert self.heard() == len(self.model.take_freed()), operation
        time.sleep(STEP_SECONDS)
        self.clock.advance(STEP_SECONDS)
        return expected

    def heard(self) -> int:
        """Return how many messages were published on the server."""
        self.redis.client.publish(self.end, "end")
        count = 0
        while (message := self.ears.get_message(timeout=5)) is None or text(message["channel"]) != self.end:
            count += message is not None
        return count

    def told(self, who: str, operation: op.Operation[Any]) -> object:
        try:
            answer = (self.model if who == "model" else self.redis).execute(operation)
        except SegmentedError as error:
            return type(error), str(error)
        return self.timeless(who, answer)

    def timeless(self, who: str, answer: object) -> object:  # noqa: C901  # a case for each kind of answer
        match answer:
            case RunBegun():
                return replace(answer, fencing_token=self.numbered(who, answer.fencing_token, is_new=not answer.replay))
            case KeyClaimed():
                return replace(answer, delay_ms=near(answer.delay_ms) or 0)
            case KeyHeld():
                return replace(answer, free_in_ms=near(answer.free_in_ms))
            case MessageEarly():
                return replace(answer, due_in_ms=near(answer.due_in_ms) or 0)
            case StillRunning():
                return replace(answer, free_in_ms=near(answer.free_in_ms) or 0)
            case OutcomeKept():
                return replace(answer, age_ms=0)
            case Claim():
                return replace(answer, ends_in_ms=near(answer.ends_in_ms))
            case tuple():
                return tuple(self.timeless(who, one) for one in answer)
            case RecordState(_, seat, run, outcome, keeps_ms):
                if seat:
                    seat = replace(seat, ends_in_ms=near(seat.ends_in_ms) or 0, sent_ago_ms=0)
                if run:
                    token = self.numbered(who, run.fencing_token)
                    ends_in_ms = near(run.ends_in_ms) or 0
                    run = replace(run, fencing_token=token, begun_ago_ms=0, ends_in_ms=ends_in_ms)
                outcome = replace(outcome, age_ms=0) if outcome else None
                return replace(answer, seat=seat, run=run, outcome=outcome, keeps_ms=near(keeps_ms) or 0)
        return answer

    def numbered(self, who: str, token: int, *, is_new: bool = False) -> int:
        """Return which of the tokens it is; a new one is above all others."""
        known = self.tokens[who]
        if is_new:
            assert token > known[-1]
            known.append(token)
        return known.index(token)

    # --- what a task does ---

    @rule(
        message=MESSAGES,
        seen=PRINTS,
        wait_ms=LIVES,
        delay_ms=st.sampled_from([0, 0, LONG_MS]),
        delay_max_ms=st.sampled_from([0, 1, LONG_MS]),
        resend_ms=st.sampled_from([0, 1, LONG_MS]),
        call=st.sampled_from(["", "", "1", "2"]),
    )
    def claim(
        self,
        message: str,
        seen: str,
        wait_ms: int,
        delay_ms: int,
        delay_max_ms: int,
        resend_ms: int,
        call: str,
    ) -> None:
        self.ask(
            op.ClaimKey(
                self.record,
                message,
                seen,
                "task",
                wait_ms,
                LONG_MS,
                delay_ms,
                delay_max_ms,
                resend_ms,
                is_blocked_by_run=self.is_blocked,
                call_text=call if self.seat_end == "start" else "",
            )
        )

    @rule(
        message=MESSAGES,
        holder=HOLDERS,
        seen=PRINTS,
        ttl_ms=LIVES,
        on_lapse=st.sampled_from(["again", "again", "unknown"]),
        attempt=ATTEMPTS,
        follows=st.sampled_from(["", "", "m1", "m2"]),
        round_number=st.sampled_from([0, 0, 1, 2]),
        at_once=st.sampled_from([0, 1, 2]),
    )
    def begin(  # noqa: PLR0913, PLR0917  # as many as a beginning has
        self,
        message: str,
        holder: str,
        seen: str,
        ttl_ms: int,
        on_lapse: OnLapse,
        attempt: int,
        follows: str,
        round_number: int,
        at_once: int,
    ) -> None:
        follows = "" if follows == message else follows
        answer = self.ask(
            op.BeginRun(
                self.record,
                message,
                holder,
                seen,
                "task",
                ttl_ms,
                LONG_MS,
                self.seat_end,
                self.run_on,
                on_lapse,
                attempt,
                follows,
                round_number,
                at_once,
            )
        )
        if isinstance(answer, RunBegun):
            assert message not in self.over, "a message that is over begins again"
            place = "" if self.run_on == "key" else message
            owner = self.living.get(place, "")
            is_mine = owner.rpartition(" ")[0] == f"{message} {holder}"
            if answer.replay:
                assert is_mine or not owner
            elif owner and not is_mine:
                assert owner.split(" ")[0] == message, "two messages of a key run"
                assert attempt > int(owner.rpartition(" ")[2]), "two runs of a message"
            if not answer.replay:
                self.held[message] = holder, answer.fencing_token
                self.living.pop(place, None)
            if not answer.replay and ttl_ms == LONG_MS:
                self.living[place] = f"{message} {holder} {attempt}"

    @rule(message=MESSAGES, holder=HOLDERS, ttl_ms=LIVES)
    def renew(self, message: str, holder: str, ttl_ms: int) -> None:
        answer = self.ask(op.RenewRun(self.record, message, holder, ttl_ms, LONG_MS, self.run_on))
        if isinstance(answer, Renewed) and ttl_ms == LAPSED_AT_ONCE:
            self.living.pop("" if self.run_on == "key" else message, None)

    @rule(
        message=MESSAGES,
        is_late=st.sampled_from([False, False, False, True]),
        kind=OUTCOMES,
        keep_ms=st.sampled_from([0, 1, LONG_MS]),
    )
    def finish(self, message: str, kind: OutcomeKind, keep_ms: int, *, is_late: bool) -> None:
        holder, index = self.held.get(message, ("h1", 0))
        index = max(0, index - is_late)
        asked = [
            op.FinishRun(
                self.record,
                message,
                holder,
                self.tokens[who][index],
                kind,
                f"{holder}'s",
                keep_ms,
                LONG_MS,
                self.run_on,
            )
            for who in ("redis", "model")
        ]
        answer = self.ask(*asked)
        if isinstance(answer, RunFinished):
            self.ended(message)

    @rule(message=MESSAGES, holder=HOLDERS, following=st.sampled_from([None, None, 0, 1, 2]), wait_ms=WAITS)
    def abandon(self, message: str, holder: str, following: int | None, wait_ms: int) -> None:
        who = (self.record, message, holder, LONG_MS, self.seat_end, self.run_on)
        self.ask(op.AbandonRun(*who, following, wait_ms))
        self.forget_run(message)

    @rule(message=MESSAGES, holder=HOLDERS)
    def doubt(self, message: str, holder: str) -> None:
        answer = self.ask(op.DoubtRun(self.record, message, holder, LONG_MS, self.run_on))
        if isinstance(answer, Released):  # it is unknown now, and may be settled
            self.living.pop("" if self.run_on == "key" else message, None)

    @rule(message=MESSAGES, is_dead=st.sampled_from([False, False, True]))
    def cancel(self, message: str, *, is_dead: bool) -> None:
        answer = self.ask(op.CancelMessage(self.record, message, LONG_MS, self.run_on, is_dead))
        if isinstance(answer, MessageCancelled):
            self.ended(message)

    # --- what others do ---

    @rule(message=st.just("") | MESSAGES)
    def free(self, message: str) -> None:
        self.ask(op.FreeKey(self.record, message, LONG_MS))
        if message:
            self.forget_run(message)
        else:
            self.living.pop("", None)

    @rule(
        message=st.just("") | MESSAGES,
        kind=st.none() | OUTCOMES,
        keep_ms=WAITS,
        of_message=st.just("") | st.just("") | MESSAGES,
    )
    def settle(self, message: str, kind: OutcomeKind | None, keep_ms: int, of_message: str) -> None:
        answer = self.ask(op.SettleRun(self.record, LONG_MS, kind, "settled", keep_ms, message, of_message))
        if isinstance(answer, RunFinished) and message:
            self.ended(message)

    @rule(message=st.just("") | MESSAGES)
    def reap(self, message: str) -> None:
        self.ask(op.ReapKey(self.record, LONG_MS, message))

    @rule(limit=st.sampled_from([1, 100]), only_lapsed=st.booleans())
    def list_claims(self, limit: int, *, only_lapsed: bool) -> None:
        self.ask(op.ListClaims(self.name, once_partition(KEY), limit, only_lapsed))

    @rule(message=st.just("") | MESSAGES)
    def read(self, message: str) -> None:
        self.ask(op.ReadRecord(self.record, message))

    # --- what always holds ---

    def ended(self, message: str) -> None:
        self.over.add(message)
        self.forget_run(message)

    def forget_run(self, message: str) -> None:
        place = "" if self.run_on == "key" else message
        if self.living.get(place, "").startswith(f"{message} "):
            self.living.pop(place)

    @invariant()
    def every_key_lapses_but_of_what_must_not_be_forgotten_and_whatever_holds_is_in_the_claims(self) -> None:
        names = ["", "m1", "m2", "m3:x"]
        pipe: Any = self.redis.client.pipeline(transaction=False)
        for message in names:
            key = f"{self.keys.messages}:{message}" if message else self.keys.record
            pipe.pttl(key)
            pipe.hmget(key, "run", "on_lapse", "seat")
        *found, members = pipe.zrange(self.keys.claims, 0, -1).execute()
        expected = set()
        for message, left, (run, on_lapse, seat) in zip(names, found[::2], found[1::2], strict=True):
            assert (left == -1) == (run is not None and text(on_lapse) == "unknown"), (message, left)
            if run or seat:
                expected.add(f"{self.keys.member} {message}".rstrip())
        assert {text(member) for member in members} == expected

    def teardown(self) -> None:
        for message in ("", "m1", "m2", "m3:x"):
            self.ask(op.ReadRecord(self.record, message))
        self.ears.close()


def agree(valkey_url: str, point: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        made = partial(DedupAgrees, store, point)
        run_state_machine_as_test(made, settings=EXAMPLES)  # type: ignore[arg-type]  # it calls it, as it would a class


@pytest.mark.parametrize("point", POINTS)
def test_records_answer_as_the_model_does(valkey_url: str, point: str) -> None:
    agree(valkey_url, point)
