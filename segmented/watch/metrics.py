"""Readings as Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from segmented.watch.reading import as_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from segmented.watch.reading import PoolReading

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS: Final = {
    "segmented_server_up": ("Whether the stock server answered the last reading: 1 or 0.", ()),
    "segmented_pool_readable": ("Whether the pool is open and can be read: 1 or 0.", ("sku",)),
    "segmented_pool_closed": ("Whether the pool was closed: 1 or 0.", ("sku",)),
    "segmented_pool_frozen": ("Whether the pool lost changes and answers no order: 1 or 0.", ("sku",)),
    "segmented_units": ("Units of the pool by state: available, reserved or confirmed.", ("sku", "state")),
    "segmented_units_stocked": ("Units ever added to the pool and not withdrawn.", ("sku",)),
    "segmented_orders": ("Orders that the pool has a record of.", ("sku",)),
    "segmented_segments": ("Segments of the pool.", ("sku",)),
    "segmented_segments_held": ("Segments whose lock is held.", ("sku",)),
    "segmented_segments_empty": ("Segments without a free unit.", ("sku",)),
    "segmented_processes_waiting": ("Processes that wait for a segment.", ("sku",)),
    "segmented_holds_overdue": ("Holds that have ended and were not swept yet.", ("sku",)),
    "segmented_holds_due_soon": ("Holds that end within 10 seconds.", ("sku",)),
    "segmented_outbox_orders": ("Submitted orders that no worker has finished.", ("sku",)),
    "segmented_outbox_due": ("Submitted orders that the next sweep publishes again.", ("sku",)),
    "segmented_outbox_due_seconds": ("How long the first order of the outbox has been due.", ("sku",)),
    "segmented_dead_orders": ("Orders that workers gave up.", ("sku",)),
}
"""Each metric, all of them gauges: what it says, and its labels."""


def exposition(readings: Sequence[PoolReading] | None) -> bytes:
    """Return the readings in Prometheus' text format; None: the stock server did not answer."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings(readings))
    return generate_latest(registry)


class _Readings:
    def __init__(self, readings: Sequence[PoolReading] | None) -> None:
        self._readings = readings

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in METRICS.items()}
        families["segmented_server_up"].add_metric((), 0 if self._readings is None else 1)
        for reading in self._readings or ():
            for name, labels, value in _samples(reading):
                families[name].add_metric((reading.sku, *labels), value)
        return families.values()


def _samples(reading: PoolReading) -> Iterator[tuple[str, tuple[str, ...], float]]:
    state, found = reading.state, as_json(reading)
    yield "segmented_pool_readable", (), int(state is not None)
    if state is None:
        return
    yield "segmented_pool_closed", (), int(state.is_closed)
    yield "segmented_pool_frozen", (), int(state.frozen is not None)
    for name in ("available", "reserved", "confirmed"):
        yield "segmented_units", (name,), found[name]
    yield "segmented_units_stocked", (), state.stocked
    yield "segmented_orders", (), state.order_count
    yield "segmented_segments", (), state.segment_count
    yield "segmented_segments_held", (), len(found["held"])
    yield "segmented_segments_empty", (), state.stock.count(0)
    yield "segmented_processes_waiting", (), found["processes_waiting"]
    yield "segmented_holds_overdue", (), found["holds_overdue"]
    yield "segmented_holds_due_soon", (), found["holds_due_soon"]
    yield "segmented_outbox_orders", (), found["outbox"]["orders"]
    yield "segmented_outbox_due", (), found["outbox"]["due"]
    yield "segmented_outbox_due_seconds", (), found["outbox"]["due_since_ms"] / 1_000
    yield "segmented_dead_orders", (), found["outbox"]["dead"]
