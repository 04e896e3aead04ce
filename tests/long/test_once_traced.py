"""Once under sentry-sdk, OpenTelemetry's Celery instrumentation and ddtrace, each in every pool and on both brokers.

Needs `pip install sentry-sdk opentelemetry-instrumentation-celery ddtrace`; a tool that is missing is skipped.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from celery import chord

from tests.support.servers.rabbitmq import RabbitServer
from tests.support.workers.once_app import build
from tests.support.workers.once_workers import OnceSide, close_app, publisher

SOON = 60
MODULES = {
    "sentry": "sentry_sdk",
    "opentelemetry": "opentelemetry.instrumentation.celery",
    "ddtrace": "ddtrace",
}
EXPECTED = {"sentry": "transaction kept answered", "opentelemetry": "span run/kept", "ddtrace": "span celery.run kept"}


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "redis":
        yield ""
        return
    server = RabbitServer(tmp_path / "rabbit")
    server.start()
    yield server.url
    server.kill()


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
@pytest.mark.parametrize("tool", MODULES)
def test_tasks_run_once_and_repeats_are_answered_under_a_tracing_tool(  # a combination of four
    tool: str,
    pool: str,
    broker: str,
    make_once: Callable[..., OnceSide],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytest.importorskip(MODULES[tool])
    traces = tmp_path / "traces"
    monkeypatch.setenv("ONCE_TOOL", tool)
    monkeypatch.setenv("ONCE_TRACES", str(traces))
    once = make_once()
    plain = replace(once.setup, broker=broker or once.setup.broker)
    traced = replace(plain, conf={**plain.conf, "imports": ("tests.support.workers.once_traced",)})
    app = build(plain)
    once.start_ready(traced, pool=pool, concurrency=2)
    for _ in range(2):  # a publisher that is traced, too: both tools put headers into its messages
        with publisher(traced, "kept", "traced") as publishing:
            assert publishing.communicate(timeout=SOON)[0]
    assert app.send_task("kept", ("traced",)).get(timeout=SOON) == ["traced", 0]
    task: dict[str, Any] = app.tasks
    assert chord([task["kept"].s("chord", 1)] * 2, task["gathered"].s())().get(timeout=SOON) == [["chord", 1]] * 2
    assert task["retried"].delay("retried", 2).get(timeout=SOON) == 2
    assert [one.get(timeout=SOON) for one in [task["serial"].delay("serial", n) for n in range(3)]] == [
        ["serial", n] for n in range(3)
    ]
    with pytest.raises(ValueError, match="no such order"):
        task["plain"].delay("failed", error="no such order").get(timeout=SOON)
    assert once.runs_by_key() == {"traced": 1, "chord": 1, "retried": 3, "serial": 3, "failed": 1, "-": 1}
    once.wait_for(lambda: EXPECTED[tool] in traces.read_text())
    close_app(app)
