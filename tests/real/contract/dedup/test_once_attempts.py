"""An attempt of a task that is retried."""

from contextlib import closing
from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.states import RETRY

from segmented import MemoryStore
from segmented.dedup.celery import Once
from segmented.testing import ManualClock
from tests.support.contract.parking import wait_until


def new_app(store: MemoryStore | None = None, *, name: str = "shop", is_eager: bool = False) -> Celery:
    app = Celery(name, broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(once_store=store or MemoryStore(), task_always_eager=is_eager)
    return app


def test_an_attempt_keeps_its_key_until_it_expires() -> None:
    clock = ManualClock()
    with closing(new_app(MemoryStore(clock=clock))) as app:

        def tried(task: Any, order_id: str) -> None:  # noqa: ANN401, ARG001  # a task; the key
            raise task.retry(countdown=5)

        trying: Any = app.task(base=Once, once="{order_id}", bind=True, name="shop.trying", expires=10.0)(tried)
        first = trying.delay("o-9")
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            wait_until(lambda: first.state == RETRY)
        clock.advance(9.0)
        assert trying.apply_async(("o-9",), expires=1) == first
        clock.advance(1.1)
        assert trying.delay("o-9") != first
