"""What happens in this process, for metrics: one small protocol. Nothing listens, and nothing is counted, by default.

    from segmented import events

    events.install(events.PrometheusSink())  # before the first store is created

A store that is created afterwards reports the answers that it gets (`segmented.stores.observed`); one that was created
before is unchanged, so that a store without a sink has not one instruction more. What happens rarely is counted where
it happens, by `count` and `observe`, which do nothing without a sink.

No name of an order, a customer, a lock, a holder or a server is a label: labels have few values, and no secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.events.hub import HUB, METRICS as METRICS, Metric as Metric, Sink as Sink
from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.events.hub import Labels as Labels
    from segmented.events.opentelemetry import OpenTelemetrySink as OpenTelemetrySink
    from segmented.events.prometheus import PrometheusSink as PrometheusSink

LATE: Final = from_modules(
    {"segmented.events.opentelemetry": "OpenTelemetrySink", "segmented.events.prometheus": "PrometheusSink"}
)


def install(*sinks: Sink) -> None:
    """Send events to these sinks from now on, and to no other. Stores report to them if they are created afterwards."""
    HUB.install(sinks)


def is_on() -> bool:
    """Return whether a sink is installed, so that a new store reports its answers."""
    return bool(HUB.sinks)


def count(name: str, amount: float = 1, labels: Labels = ()) -> None:
    """Count something that happened."""
    HUB.append((HUB.count, name, amount, labels))


def observe(name: str, seconds: float, labels: Labels) -> None:
    """Note a duration."""
    HUB.append((HUB.observe, name, seconds, labels))


def flush() -> None:
    """Deliver what has happened until now to the sinks, which otherwise get it within half a second."""
    HUB.flush()


if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, _ = late(__name__, LATE)
    __all__ = ["OpenTelemetrySink", "PrometheusSink", "Sink", "count", "flush", "install", "observe"]
