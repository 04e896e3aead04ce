"""Instruments this process with the tool that `ONCE_TOOL` names, and notes what it would send in `ONCE_TRACES`.

Named in Celery's setting `imports`, so that workers and publishers of `once_app` have it.
"""

from __future__ import annotations

import os
from typing import Any


def note(*words: object) -> None:
    """Write a line of one span, transaction or event."""
    file = os.open(os.environ["ONCE_TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


def _sentry() -> None:
    import sentry_sdk  # noqa: PLC0415  # one tool a process

    from segmented.dedup.celery import once_repeated  # noqa: PLC0415  # one tool a process

    class Noted(sentry_sdk.transport.Transport):  # type: ignore[misc]  # not installed where this is checked
        def capture_envelope(self, envelope: Any) -> None:  # noqa: ANN401  # sentry's own
            for item in envelope.items:
                found = item.payload.json or {}
                note(item.type, found.get("transaction"), (found.get("tags") or {}).get("once"))

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=Noted, traces_sample_rate=1.0)

    def tag(decision: str, **_: object) -> None:
        sentry_sdk.set_tag("once", decision)

    once_repeated.connect(tag, weak=False)


def _opentelemetry() -> None:
    from opentelemetry import trace  # noqa: PLC0415  # one tool a process
    from opentelemetry.instrumentation.celery import CeleryInstrumentor  # noqa: PLC0415  # one tool a process
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # one tool a process
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult  # noqa: PLC0415  # one tool a process

    class Noted(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:  # noqa: ANN401  # spans of the tool
            for span in spans:
                note("span", span.name)
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Noted()))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()


def _ddtrace() -> None:
    os.environ.update(DD_TRACE_AGENT_URL="http://127.0.0.1:9", DD_INSTRUMENTATION_TELEMETRY_ENABLED="false")
    from ddtrace import patch  # noqa: PLC0415  # one tool a process
    from ddtrace.trace import TraceFilter, tracer  # noqa: PLC0415  # one tool a process

    class Noted(TraceFilter):  # type: ignore[misc]  # not installed where this is checked
        def process_trace(self, trace: Any) -> None:  # noqa: ANN401  # spans of the tool
            for span in trace:
                note("span", span.name, span.resource)

    tracer.configure(trace_processors=[Noted()])
    patch(celery=True)


{"sentry": _sentry, "opentelemetry": _opentelemetry, "ddtrace": _ddtrace}[os.environ["ONCE_TOOL"]]()
