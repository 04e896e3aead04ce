"""Cached values on Redis are as the readable model has them, whatever is asked in whatever order."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.models import Acquired, Cached, MayLoad
from segmented.protocol.wire import Dialect
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import HOLDERS, LIVES, LONG_MS, SETTINGS, Agreement, timeless

VALUES = st.builds(Cached, st.sampled_from(["text", "bytes", "none", "error"]), st.sampled_from(["", "a", "ü b", "{}"]))
REFRESHES = st.sampled_from([None, 1, LONG_MS])

Turns = dict[MemoryStore | RedisStore, int]


class CachesAgree(Agreement):
    """One cached value, and the lock of its name; the tokens of every turn are kept, since any may write late."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.turns: list[tuple[str, Turns]] = []

    def ask(self, operation: op.Operation[Any]) -> Turns | None:
        """Ask both; they agree. Return the tokens of a turn that both gave out."""
        answers = {store: store.execute(operation) for store in (self.memory, self.redis)}
        tokens: Turns = {}
        for store, answer in answers.items():
            acquired = answer.acquired if isinstance(answer, MayLoad) else answer
            if isinstance(acquired, Acquired):
                tokens[store] = acquired.fencing_token
        shown = [
            (timeless(answer.acquired), answer.old) if isinstance(answer, MayLoad) else timeless(answer)
            for answer in answers.values()
        ]
        assert shown[0] == shown[1], operation
        self.agree_on(op.RenewLock(self.name, "nobody", 1))  # and time passes
        return tokens or None

    @rule(holder=HOLDERS, ttl_ms=LIVES, hold_off_ms=LIVES)
    def look(self, holder: str, ttl_ms: int, hold_off_ms: int) -> None:
        tokens = self.ask(op.ReadOrAcquire(self.name, holder, ttl_ms, hold_off_ms))
        if tokens:
            self.turns.append((holder, tokens))

    @rule(holder=HOLDERS, ttl_ms=LIVES)
    def acquire(self, holder: str, ttl_ms: int) -> None:
        tokens = self.ask(op.AcquireLock(self.name, holder, ttl_ms))
        if tokens:
            self.turns.append((holder, tokens))

    @rule(back=st.integers(min_value=1, max_value=4), value=VALUES, ttl_ms=LIVES, refresh_in_ms=REFRESHES)
    def write(self, back: int, value: Cached, ttl_ms: int, refresh_in_ms: int | None) -> None:
        if len(self.turns) < back:
            return
        holder, tokens = self.turns[-back]
        answers = [
            store.execute(op.WriteCached(self.name, holder, tokens[store], value, ttl_ms, refresh_in_ms))
            for store in (self.memory, self.redis)
        ]
        assert answers[0] == answers[1]
        self.agree_on(op.RenewLock(self.name, "nobody", 1))

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self.agree_on(op.ReleaseLock(self.name, holder))

    @rule()
    def forget(self) -> None:
        self.agree_on(op.ForgetCached(self.name))

    @invariant()
    def they_keep_the_same(self) -> None:
        assert self.memory.execute(op.ReadCached(self.name)) == self.redis.execute(op.ReadCached(self.name))


def test_a_cached_value_on_redis_is_as_the_model_has_it(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(CachesAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class
