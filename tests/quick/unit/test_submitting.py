"""Submitted orders: handles, sweeps and the publisher."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from segmented import MemoryStore, protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models import Busy, Closed, Decided, LimitReached, Order, Reserved, Settled, ShardDirectory, SoldOut
from segmented.models.submitted import Queued
from segmented.orders import TryLater, WorkTerms
from segmented.plans import Now, Plan, Within
from segmented.protocol.wire import Call, Script
from segmented.stock import AsyncPool, AsyncShardedPool, Pool, async_find_pool
from segmented.stock.order_handle import HandleState
from segmented.stock.outbox import Outbox, SweepReport, SweepTerms, envelopes_of, sweep
from segmented.stock.sharded.opening import is_in_shards_plan
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.redis.exchange import LOCKS_MAX, Seen

SETTLED = Settled("a", "confirmed", 2, 0, None, 7, replay=True)
DECIDED = Decided("a", "confirmed", 2, 0, None, 7, replay=True)
LEASE = "is not a duration: give between 0.001 and 9007199254740 s"


# --- what cannot be ---


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Outbox(decides="later"),  # type: ignore[arg-type]  # as a caller may
            "decides='later' is not one of 'at acceptance', 'in the worker'",
        ),
        (lambda: Outbox(publish_after=0), f"publish_after of 0 s {LEASE}"),
        (lambda: Outbox(publish_after=float("nan")), f"publish_after of nan s {LEASE}"),
        (lambda: SweepTerms(base=0), f"base of 0 s {LEASE}"),
        (lambda: SweepTerms(most=float("inf")), f"most of inf s {LEASE}"),
        (lambda: SweepTerms(hold=-1.0), f"hold of -1.0 s {LEASE}"),
        (lambda: SweepTerms(base=90.0), "most of 60 s is shorter than base of 90 s, from which it doubles"),
        (lambda: SweepTerms(begun_max=0), "begun_max=0 must be a whole number between 1 and 1,000"),
        (lambda: SweepTerms(begun_max=True), "begun_max=True must be a whole number between 1 and 1,000"),
        (lambda: WorkTerms(ttl=0), f"ttl of 0 s {LEASE}"),
        (lambda: WorkTerms(work=float("nan")), f"work of nan s {LEASE}"),
        (lambda: WorkTerms(begun_max=1_001), "begun_max=1001 must be a whole number between 1 and 1,000"),
        (lambda: WorkTerms(begun_max=2.0), "begun_max=2.0 must be a whole number between 1 and 1,000"),  # type: ignore[arg-type]  # as a caller may
        (
            lambda: WorkTerms(hold=3.0),
            "hold=3 s is shorter than ttl=5 s or work=5 s",
        ),
        (
            lambda: WorkTerms(hold=9.0, work=10.0),
            "hold=9 s is shorter than ttl=5 s or work=10 s",
        ),
        (
            lambda: WorkTerms(segment_timeout=-1.0),
            "timeout of -1.0 s is not a waiting time: give 0 or more, or None for no limit",
        ),
        (lambda: TryLater("the bank is closed", seconds=0), f"seconds of 0 s {LEASE}"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert str(refused.value) == sentence


# --- envelopes ---


def test_orders_that_were_begun_before_go_out_in_smaller_envelopes() -> None:
    due = [(f"n{number}", 0) for number in range(150)] + [(f"o{number}", 1) for number in range(12)]
    due += [("p", 2), ("q", 3), ("r", 99)]
    sizes = [len(envelope) for envelope in envelopes_of(due)]
    assert sizes == [100, 50, 10, 2, 1, 1, 1]
    assert [len(envelope) for envelope in envelopes_of(due[-5:], 5)] == [2, 1, 1, 1]
    assert [len(envelope) for envelope in envelopes_of(due[:7], 5)] == [5, 2]
    assert envelopes_of([]) == []


# --- what a handle knows ---


@pytest.mark.parametrize(
    ("accepted", "state", "is_outcome"),
    [
        (None, "unread", False),
        (Queued("a", replay=False), "queued", False),
        (Reserved("a", 2, 0, ((0, 2),), 1, 2, replay=False), "reserved", False),
        (Busy("a", 1, 0), "refused", True),
        (DECIDED, "confirmed", True),
        (SoldOut("a", 2, 1, 0, 3), "refused", True),
        (Closed("a"), "refused", True),
        (LimitReached("a", 2, "ann", limit=1, taken=1), "refused", True),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bool | str) else None,
)
def test_a_handle_says_what_was_answered(accepted: Any, state: str, *, is_outcome: bool) -> None:  # noqa: ANN401  # any answer
    handle = HandleState("mug", "a", accepted)
    assert handle.state == state
    found = SETTLED if accepted is DECIDED else accepted  # it is sold, so its handle has a good outcome
    assert handle.outcome == (found if is_outcome else None)
    assert repr(handle) == f"HandleState('mug', 'a', {state})"


# --- a sweep and its publisher ---


@dataclass
class RecordingPublisher:
    """A publisher that keeps what it sends, with room and failures as told."""

    rooms: list[int | None] = field(default_factory=lambda: [None])
    sent: list[tuple[str, ...]] = field(default_factory=list)
    fails_at: int | None = None
    is_away: bool = False

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        """Sweeps do not."""

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        assert sku == "mug"
        if len(self.sent) == self.fails_at:
            raise StoreUnavailable("the broker is away")
        self.sent.append(tuple(order_ids))

    def room(self) -> int | None:
        if self.is_away:
            raise StoreUnavailable("the broker is away")
        return self.rooms.pop(0) if len(self.rooms) > 1 else self.rooms[0]


@pytest.fixture
def store() -> MemoryStore:
    """250 orders that are due."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "mug", outbox=Outbox(publish_after=0.001))
    pool.open(stock=300, segments=3)
    pool.submit_many(Order(f"o{number:03}", 1) for number in range(250))
    clock.advance(1.0)
    return store


