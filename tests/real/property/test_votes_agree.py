"""Redis answers as the model does about votes and values under tokens, whatever is asked in whatever order."""

from __future__ import annotations

from functools import partial

from hypothesis import settings, strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.models import HeldBy
from segmented.stores.redis import RedisStore
from tests.real.property.test_stores_agree import LIVES, SETTINGS, Agreement, timeless

HOLDERS = st.sampled_from(["h1", "h2", "h3"])
ROUNDS = st.integers(0, 4)


class VotesAgree(Agreement):
    """One server's vote for one name."""

    @rule(holder=HOLDERS, ttl_ms=LIVES, number=ROUNDS)
    def acquire(self, holder: str, ttl_ms: int, number: int) -> None:
        self.agree_on_all_but_marks(op.AcquireVote(self.name, holder, ttl_ms, number))

    @rule(holder=HOLDERS, ttl_ms=LIVES, reestablish=st.booleans())
    def renew(self, holder: str, ttl_ms: int, *, reestablish: bool) -> None:
        self.agree_on(op.RenewVote(self.name, holder, ttl_ms, reestablish))

    @rule(holder=HOLDERS, number=ROUNDS | st.just(op.ReleaseVote("", "").round), quiet=st.booleans())
    def release(self, holder: str, number: int, *, quiet: bool) -> None:
        self.agree_on(op.ReleaseVote(self.name, holder, number, quiet))

    def agree_on_all_but_marks(self, operation: op.AcquireVote) -> None:
        found, expected = (store.execute(operation) for store in (self.redis, self.memory))
        assert isinstance(found, HeldBy) is isinstance(expected, HeldBy)
        assert isinstance(found, HeldBy) or timeless(found) == timeless(expected)
        self.agree_on(op.RenewVote(self.name, "nobody", 1))


class ValuesAgree(Agreement):
    """One value written under tokens."""

    @rule(token=st.integers(1, 5) | st.integers(2**53 - 2, 2**53 + 2) | st.just(2**63 - 1))
    def write(self, token: int) -> None:
        self.agree_on(op.FencedSet(self.name, "x", token))


def test_votes_on_redis_are_those_of_the_model(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(VotesAgree, store), settings=settings(SETTINGS, max_examples=6))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_values_under_tokens_on_redis_are_those_of_the_model(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        run_state_machine_as_test(partial(ValuesAgree, store), settings=settings(SETTINGS, max_examples=5))  # type: ignore[arg-type]  # it calls it, as it would a class
