"""The app of a worker that writes its spans as lines of JSON to the file that the variable TRACED_SPANS names."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from segmented.celery import make_app
from segmented.dedup.celery import Once, unique

provider = TracerProvider()
spans = Path(os.environ["TRACED_SPANS"]).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  # as long as the process
provider.add_span_processor(
    SimpleSpanProcessor(ConsoleSpanExporter(out=spans, formatter=lambda span: span.to_json(indent=None) + "\n"))
)
trace.set_tracer_provider(provider)
app = make_app("traced")
app.conf.once_url = os.environ["SEGMENTED_URL"]


@app.task(base=Once, once=unique("{key}", keep=60), name="charge")
def charge(key: str) -> str:
    """Take the money for a key."""
    return key