def swept(store: MemoryStore, publisher: RecordingPublisher, **options: Any) -> SweepReport:  # noqa: ANN401  # any option of it
    return sweep(store.execute, "mug", publisher, terms=SweepTerms(), **options)


def test_a_sweep_publishes_no_more_than_there_is_room_for(store: MemoryStore) -> None:
    publisher = RecordingPublisher(rooms=[2])
    assert swept(store, publisher) == SweepReport(200, 2, (), is_more_due=True)
    assert swept(store, RecordingPublisher()) == SweepReport(50, 1, (), is_more_due=False)


def test_a_sweep_ends_where_the_broker_goes_away_and_what_was_not_sent_stays(store: MemoryStore) -> None:
    publisher = RecordingPublisher(fails_at=1)
    assert swept(store, publisher) == SweepReport(100, 1, (), is_more_due=True, failure="the broker is away")
    assert store.execute(op.ReadOutbox("mug")).waiting == 250


def test_a_broker_that_hides_its_room_ends_the_sweep_before_anything_is_put_off(store: MemoryStore) -> None:
    failed = SweepReport(0, 0, (), is_more_due=True, failure="the broker is away")
    assert swept(store, RecordingPublisher(is_away=True)) == failed
    assert swept(store, RecordingPublisher()).published == 250


def test_a_sweep_that_was_overtaken_says_so(store: MemoryStore) -> None:
    swept(store, RecordingPublisher(rooms=[1, 0]), fencing_token=8)
    assert swept(store, RecordingPublisher(), fencing_token=7) == SweepReport(
        0, 0, (), is_more_due=True, is_superseded=True
    )


