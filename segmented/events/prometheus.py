"""Events as metrics of prometheus-client, in any registry, and over the processes of a prefork pool.

With the variable PROMETHEUS_MULTIPROC_DIR, prometheus-client keeps each process's numbers in a file of that directory,
and one process shows their sums (`exposition`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from segmented.errors import InvalidInput
from segmented.events.hub import HUB, METRICS, SECONDS, Labels, prometheus_name


class PrometheusSink:
    """Counts events in a registry of prometheus-client."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Register the metrics, all or none. Raises InvalidInput if the registry has one of these names already."""
        self._metrics: dict[str, Counter | Histogram] = {}
        self._children: dict[tuple[str, Labels], Callable[[float], None]] = {}
        for name in METRICS:
            made = _metric(name)
            try:
                registry.register(made)
            except ValueError as error:
                for earlier in self._metrics.values():
                    registry.unregister(earlier)
                raise InvalidInput(
                    f"the registry has a metric {prometheus_name(name)!r} already: install one PrometheusSink in a "
                    "process, or give it a registry of its own"
                ) from error
            self._metrics[name] = made

    def __repr__(self) -> str:
        return f"<PrometheusSink of {len(self._metrics)} metrics>"

    def count(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter."""
        child = self._children.get((name, labels)) or self._child(name, labels)
        child(amount)

    observe = count

    def _child(self, name: str, labels: Labels) -> Callable[[float], None]:
        metric: Any = self._metrics[name]
        one = metric.labels(*labels) if labels else metric
        found: Callable[[float], None] = one.inc if isinstance(metric, Counter) else one.observe
        self._children[name, labels] = found
        return found


def _metric(name: str) -> Counter | Histogram:
    metric, called = METRICS[name], prometheus_name(name)
    if metric.kind == "counter":
        return Counter(called, metric.text, metric.labels, registry=None)
    return Histogram(called, metric.text, metric.labels, buckets=SECONDS, registry=None)


def exposition(registry: CollectorRegistry = REGISTRY) -> bytes:
    """Return the metrics of this process, or of all processes that share PROMETHEUS_MULTIPROC_DIR, as text."""
    HUB.flush()
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(registry)
    shared = CollectorRegistry()
    MultiProcessCollector(shared)  # type: ignore[no-untyped-call]  # its package has no types here
    return generate_latest(shared)
