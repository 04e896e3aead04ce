"""What a task's deduplication makes of unusual moments: eager tasks over a store in memory, no server."""

from __future__ import annotations

from contextlib import closing
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.exceptions import Ignore

from segmented.dedup.celery import Once, serial, unique
from segmented.dedup.celery.message import OnceHeader
from segmented.models.dedup import RecordName
from segmented.protocol import BeginRun
from segmented.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def app() -> Iterator[Celery]:
    with closing(Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)) as app:
        app.conf.update(task_always_eager=True, task_store_eager_result=True, once_store=MemoryStore())
        yield app


def same(order: str) -> str:
    return order


def test_threads_that_meet_a_task_make_one_plan(app: Celery) -> None:
    task: Any = app.task(base=Once, once="{order}", name="cold", shared=False)(same)  # made by the first that asks
    together, plans = Barrier(8), []

    def meet() -> None:
        together.wait(30)
        plans.append(task.once_plan)

    threads = [Thread(target=meet) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(plans) == 8
    assert len({id(plan) for plan in plans}) == 1


def test_a_worker_goes_by_the_namespace_of_the_publisher(app: Celery) -> None:
    task: Any = app.task(base=Once, once="{order}", name="named", lazy=False, shared=False)(same)
    assert task.once_plan.record_of(OnceHeader("m", "k", "")) == RecordName("shop", "k")
    assert task.once_plan.record_of(OnceHeader("m", "k", "", namespace="other")) == RecordName("other", "k")


def test_a_header_is_trusted_whatever_the_arguments_are(app: Celery) -> None:
    """The page about it says who may write to the broker."""
    rule = unique("{order}", keep=60)
    task: Any = app.task(base=Once, once=rule, name="trusting", lazy=False, shared=False)(same)
    assert task.delay("a").get() == "a"
    first = task.once_plan.identity(("a",), {})
    forged = OnceHeader("m-2", first.key, first.payload_print)
    assert task.apply_async(("b",), task_id="m-2", headers=forged.carried(None)).get() == "a"


def test_a_body_may_end_its_run_itself(app: Celery) -> None:
    def body(self: Any, order: str) -> str:  # noqa: ANN401  # a task
        self.once_run.finish("kept")
        return f"given for {order}"

    rule = unique("{order}", keep=60)
    task: Any = app.task(base=Once, once=rule, bind=True, name="own", lazy=False, shared=False)(body)
    assert task.delay("a").get() == "given for a"
    assert task.delay("a").get() == "kept"


def test_a_failed_message_that_is_delivered_again_leaves_the_stored_error_alone(app: Celery) -> None:
    runs: list[str] = []

    def body(order: str) -> None:
        runs.append(order)
        message = "no such card"
        raise ValueError(message)

    task: Any = app.task(base=Once, once="{order}", name="failing", lazy=False, shared=False)(body)
    first = task.apply(("a",), task_id="m")
    again = task.apply(("a",), task_id="m")
    assert (first.state, again.state, runs) == ("FAILURE", "IGNORED", ["a"])
    stored = app.backend.get_result("m")
    assert (type(stored), str(stored)) == (ValueError, "no such card")


def test_a_message_with_a_serializer_of_its_own_is_put_back_with_it(app: Celery) -> None:
    """Its argument has no form in JSON, so the broker would deliver it again and again at once."""

    def odd(order: str, _: object) -> str:
        return order

    app.conf.task_always_eager = False
    task: Any = app.task(base=Once, once=serial("{order}"), name="odd", lazy=False, shared=False)(odd)
    record = task.once_plan.record(task.once_key("a", frozenset()))
    app.conf.once_store.execute(BeginRun(record, "first", "h", "", "odd", 60_000, 60_000, "none", "message", at_once=1))
    handle = task.apply_async(("a", frozenset()), serializer="pickle")

    def taken() -> Any:  # noqa: ANN401  # kombu's message
        with app.connection() as connection, connection.channel() as channel:
            return channel.basic_get("celery", no_ack=True)  # type: ignore[attr-defined]  # its stubs do not know of it

    task.push_request(called_directly=False, is_eager=False, **taken().headers)
    with pytest.raises(Ignore):
        task("a", frozenset())
    again = taken()
    assert (again.headers["id"], again.content_type) == (handle.id, "application/x-python-serialize")