def test_a_sweep_names_what_every_page_of_it_has_buried(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.stock.outbox.SWEEP_PAGE", 100)
    order_ids = tuple(f"o{number:03}" for number in range(250))
    for first in range(0, 250, 100):
        store.execute(op.TakeOrders("mug", order_ids[first : first + 100], f"w{first}", 1, 600_000, 1, 5))
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(1.0)
    report = sweep(store.execute, "mug", RecordingPublisher(), terms=SweepTerms(begun_max=1))
    assert sorted(report.buried) == sorted(order_ids)


SCRIPT = Script("script", "", "", takes_seen=True)


def sent(seen: Seen, name: str) -> object:
    """Return what the store sends of a name."""
    call = Call(SCRIPT, (name,), ("argument",))
    seen.added_to(call, "?", "")
    assert call.arguments[0] == "argument"
    return str(call.arguments[1]).removesuffix("-?")


def test_answers_that_come_late_take_nothing_back() -> None:
    seen = Seen()
    seen.note("pool", (1, 7, 70), "?")
    for late in ((1, 3, 0), (1, 7, 60), (0, 0, 65)):
        seen.note("pool", late, "?")
        assert sent(seen, "pool") == "1-7-70"


def test_a_later_epoch_begins_its_numbers_and_an_earlier_one_changes_only_the_token() -> None:
    seen = Seen()
    seen.note("pool", (1, 7, 70), "?")
    seen.note("pool", (2, 3, 0), "?")
    assert sent(seen, "pool") == "2-3-70"
    seen.note("pool", (1, 9, 80), "?")
    assert sent(seen, "pool") == "2-3-80"


def test_the_locks_that_were_used_last_are_remembered_and_all_pools() -> None:
    seen = Seen()
    seen.note("pool", (1, 1, 5), "?")
    for number in range(LOCKS_MAX):
        seen.note(f"lock {number}", (0, 0, number + 1), "?")
    seen.note("lock 0", (0, 0, 1), "?")
    seen.note("one more", (0, 0, 9), "?")
    assert [sent(seen, name) for name in ("lock 0", "lock 1", "lock 2", "one more")] == [
        "0-0-1",
        "0-0-0",
        "0-0-3",
        "0-0-9",
    ]
    assert sent(seen, "pool") == "1-1-5"


def test_a_lock_s_token_never_goes_down() -> None:
    seen = Seen()
    seen.note("lock", (0, 0, 9), "?")
    seen.note("lock", (0, 0, 4), "?")
    assert sent(seen, "lock") == "0-0-9"


def test_the_server_of_the_highest_change_is_sent_along_if_it_is_another_one() -> None:
    def sent_to(server: str) -> object:
        call = Call(SCRIPT, ("pool",), ())
        seen.added_to(call, server, "")
        return call.arguments[0]

    seen = Seen()
    seen.note("pool", (1, 7, 70), "a")
    assert (sent_to("a"), sent_to("b")) == ("1-7-70-a", "1-7-70-b-a")
    seen.note("pool", (1, 6, 0), "b")  # an answer that comes late
    assert sent_to("b") == "1-7-70-b-a"
    seen.note("pool", (1, 7, 0), "b")
    assert (sent_to("a"), sent_to("b")) == ("1-7-70-a-b", "1-7-70-b")
    seen.note("pool", (1, 8, 0), "b", is_sure=False)  # of a script that only reads
    assert sent_to("a") == "1-8-70-a-b"
    seen.note("pool", (1, 9, 0), "a", is_sure=False)
    assert sent_to("b") == "1-9-70-b"
    seen.note("pool", (1, 9, 0), "?")  # from a server that tells no identity
    assert sent_to("b") == "1-9-70-b"


DIRECTORY = ShardDirectory("concert", ("a", "b"), 10, 4, 1, None, is_open=True)
Copy = ShardDirectory | StoreUnavailable | None


def outcome(plan: Plan[bool], copies: list[Copy]) -> tuple[bool, int]:
    """Run the plan over what the copies of the directory answer; return what it says, and how many were asked."""
    asked = 0
    answer: ShardDirectory | float | None = None
    failure: StoreUnavailable | None = None
    while True:
        try:
            effect = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return end.value, asked
        answer, failure = None, None
        if isinstance(effect, Now):
            answer = 0.0
            continue
        assert isinstance(effect, Within)
        assert isinstance(effect.operation, op.ReadDirectory)
        assert effect.operation.copy == asked
        said = copies[asked]
        asked += 1
        if isinstance(said, StoreUnavailable):
            failure = said
        else:
            answer = said


def test_an_async_pool_is_found_as_it_was_opened() -> None:
    async def find() -> list[type]:
        store = AsyncMemoryStore()
        await AsyncShardedPool(store, "in shards").open(stock=10, segments=4, shards=2)
        return [type(await async_find_pool(store, sku)) for sku in ("in shards", "never opened")]

    assert asyncio.run(find()) == [AsyncShardedPool, AsyncPool]


def test_one_command_is_enough_where_the_first_copy_answers() -> None:
    assert outcome(is_in_shards_plan("concert"), [DIRECTORY]) == (True, 1)
    assert outcome(is_in_shards_plan("concert"), [None]) == (False, 1)
