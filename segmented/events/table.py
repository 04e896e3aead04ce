"""The metrics: what each counts, its unit and its labels. The exporters and the page of metrics are made from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from segmented.models.shards import SHARD_MARK

Labels = tuple[str, ...]
VALUES_MAX: Final = 100
"""Values of a label that come from outside, such as skus; further ones count as `OTHER`."""
OTHER: Final = "(other)"
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the buckets of a duration."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, or a histogram of durations in seconds."""

    kind: Literal["counter", "histogram"]
    unit: str
    """By the conventions of OpenTelemetry: `s`, or what is counted in braces."""
    text: str
    labels: Labels = ()


def _counter(what: str, text: str, *labels: str) -> Metric:
    return Metric("counter", f"{{{what}}}", text, labels)


def _histogram(text: str, *labels: str) -> Metric:
    return Metric("histogram", "s", text, labels)


METRICS: Final = {
    "segmented.order.answers": _counter(
        "order",
        "Answers to orders, by outcome; a refused or failed one has a reason, and a repeat changed nothing.",
        "sku",
        "outcome",
        "reason",
    ),
    "segmented.order.units": _counter("unit", "Units of the orders that changed, by outcome.", "sku", "outcome"),
    "segmented.lock.acquisitions": _counter("lease", "Leases of locks and segments that were acquired.", "kind"),
    "segmented.lock.wait.duration": _histogram(
        "Time that a caller waited for a lock or a segment that was not free at once.", "kind", "outcome"
    ),
    "segmented.lock.held": Metric(
        "counter",
        "s",
        "Time for which this process has held leases, from grant to release; by the second: how many.",
        ("kind",),
    ),
    "segmented.lease.losses": _counter("lease", "Leases that ended before their holder released them.", "kind"),
    "segmented.outbox.swept": _counter(
        "order", "Orders that a sweep found in the outbox: republished, or buried as dead letters.", "sku", "finding"
    ),
    "segmented.outbox.put_off": _counter("order", "Orders that a worker put off, to try again later.", "sku"),
    "segmented.dead_letters": _counter("letter", "Orders and messages that were given up.", "kind"),
    "segmented.pool.freezes": _counter("pool", "Pools that this process found to have lost changes.", "sku"),
    "segmented.pool.differences": _counter("difference", "Differences that audits of workers found.", "sku"),
    "segmented.once.messages": _counter(
        "message", "Messages of deduplicated tasks and calls, by what was decided about them.", "task", "decision"
    ),
    "segmented.store.connections": _counter("connection", "Connections to the stock server that were opened."),
    "segmented.store.retries": _counter("attempt", "Requests that were sent again after a connection failed."),
    "segmented.store.failures": _counter("operation", "Operations that failed, by the name of the error.", "error"),
}
"""Each metric by its OpenTelemetry name. Prometheus has underscores for the dots, and its own suffixes."""


def prometheus_name(name: str) -> str:
    """Return the name under which Prometheus shows a metric: with its unit, and `_total` for a counter."""
    metric = METRICS[name]
    unit, kind = "_seconds" * (metric.unit == "s"), "_total" * (metric.kind == "counter")
    return name.replace(".", "_") + unit + kind


class Bounded(dict[str, str]):
    """The values of a label that come from outside: up to `VALUES_MAX` are themselves, further ones are `OTHER`."""

    def __missing__(self, value: str) -> str:
        """Accept one more value, or return `OTHER`."""
        if len(self) >= VALUES_MAX:
            return OTHER
        self[value] = value
        return value


SKUS: Final = Bounded()
TASKS: Final = Bounded()


def sku_label(sku: str) -> str:
    """Return the label of a pool, which its shards share."""
    return SKUS[sku.partition(SHARD_MARK)[0]]
