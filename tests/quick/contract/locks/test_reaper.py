"""The reaper frees what the dead hold and never what lives, whatever clock its process has, and beside any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.dedup.operator import list_plan
from segmented.dedup.reaper import ReapCount, async_reap, reap, reap_plan
from segmented.errors import InvalidInput
from segmented.models.dedup import OutcomeKept, Reaped, RecordName, RunBegun
from segmented.once_keys import once_partition
from segmented.stores.memory import AsyncMemoryStore, MemoryModel, MemoryStore
from tests.fixtures.stores import make_side

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


DAY_MS: Final = 86_400_000
LONG_MS: Final = 60_000
YEAR: Final = 365 * 24 * 3600.0


class Keys:
    """Keys of one namespace."""

    def __init__(self, side: Side) -> None:
        self.side, self.namespace = side, side.name("reaped")

    def begin(self, key: str, ttl_ms: int, **options: Any) -> object:  # noqa: ANN401  # those of the operation
        record = RecordName(self.namespace, key)
        return self.side.execute(op.BeginRun(record, f"m-{key}", "h", "", "t", ttl_ms, DAY_MS, **options))

    def claim(self, key: str, wait_ms: int) -> object:
        return self.side.execute(op.ClaimKey(RecordName(self.namespace, key), f"m-{key}", "", "t", wait_ms, DAY_MS))

    def reap(self, **options: Any) -> ReapCount:  # noqa: ANN401  # those of the plan
        return self.side.run(reap_plan(self.namespace, **options))

    def held(self) -> dict[str, str]:
        return {held.key: held.state for held in self.side.run(list_plan(self.namespace)).keys}


@pytest.fixture
def keys(side: Side) -> Keys:
    return Keys(side)


def test_what_lapsed_is_freed_and_what_lives_is_not(keys: Keys) -> None:
    for number in range(40):
        keys.begin(f"dead-{number}", 1)
        keys.begin(f"living-{number}", LONG_MS)
    keys.claim("late", 1)
    keys.claim("waits", LONG_MS)
    keys.begin("doubtful", 1, on_lapse="unknown")
    keys.begin("copy", 1, run_on="message")
    keys.side.pass_time(0.01)
    assert keys.held()["dead-7"] == "lapsed"
    assert keys.reap() == ReapCount(freed=42, unknown=1)
    living = {f"living-{number}": "running" for number in range(40)}
    assert keys.held() == living | {"waits": "waiting", "doubtful": "unknown"}
    assert keys.reap() == ReapCount()


def test_what_was_renewed_between_the_look_and_the_step_is_held(keys: Keys) -> None:
    keys.begin("run", LONG_MS)
    keys.claim("seat", LONG_MS)
    keys.begin("doubtful", LONG_MS, on_lapse="unknown")
    asked = [op.ReapKey(RecordName(keys.namespace, key), DAY_MS) for key in ("run", "seat", "doubtful")]
    assert [keys.side.execute(one) for one in asked] == [Reaped("held")] * 3
    assert keys.held() == {"run": "running", "seat": "waiting", "doubtful": "running"}


def test_what_is_known_of_earlier_messages_is_remembered_no_shorter(keys: Keys) -> None:
    token = getattr(keys.begin("k", LONG_MS), "fencing_token", 0)
    record = RecordName(keys.namespace, "k")
    keys.side.execute(op.FinishRun(record, "m-k", "h", token, "value", "1", 0, DAY_MS))
    keys.side.execute(op.BeginRun(record, "other", "h", "", "t", 1, DAY_MS))
    keys.side.pass_time(0.01)
    assert keys.side.execute(op.ReapKey(record, 1)) == Reaped("freed")
    keys.side.pass_time(0.02)
    assert isinstance(keys.begin("k", LONG_MS), OutcomeKept)


def test_a_key_that_was_freed_is_run_by_the_next(keys: Keys) -> None:
    keys.begin("k", 1)
    keys.side.pass_time(0.01)
    keys.reap()
    assert isinstance(keys.begin("k", LONG_MS), RunBegun)


def test_a_pass_looks_at_no_more_than_its_limit(keys: Keys) -> None:
    for number in range(30):
        keys.begin(f"k{number}", 1)
    keys.side.pass_time(0.05)
    assert [keys.reap(limit=20).looked_at, keys.reap(limit=20).looked_at] == [20, 10]


def test_a_partition_with_more_than_a_page_is_gone_through_to_its_end(keys: Keys) -> None:
    same = [key for key in map(str, range(20_000)) if once_partition(key) == 3][:250]
    for key in same:
        keys.begin(key, 1)
    keys.side.pass_time(0.05)
    assert keys.reap() == ReapCount(freed=250)
    assert keys.held() == {}


def test_reapers_at_once_free_each_claim_and_no_living_one(keys: Keys) -> None:
    for number in range(100):
        keys.begin(f"dead-{number}", 1)
        keys.begin(f"living-{number}", LONG_MS)
    keys.side.pass_time(0.05)
    started = [keys.side.start(keys.reap) for _ in range(8)]
    counts = [one.result(30) for one in started]
    assert sum(count.freed for count in counts) == 100
    assert len(keys.held()) == 100
    assert set(keys.held().values()) == {"running"}


@pytest.mark.parametrize(("start", "jump"), [(0.0, 0.0), (0.0, YEAR), (50 * YEAR, 50 * YEAR)])
def test_a_clock_of_the_reapers_process_that_jumps_changes_nothing(
    plain_redis_side: Side, valkey_url: str, start: float, jump: float
) -> None:
    keys = Keys(plain_redis_side)
    keys.begin("living", LONG_MS)
    keys.begin("dead", 1)
    keys.side.pass_time(0.01)
    clock = ManualClock(start)
    jumping = make_side(plain_redis_side.flavour, clock, valkey_url)
    try:
        clock.advance(jump)
        assert jumping.run(reap_plan(keys.namespace)) == ReapCount(freed=1)
    finally:
        jumping.close()
    assert keys.held() == {"living": "running"}


def test_a_limit_that_is_none_is_refused(keys: Keys) -> None:
    wrong: list[Any] = [0, -1, True, 1.5]
    for limit in wrong:
        with pytest.raises(InvalidInput, match="give a whole number of 1 or more"):
            keys.reap(limit=limit)


def test_it_is_the_same_for_threads_and_for_asyncio() -> None:
    clock = ManualClock()
    model = MemoryModel(clock)
    store, async_store = MemoryStore(clock=clock, model=model), AsyncMemoryStore(clock=clock, model=model)
    for key in ("k1", "k2"):
        store.execute(op.ClaimKey(RecordName("shop", key), "m", "", "task", wait_ms=1_000, remember_ms=60_000))
    clock.advance(2)
    assert reap(store, "shop", limit=1) == ReapCount(freed=1)
    assert asyncio.run(async_reap(async_store, "shop")) == ReapCount(freed=1)
    assert reap(store, "shop") == ReapCount()
