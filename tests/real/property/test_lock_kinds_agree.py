"""Locks that several may hold, and the historical one: Redis answers as the readable model does, whatever is asked.

As in `test_stores_agree`: 3 ms pass between any two operations, for real and by the model's clock. Tokens are the
servers' times, so of them only is compared whether they grew.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hypothesis import settings, strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.keys import read_write_keys
from segmented.models import Acquired, Held
from segmented.protocol.wire import text
from segmented.stores.memory import MemoryModel
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LAPSED_AT_ONCE, LIVES, LONG_MS, SETTINGS, STEP_SECONDS, Agreement

if TYPE_CHECKING:
    from collections.abc import Callable

READERS: Final = st.sampled_from(["r1", "r2", "r3"])
WRITERS: Final = st.sampled_from(["w1", "w2"])
ANYBODY: Final = READERS | WRITERS
PRESENCES: Final = st.sampled_from([0, 1, LONG_MS])


class KindsAgree(Agreement):
    """Compares answers without their times, how each token stands to the last one, and who is woken."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.model = MemoryModel(self.clock)
        self.last = {"model": 0, "redis": 0}
        keys = read_write_keys(self.name)
        self.end = f"{keys.freed}:end"
        client: Any = redis_store.client  # redis-py leaves this method untyped
        self.ears = client.pubsub(ignore_subscribe_messages=True)
        self.ears.subscribe(keys.freed, keys.opened, self.end)

    def agree_on(self, operation: op.Operation[Any]) -> None:
        expected = self.told("model", lambda: self.model.execute(operation))
        found = self.told("redis", lambda: self.redis.execute(operation))
        assert found == expected, operation
        assert self.heard() == sorted(self.model.take_freed()), operation
        time.sleep(STEP_SECONDS)
        self.clock.advance(STEP_SECONDS)

    def heard(self) -> list[str]:
        """Return the channels that got a message on the server."""
        self.redis.client.publish(self.end, "end")
        channels = []
        while (message := self.ears.get_message(timeout=5)) is None or text(message["channel"]) != self.end:
            if message is not None:
                channels.append(text(message["channel"]))
        return sorted(channels)

    def teardown(self) -> None:
        self.ears.close()

    def told(self, who: str, ask: Callable[[], object]) -> object:
        try:
            answer = ask()
        except SegmentedError as error:
            return type(error), str(error)
        match answer:
            case Held(free_in_ms):
                return replace(answer, free_in_ms=None if free_in_ms is None else min(free_in_ms, 1))
            case Acquired(token, next_in_ms=next_in_ms):
                growth = (token > self.last[who]) - (token < self.last[who])
                self.last[who] = token
                soon = None if next_in_ms is None else min(next_in_ms, 1)
                return replace(answer, fencing_token=growth, next_in_ms=soon)
        return answer


class ReadersAndWritersAgree(KindsAgree):
    """One lock of readers and writers."""

    @rule(holder=READERS, ttl_ms=LIVES)
    def read(self, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.AcquireRead(self.name, holder, ttl_ms))

    @rule(holder=WRITERS, ttl_ms=LIVES, presence_ms=PRESENCES)
    def write(self, holder: str, ttl_ms: int, presence_ms: int) -> None:
        self.agree_on(op.AcquireWrite(self.name, holder, ttl_ms, presence_ms))

    @rule(holder=ANYBODY, ttl_ms=LIVES)
    def renew(self, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewReadWrite(self.name, holder, ttl_ms))

    @rule(holder=ANYBODY)
    def release(self, holder: str) -> None:
        self.agree_on(op.ReleaseReadWrite(self.name, holder))

    def teardown(self) -> None:
        """Nobody who released and nobody who lapsed is left, and every key has an end."""
        for holder in ("r1", "r2", "r3", "w1", "w2"):
            self.agree_on(op.ReleaseReadWrite(self.name, holder))
        keys = read_write_keys(self.name)
        assert self.redis.client.exists(keys.lock) == 0
        assert self.redis.client.zcard(keys.readers) == 0
        assert self.redis.client.pttl(keys.fence) != -1
        super().teardown()


class PermitsAgree(KindsAgree):
    """One semaphore."""

    @rule(holder=ANYBODY, ttl_ms=LIVES, permits=st.sampled_from([2, 2, 2, 3]))
    def acquire(self, holder: str, ttl_ms: int, permits: int) -> None:
        self.agree_on(op.AcquirePermit(self.name, holder, ttl_ms, permits))

    @rule(holder=ANYBODY, ttl_ms=LIVES)
    def renew(self, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewPermit(self.name, holder, ttl_ms))

    @rule(holder=ANYBODY)
    def release(self, holder: str) -> None:
        self.agree_on(op.ReleasePermit(self.name, holder))

    def teardown(self) -> None:
        """All give theirs back, and nothing is left."""
        for holder in ("r1", "r2", "r3", "w1", "w2"):
            self.agree_on(op.ReleasePermit(self.name, holder))
        assert self.redis.client.exists(read_write_keys(self.name).lock) == 0
        super().teardown()


class PlainCommandsAgree(Agreement):
    """The four commands of the historical lock."""

    @rule(value=st.sampled_from(["1.000000", "2.000000"]))
    def set_nx(self, value: str) -> None:
        self.agree_on(op.SetNx(self.name, value))

    @rule()
    def get(self) -> None:
        self.agree_on(op.GetValue(self.name))

    @rule(value=st.sampled_from(["1.000000", "2.000000"]))
    def get_set(self, value: str) -> None:
        self.agree_on(op.GetSet(self.name, value))

    @rule()
    def delete(self) -> None:
        self.agree_on(op.DeleteValue(self.name))

    def teardown(self) -> None:
        """Leave no key without an end behind."""
        self.agree_on(op.GetSet(self.name, "1.000000"))
        assert text(self.redis.client.get(read_write_keys(self.name).lock)) == "1.000000"
        self.agree_on(op.DeleteValue(self.name))


def test_readers_and_writers_on_redis_are_answered_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(ReadersAndWritersAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_a_semaphore_on_redis_answers_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(PermitsAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_the_plain_commands_on_redis_answer_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(PlainCommandsAgree, store), settings=settings(SETTINGS, max_examples=4))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_a_writer_whose_presence_had_lapsed_wakes_nobody_when_it_gives_up(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        both = ReadersAndWritersAgree(store)
        both.agree_on(op.AcquireRead(both.name, "r1", LONG_MS))
        both.agree_on(op.AcquireWrite(both.name, "w1", LONG_MS, LONG_MS))
        both.agree_on(op.AcquireWrite(both.name, "w2", LONG_MS, LAPSED_AT_ONCE))
        both.agree_on(op.ReleaseReadWrite(both.name, "w1"))
        both.agree_on(op.ReleaseReadWrite(both.name, "w2"))
        both.teardown()


def test_a_writer_that_gives_up_behind_a_writer_wakes_nobody(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        both = ReadersAndWritersAgree(store)
        both.agree_on(op.AcquireWrite(both.name, "w1", LONG_MS, LONG_MS))
        both.agree_on(op.AcquireWrite(both.name, "w2", LONG_MS, LONG_MS))
        store.execute(op.ReleaseReadWrite(both.name, "w2"))
        assert both.heard() == []
        both.model.execute(op.ReleaseReadWrite(both.name, "w2"))
        assert both.model.take_freed() == []
        both.agree_on(op.ReleaseReadWrite(both.name, "w1"))
        both.teardown()
