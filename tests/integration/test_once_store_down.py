"""Deduplicated tasks whose records cannot be reached, at publication and in the worker, under both settings."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.dedup.celery.settings import close_stores
from segmented.errors import InvalidInput, StoreUnavailable
from tests.nodes import free_ports
from tests.once_app import build
from tests.once_workers import close_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from segmented.servers import ValkeyServer
    from tests.once_workers import OnceSide

SOON = 30


@contextmanager
def task_elsewhere(side: OnceSide, records: str, **conf: object) -> Iterator[Any]:
    """The task `kept` of an app whose records are at that address."""
    app = build(replace(side.setup, records=records, conf=conf))
    yield app.tasks["kept"]
    close_app(app)


def nowhere() -> str:
    return f"redis://127.0.0.1:{free_ports(1)[0]}/2"


def test_a_publisher_that_cannot_reach_the_records_refuses_and_publishes_nothing(shared_once: OnceSide) -> None:
    with task_elsewhere(shared_once, nowhere()) as task, pytest.raises(StoreUnavailable):
        task.delay("down-refuse")
    shared_once.wait_for(shared_once.is_quiet)
    assert shared_once.runs("down-refuse") == 0


def test_a_publisher_that_is_to_run_anyway_publishes_and_the_worker_checks_again(shared_once: OnceSide) -> None:
    with task_elsewhere(shared_once, nowhere(), once_when_down="run") as task:
        handles = [task.delay("down-run", 1) for _ in range(3)]
        assert len(set(handles)) == 3
        assert [handle.get(timeout=SOON) for handle in handles] == [["down-run", 1]] * 3
    assert shared_once.runs("down-run") == 1


def test_a_setting_that_is_neither_is_one_sentence(shared_once: OnceSide) -> None:
    with (
        task_elsewhere(shared_once, nowhere(), once_when_down="maybe") as task,
        pytest.raises(InvalidInput, match="once_when_down is 'maybe': give one of refuse, run"),
    ):
        task.delay("down-maybe")


def test_an_app_without_an_address_for_its_records_is_one_sentence(shared_once: OnceSide) -> None:
    with task_elsewhere(shared_once, "") as task, pytest.raises(InvalidInput, match="the app 'once' has no once_url"):
        task.delay("down-unset")


def test_a_worker_that_cannot_reach_the_records_keeps_the_message_until_they_are_there(
    once: OnceSide, start_valkey: Callable[..., ValkeyServer]
) -> None:
    (port,) = free_ports(1)
    worker = once.start(replace(once.setup, records=f"redis://127.0.0.1:{port}/2"))
    handle = once.app.send_task("kept", ("down-worker", 1))
    once.wait_for(lambda: worker.said().count(" received\n") >= 2)  # it has come back once
    assert once.runs("down-worker") == 0
    start_valkey(config={"port": str(port), "bind": "127.0.0.1"})
    assert handle.get(timeout=SOON) == ["down-worker", 1]
    assert once.runs("down-worker") == 1


def test_a_worker_that_is_to_run_anyway_runs_without_a_record(once: OnceSide) -> None:
    once.start(replace(once.setup, records=nowhere(), conf={"once_when_down": "run"}))
    handles = [once.app.send_task("kept", ("down-anyway", 1)) for _ in range(2)]
    assert [handle.get(timeout=SOON) for handle in handles] == [["down-anyway", 1]] * 2
    assert once.runs("down-anyway") == 2
    with pytest.raises(StoreUnavailable):
        once.app.send_task("points", ("down-effect", 5)).get(timeout=SOON)  # there is no store to do it in


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_stores()
