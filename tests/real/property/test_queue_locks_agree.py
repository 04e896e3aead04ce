"""Reentrant and fair locks on Redis answer as their models do, whatever is asked in whatever order.

Nobody listens in these runs, so the server counts nobody as gone, as the model never does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from hypothesis import settings, strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.models import Acquired, Held
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LAPSED_AT_ONCE, LIVES, LONG_MS, SETTINGS, Agreement, timeless

if TYPE_CHECKING:
    from segmented.stores.memory import MemoryStore

OWNERS = st.sampled_from(["a", "b"])
ENTRIES = st.sampled_from(["1", "2", "3"])
WAITERS = st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1"])
"""Holder ids; the first letter names the process."""
LOOK_MS: Final = 2 * LONG_MS
"""Longer than any lease, so that an answer tells who minds the holder's end."""
TIMES: Final = {
    (presence, claim): op.FairTimes(presence, LOOK_MS, claim)
    for presence in (LAPSED_AT_ONCE, LONG_MS)
    for claim in (LAPSED_AT_ONCE, LONG_MS)
}


class TokensAgree(Agreement):
    """Of the tokens, which are the servers' times, growth is compared, and when they stay as they are."""

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.tokens: dict[MemoryStore | RedisStore, int] = {self.memory: 0, self.redis: 0}

    def agree_on_acquire(self, operation: op.Operation[Acquired | Held]) -> None:
        """Compare answers, and which of them carry a token that was not there before."""
        answers = {store: store.execute(operation) for store in self.tokens}
        assert timeless(answers[self.redis]) == timeless(answers[self.memory]), operation
        assert len({isinstance(one, Held) and one.free_in_ms == LOOK_MS for one in answers.values()}) == 1, operation
        grown = set()
        for store, answer in answers.items():
            if isinstance(answer, Acquired):
                assert answer.fencing_token >= self.tokens[store]
                grown.add(answer.fencing_token > self.tokens[store])
                self.tokens[store] = answer.fencing_token
        assert len(grown) <= 1, operation
        self.agree_on(op.RenewLock(f"{self.name}-other", "nobody", 1))  # time passes


class ReentrantLocksAgree(TokensAgree):
    """One reentrant lock."""

    @rule(owner=OWNERS, entry=ENTRIES, ttl_ms=LIVES, only_again=st.booleans())
    def acquire(self, owner: str, entry: str, ttl_ms: int, *, only_again: bool) -> None:
        self.agree_on_acquire(op.AcquireReentrant(self.name, owner, f"{owner}{entry}", ttl_ms, only_again))

    @rule(owner=OWNERS, of=OWNERS, entry=ENTRIES, ttl_ms=LIVES)
    def renew(self, owner: str, of: str, entry: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewReentrant(self.name, owner, f"{of}{entry}", ttl_ms))

    @rule(owner=OWNERS, of=OWNERS, entry=ENTRIES)
    def release(self, owner: str, of: str, entry: str) -> None:
        self.agree_on(op.ReleaseReentrant(self.name, owner, f"{of}{entry}"))


class FairLocksAgree(TokensAgree):
    """One fair lock."""

    @rule(holder=WAITERS, ttl_ms=LIVES, times=st.sampled_from(list(TIMES.values())), waits=st.booleans())
    def acquire(self, holder: str, ttl_ms: int, times: op.FairTimes, *, waits: bool) -> None:
        self.agree_on_acquire(op.AcquireFair(self.name, holder, f"process {holder[0]}", ttl_ms, times, waits))

    @rule(holder=WAITERS, ttl_ms=LIVES)
    def wait(self, holder: str, ttl_ms: int) -> None:
        times = TIMES[LONG_MS, LAPSED_AT_ONCE]
        self.agree_on_acquire(op.AcquireFair(self.name, holder, f"process {holder[0]}", ttl_ms, times))

    @rule(holder=WAITERS, ttl_ms=LIVES)
    def renew(self, holder: str, ttl_ms: int) -> None:
        self.agree_on(op.RenewFair(self.name, holder, ttl_ms))

    @rule(holder=WAITERS, times=st.sampled_from(list(TIMES.values())))
    def release(self, holder: str, times: op.FairTimes) -> None:
        self.agree_on(op.ReleaseFair(self.name, holder, times))


def test_a_reentrant_lock_on_redis_answers_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(ReentrantLocksAgree, store), settings=SETTINGS)  # type: ignore[arg-type]  # it calls it, as it would a class


def test_a_fair_lock_on_redis_answers_as_the_model_does(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(FairLocksAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class
