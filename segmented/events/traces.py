"""Trace context on the way from the program that submits an order to the worker that finishes it, by OpenTelemetry.

    from segmented.events import traces

    traces.install()  # in the programs that submit, and in the workers: SEGMENTED_EVENTS=opentelemetry does so

The message of an envelope carries the contexts (W3C traceparent) in which its orders were submitted, in a header that
workers without traces ignore. The worker's span has them as links, or as its parent if there is only one. By default
nothing is carried. The outbox keeps the context of its orders, for a sweep that publishes them again.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from segmented.process import Guard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.trace import TracerProvider

HEADER: Final = "segmented-traces"
"""Header of a message: a list of the values of `traceparent`."""
LINKS_MAX: Final = 128
"""Links of a span; OpenTelemetry keeps as many by default."""
WAITING_MAX: Final = 100_000
"""Orders whose context is remembered until their message is sent."""


class Traces:
    """The default: nothing is carried."""

    def note(self, sku: str, order_ids: Sequence[str]) -> None:
        """Remember the caller's context for these orders, which are about to be published."""

    def context(self) -> str:
        """Return the caller's context as text; "" if it is in no trace."""
        return ""

    def restore(self, sku: str, contexts: Mapping[str, str]) -> None:
        """Remember the contexts of orders, by id, that are about to be published again."""

    def headers(self, sku: str, order_ids: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002  # of those that carry
        """Return the headers of a message with these orders; None if there are none to add."""
        return None

    def here(self) -> dict[str, Any]:
        """Return the headers of a message that continues the caller's own context."""
        return {}

    def working(
        self,
        name: str,  # noqa: ARG002  # as above
        headers: Mapping[str, Any],  # noqa: ARG002  # as above
        attributes: Mapping[str, str | int],  # noqa: ARG002  # as above
    ) -> AbstractContextManager[object]:
        """Return the span of the work on a message with these headers."""
        return nullcontext()


class CarriedTraces(Traces):
    """Context is carried by OpenTelemetry's propagator of W3C trace context."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Make spans by the provider, by default the global one."""
        from opentelemetry import trace  # noqa: PLC0415  # an extra
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415  # as above

        self._trace = trace
        self._tracer = trace.get_tracer("segmented", tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator()
        self._guard = Guard()
        self._waiting: OrderedDict[tuple[str, str], str] = OrderedDict()

    def note(self, sku: str, order_ids: Sequence[str]) -> None:
        """Remember the caller's context for these orders, if it is in a trace."""
        if found := self.context():
            self.restore(sku, dict.fromkeys(order_ids, found))

    def context(self) -> str:
        """Return the caller's context as text; "" if it is in no trace."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent", "")

    def restore(self, sku: str, contexts: Mapping[str, str]) -> None:
        """Remember the contexts of orders, by id."""
        with self._guard.lock:
            self._waiting.update(((sku, order_id), found) for order_id, found in contexts.items())
            while len(self._waiting) > WAITING_MAX:
                self._waiting.popitem(last=False)

    def headers(self, sku: str, order_ids: Sequence[str]) -> dict[str, Any] | None:
        """Return the contexts of these orders, each once."""
        with self._guard.lock:
            found = {self._waiting.pop((sku, order_id), "") for order_id in order_ids} - {""}
        return {HEADER: sorted(found)[:LINKS_MAX]} if found else None

    def here(self) -> dict[str, Any]:
        """Return the caller's context, if it is in a trace."""
        found = self.context()
        return {HEADER: [found]} if found else {}

    def working(
        self, name: str, headers: Mapping[str, Any], attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[object]:
        """Return a span that is current in the block, with the carried contexts as its parent or its links."""
        carried = headers.get(HEADER)
        texts = [one for one in carried if isinstance(one, str)] if isinstance(carried, list) else []
        contexts = [self._propagator.extract({"traceparent": text}) for text in texts[:LINKS_MAX]]
        spans = [self._trace.get_current_span(context).get_span_context() for context in contexts]
        links = [self._trace.Link(span) for span in spans if span.is_valid]
        is_alone = len(links) == 1 and not self._trace.get_current_span().get_span_context().is_valid
        return self._tracer.start_as_current_span(
            name,
            context=contexts[0] if is_alone else None,
            kind=self._trace.SpanKind.CONSUMER,
            links=() if is_alone else links,
            attributes={"messaging.system": "celery", "messaging.operation.type": "process", **attributes},
        )


__all__ = ["install", "uninstall"]


class _Current:
    """The traces of this process."""

    def __init__(self) -> None:
        self.traces = Traces()


CURRENT: Final = _Current()


def install(tracer_provider: TracerProvider | None = None) -> None:
    """Carry trace context from now on, with spans of this provider or of the global one."""
    CURRENT.traces = CarriedTraces(tracer_provider)


def uninstall() -> None:
    """Carry no trace context any more."""
    CURRENT.traces = Traces()
