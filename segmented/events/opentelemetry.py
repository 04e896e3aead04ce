"""Events as metrics of OpenTelemetry, by the meter provider that the program, or `opentelemetry-instrument`, has set.

This package needs OpenTelemetry's API alone. The SDK exports in a thread of its own: an endpoint that does not answer
delays no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import metrics

from segmented.events.hub import METRICS, SECONDS, Labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider


class OpenTelemetrySink:
    """Counts events with instruments of a meter called `segmented`."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Create the instruments, by default those of the global meter provider, which may be set later."""
        meter = metrics.get_meter("segmented", meter_provider=meter_provider)
        self._add: dict[str, Callable[[float, dict[str, str]], None]] = {}
        for name, metric in METRICS.items():
            if metric.kind == "counter":
                self._add[name] = meter.create_counter(name, metric.unit, metric.text).add
            else:
                histogram = meter.create_histogram(
                    name, metric.unit, metric.text, explicit_bucket_boundaries_advisory=SECONDS
                )
                self._add[name] = histogram.record
        self._attributes: dict[tuple[str, Labels], dict[str, Any]] = {}

    def __repr__(self) -> str:
        return f"<OpenTelemetrySink of {len(self._add)} instruments>"

    def count(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter, or record a duration."""
        attributes = self._attributes.get((name, labels))
        if attributes is None:
            named = zip(METRICS[name].labels, labels, strict=True)
            attributes = {f"segmented.{label}": value for label, value in named if value}
            self._attributes[name, labels] = attributes
        self._add[name](amount, attributes)

    observe = count
