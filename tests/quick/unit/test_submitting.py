"""Submitting without a server: terms that cannot be, sizes of envelopes, what a handle knows, a sweep's publisher."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from segmented import MemoryStore, protocol as op
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models import Busy, Closed, Decided, LimitReached, Order, OrderRecord, Reserved, Settled, SoldOut
from segmented.models.submitted import Dead, Queued, Submitted
from segmented.orders import TryLater, WorkTerms
from segmented.stock import Pool
from segmented.stock.handle_state import HandleState
from segmented.stock.order_handle import OrderHandle
from segmented.stock.outbox import Outbox, SweepReport, SweepTerms, envelopes_of, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SETTLED = Settled("a", "confirmed", 2, 0, None, 7, replay=True)
DECIDED = Decided("a", "confirmed", 2, 0, None, 7, replay=True)
RECORD = OrderRecord("a", "confirmed", 2, 0, ((0, 2),), None, None, None, None, 7, 2)
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


def test_the_defaults_can_be() -> None:
    assert (Outbox().publish_after_ms, Outbox().decides, Outbox().publisher) == (5_000, "at acceptance", None)
    assert (SweepTerms().begun_max, WorkTerms().begun_max) == (5, 5)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_time_that_is_none_is_not_waited(timeout: Any) -> None:  # noqa: ANN401  # what may be given
    sentence = rf"^timeout of {timeout!r} s is not a waiting time: give 0 or more, or None for no limit$"
    with pytest.raises(InvalidInput, match=sentence):
        OrderHandle(MemoryStore(), "mug", "a").wait(timeout)


# --- envelopes ---


def test_orders_that_were_begun_before_go_out_in_smaller_envelopes() -> None:
    due = [(f"n{number}", 0) for number in range(150)] + [(f"o{number}", 1) for number in range(12)]
    due += [("p", 2), ("q", 3), ("r", 99)]
    sizes = [len(envelope) for envelope in envelopes_of(due)]
    assert sizes == [100, 50, 10, 2, 1, 1, 1]
    assert [len(envelope) for envelope in envelopes_of(due[-5:], 5)] == [2, 1, 1, 1]
    assert [len(envelope) for envelope in envelopes_of(due[:7], 5)] == [5, 2]
    assert envelopes_of([]) == []


@given(due=st.lists(st.tuples(st.text(max_size=5), st.integers(0, 7)), unique_by=lambda one: one[0]))
def test_every_order_is_in_one_envelope_with_those_begun_as_often(due: list[tuple[str, int]]) -> None:
    found = envelopes_of(due, 4)
    assert sorted(order_id for envelope in found for order_id in envelope) == sorted(order_id for order_id, _ in due)
    begun = dict(due)
    for envelope in found:
        assert len({min(begun[order_id], 2) for order_id in envelope}) == 1
        assert len(envelope) <= (4, 4, 1)[min(begun[envelope[0]], 2)]


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


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (Submitted("a", "queued", None, 1, 0, "", is_in_outbox=True), None),
        (Submitted("a", "confirmed", RECORD, 0, 0, "", is_in_outbox=False), SETTLED),
        (Submitted("a", "dead", None, 5, 2, "it rained", is_in_outbox=False), Dead("a", 5)),
        (Submitted("a", "unknown", None, 0, 0, "", is_in_outbox=False), None),
    ],
    ids=lambda value: getattr(value, "state", None),
)
def test_a_handle_notes_what_is_found(found: Submitted, outcome: object) -> None:
    handle = HandleState("mug", "a", Queued("a", replay=False))
    handle.note(found)
    assert (handle.state, handle.outcome) == (found.state, outcome)


def test_what_was_refused_at_the_door_stays_refused_where_nothing_is_kept_of_it() -> None:
    refusal = SoldOut("a", 2, 1, 0, 3)
    handle = HandleState("mug", "a", refusal)
    handle.note(Submitted("a", "unknown", None, 0, 0, "", is_in_outbox=False))
    assert (handle.state, handle.outcome) == ("refused", refusal)


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
            message = "the broker is away"
            raise StoreUnavailable(message)
        self.sent.append(tuple(order_ids))

    def room(self) -> int | None:
        if self.is_away:
            message = "the broker is away"
            raise StoreUnavailable(message)
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


def test_a_sweep_publishes_all_that_is_due_in_envelopes(store: MemoryStore) -> None:
    publisher = RecordingPublisher()
    assert swept(store, publisher) == SweepReport(250, 3, (), is_more_due=False)
    assert [len(envelope) for envelope in publisher.sent] == [100, 100, 50]
    assert swept(store, publisher) == SweepReport(0, 0, (), is_more_due=False)


def test_a_sweep_publishes_no_more_than_there_is_room_for(store: MemoryStore) -> None:
    publisher = RecordingPublisher(rooms=[2])
    assert swept(store, publisher) == SweepReport(200, 2, (), is_more_due=True)
    assert swept(store, RecordingPublisher()) == SweepReport(50, 1, (), is_more_due=False)


def test_without_room_nothing_is_put_off(store: MemoryStore) -> None:
    assert swept(store, RecordingPublisher(rooms=[0])) == SweepReport(0, 0, (), is_more_due=True)
    assert swept(store, RecordingPublisher()).published == 250


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


def test_a_sweep_ends_after_so_many_pages(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.stock.outbox.SWEEP_PAGE", 100)
    assert swept(store, RecordingPublisher(), pages_max=2) == SweepReport(200, 2, (), is_more_due=True)


def test_a_sweep_names_what_every_page_of_it_has_buried(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.stock.outbox.SWEEP_PAGE", 100)
    order_ids = tuple(f"o{number:03}" for number in range(250))
    for first in range(0, 250, 100):
        store.execute(op.TakeOrders("mug", order_ids[first : first + 100], f"w{first}", 1, 600_000, 1, 5))
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(1.0)
    report = sweep(store.execute, "mug", RecordingPublisher(), terms=SweepTerms(begun_max=1))
    assert sorted(report.buried) == sorted(order_ids)


class HangingStore(MemoryStore):
    """A store that answers once and then stands still until each deadline."""

    answers = 1

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # as the store does
        if isinstance(operation, op.ReadSubmitted):
            self.answers -= 1
            if self.answers < 0:
                threading.Event().wait(deadline - self.clock.now())
                raise StoreUnavailable
        return super().execute(operation, deadline=deadline)
