"""The outbox keeps the trace in which an order was submitted, so that a sweep which publishes it again continues it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from segmented import Outbox, Pool
from segmented.clock import ManualClock
from segmented.events import traces
from segmented.models.submitted import Deciding
from segmented.stock.outbox import SweepTerms, sweep
from segmented.stores.memory import MemoryStore


@dataclass
class Sent:
    """A sender that keeps the headers of each message."""

    headers: list[object] = field(default_factory=list)

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.headers.append(traces.CURRENT.traces.headers(sku, order_ids))

    def room(self) -> int | None:
        return None


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    provider = TracerProvider()
    traces.install(provider)
    yield provider.get_tracer("shop")
    traces.uninstall()


@pytest.mark.parametrize("decides", ["at acceptance", "in the worker"])
def test_an_order_that_a_sweep_publishes_continues_its_trace(tracer: Tracer, decides: Deciding) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    pool = Pool(store, "poster", outbox=Outbox(decides=decides))
    pool.open(stock=10, segments=2)
    with tracer.start_as_current_span("checkout") as span:
        pool.submit("a")
    pool.submit("untraced")
    found = span.get_span_context()
    context = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    sent = Sent()
    for _ in range(2):
        clock.advance(600.0)
        sweep(store.execute, "poster", sent, terms=SweepTerms())
    assert sent.headers == [{traces.HEADER: [context]}] * 2
    assert pool.audit().is_clean


def test_without_a_trace_nothing_is_kept() -> None:
    store = MemoryStore()
    pool = Pool(store, "poster", outbox=Outbox())
    pool.open(stock=10, segments=2)
    with TracerProvider().get_tracer("shop").start_as_current_span("checkout"):
        pool.submit("a")
    assert store.model.ask("EXISTS", "seg:{poster:0}:entries") == 0
