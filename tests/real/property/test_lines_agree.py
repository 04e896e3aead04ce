"""The line of processes on Redis is the model's, whoever asks, leaves or releases in whatever order.

As in `test_lock_kinds_agree`. The times after which something is left to a process, and for how long, are ten minutes
here, so that only turns count.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from segmented import protocol as op
from segmented.keys import lock_keys, shard_keys
from segmented.models import Busy, Order
from segmented.protocol.lock.operations import LINE_TTL_MS, NEWCOMER, NEWCOMERS_MAX, WAITERS_MAX
from segmented.protocol.wire import Dialect, text
from segmented.stores.redis import RedisStore
from tests.real.property.test_lock_kinds_agree import KindsAgree
from tests.real.property.test_stores_agree import LONG_MS, SETTINGS, timeless

if TYPE_CHECKING:
    from collections.abc import Callable

PARTIES = st.sampled_from(["a", "b", "c"])
ASKING = st.sampled_from(["", NEWCOMER, "a", "b", "c", NEWCOMER + "b", NEWCOMER + "c"])
HOLDERS = st.sampled_from(["h1", "h2", "h3", "h4"])


def without_time(said: str) -> str:
    return " ".join(part for part in said.split(" ") if not part.isdigit())


class LineAgrees(KindsAgree):
    """The line of one name; compares the messages, too."""

    acquiring: Callable[[str, str, str], op.Operation[Any]]
    releasing: Callable[[str, str], op.Operation[Any]]
    leaving: Callable[[str, str], op.Operation[Any]] = op.LeaveLine

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.freed = self.channel()
        self.ears.subscribe(self.freed)

    def channel(self) -> str:
        return lock_keys(self.name).freed

    def heard(self) -> list[str]:
        """Return what was said on the server, and in the model, and that it is the same."""
        self.redis.client.publish(self.end, "end")
        found = []
        while (message := self.ears.get_message(timeout=5)) is None or text(message["channel"]) != self.end:
            if message is not None and text(message["channel"]) == self.freed:
                found.append(without_time(text(message["data"])))
        sent = [one for one in self.model.take_freed() if one == self.freed]
        notices = [without_time(getattr(one, "said", "")) for one in sent]
        assert [said if ":" in said else "" for said in found] == notices
        return []

    @rule(holder=HOLDERS, party=ASKING)
    def acquire(self, holder: str, party: str) -> None:
        self.agree_on(self.acquiring(self.name, holder, party))

    @rule(holder=HOLDERS)
    def release(self, holder: str) -> None:
        self.agree_on(self.releasing(self.name, holder))

    @rule(party=PARTIES)
    def leave(self, party: str) -> None:
        self.agree_on(self.leaving(self.name, party))

    def teardown(self) -> None:
        """All leave, and no line is left."""
        for party in "abc":
            self.agree_on(self.leaving(self.name, party))
        keys = lock_keys(self.name)
        assert (self.redis.client.exists(keys.line), self.redis.client.hget(keys.fence, "line")) == (0, None)
        super().teardown()


class LockLineAgrees(LineAgrees):
    acquiring = staticmethod(lambda name, holder, party: op.AcquireLock(name, holder, LONG_MS, party=party))
    releasing = staticmethod(op.ReleaseLock)


class ReentrantLineAgrees(LineAgrees):
    acquiring = staticmethod(
        lambda name, holder, party: op.AcquireReentrant(name, f"o{holder}", holder, LONG_MS, party=party)
    )
    releasing = staticmethod(lambda name, holder: op.ReleaseReentrant(name, f"o{holder}", holder))


class PermitLineAgrees(LineAgrees):
    acquiring = staticmethod(lambda name, holder, party: op.AcquirePermit(name, holder, LONG_MS, 2, party=party))
    releasing = staticmethod(op.ReleasePermit)


class WriteLineAgrees(LineAgrees):
    acquiring = staticmethod(
        lambda name, holder, party: (
            op.AcquireWrite(name, holder, LONG_MS, LONG_MS if party else 0, party=party)
            if holder != "h4"
            else op.AcquireRead(name, holder, LONG_MS)
        )
    )
    releasing = staticmethod(op.ReleaseReadWrite)


class PoolLineAgrees(LineAgrees):
    acquiring = staticmethod(
        lambda name, holder, party: op.Grant(
            name, Order(holder, 1), f"of {holder}", LONG_MS, LONG_MS, keep_refusal=False, party=party
        )
    )
    releasing = staticmethod(lambda name, holder: op.ReleaseGrant(name, holder, f"of {holder}"))
    leaving = op.LeavePoolLine

    def __init__(self, redis_store: RedisStore) -> None:
        super().__init__(redis_store)
        self.agree_on(op.OpenPool(self.name, 3, 2, gated=False))

    def channel(self) -> str:
        return shard_keys(self.name).freed

    def told(self, who: str, ask: Callable[[], object]) -> object:
        answer = super().told(who, ask)
        return self.known[self.memory if who == "model" else self.redis].numbered(timeless(answer))


@pytest.mark.parametrize(
    "machine", [LockLineAgrees, ReentrantLineAgrees, PermitLineAgrees, WriteLineAgrees, PoolLineAgrees]
)
def test_a_line_on_redis_is_that_of_the_model(
    valkey_url: str, machine: type[LineAgrees], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = f"{NEWCOMERS_MAX} {WAITERS_MAX} {LONG_MS} {LONG_MS} {LINE_TTL_MS}"
    monkeypatch.setattr("segmented.protocol.lock.wire.LINE", bounds)
    monkeypatch.setattr("segmented.protocol.lock.line_model.PASSED_MS", LONG_MS)
    monkeypatch.setattr("segmented.protocol.lock.line_model.LEFT_MS", LONG_MS)
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        run_state_machine_as_test(partial(machine, store), settings=settings(SETTINGS, max_examples=4))  # type: ignore[arg-type]  # it calls it, as it would a class


def test_busy_is_the_answer_of_a_pool_whose_segments_are_all_held(valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url, dialect=Dialect.SCRIPT) as store:
        both = PoolLineAgrees(store)
        for holder in ("h1", "h2"):
            both.acquire(holder, "")
        both.acquire("h3", "a")
        both.acquire("h4", "b")
        assert isinstance(store.execute(both.acquiring(both.name, "h3", "a")), Busy)
        both.release("h1")
        both.leave("a")
        both.leave("a")
        both.acquire("h4", "b")
        both.teardown()
