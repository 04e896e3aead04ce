"""What Celery is told: it says nothing about a name that it does not know, so it is asked about each."""

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.defaults import SETTING_KEYS
from pydantic import SecretStr

from segmented.celery import settings as current
from segmented.celery.apps import celery_settings, schedule
from segmented.celery.messages import TASK, assignment_of
from segmented.celery.settings import WorkerSettings, check_settings
from segmented.errors import InvalidInput
from segmented.models.pools import Assignment


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def conf() -> dict[str, Any]:
    return celery_settings(WorkerSettings())


CELERY = tuple(map(int, version("celery").split(".")[:2]))
SINCE = {"worker_soft_shutdown_timeout": (5, 5), "worker_eta_task_limit": (5, 6)}


@pytest.mark.parametrize("key", conf())
def test_celery_knows_each_setting(key: str) -> None:
    assert (key in SETTING_KEYS) == (SINCE.get(key, CELERY) <= CELERY)


def test_messages_are_acknowledged_late_and_nothing_watches() -> None:
    told = conf()
    assert told["task_acks_late"] is True
    assert told["task_reject_on_worker_lost"] is True
    assert told["task_acks_on_timeout" if CELERY >= (5, 7) else "task_acks_on_failure_or_timeout"] is False
    assert told["task_ignore_result"] is True
    assert told["worker_send_task_events"] is False
    assert told["worker_enable_remote_control"] is False
    assert told["worker_prefetch_multiplier"] == 2


def test_times_pool_and_queues_are_those_of_the_settings() -> None:
    settings = WorkerSettings(
        task_time_limit=4.0, segment_timeout=3.0, visibility_timeout=9.0, pool="prefork", concurrency=7, queue="shop"
    )
    told = celery_settings(settings)
    assert (told["task_time_limit"], told["worker_soft_shutdown_timeout"]) == (4, 4)
    assert told["broker_transport_options"]["visibility_timeout"] == 9
    assert (told["worker_pool"], told["worker_concurrency"]) == ("prefork", 7)
    assert told["worker_cancel_long_running_tasks_on_connection_loss"] is True
    assert celery_settings(WorkerSettings())["worker_cancel_long_running_tasks_on_connection_loss"] is False
    assert told["task_default_queue"] == "shop"
    assert [queue.name for queue in told["task_queues"]] == ["shop", "shop-chores"]


def test_both_queues_of_rabbitmq_can_be_quorum_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = WorkerSettings(broker=SecretStr("amqp://guest@localhost//"), queue_type="quorum")
    arguments = [queue.queue_arguments for queue in celery_settings(settings)["task_queues"]]
    assert arguments == [{"x-queue-type": "quorum"}] * 2
    assert [queue.queue_arguments for queue in conf()["task_queues"]] == [None] * 2
    monkeypatch.setattr("segmented.celery.settings.SETTING_KEYS", frozenset())
    refused = f"SEGMENTED_QUEUE_TYPE is quorum: it needs Celery 5.5 or newer, and {version('celery')} is installed"
    with pytest.raises(InvalidInput, match=f"^{refused}$"):
        check_settings(settings)


# --- the schedule of beat ---


def test_the_schedule_is_what_the_settings_say() -> None:
    every = {
        "segmented.sweep": 1.0,
        "segmented.expire": 1.0,
        "segmented.finish_transfers": 10.0,
        "segmented.audit": 10.0,
    }
    assert schedule(WorkerSettings()) == {name: {"task": name, "schedule": seconds} for name, seconds in every.items()}


def test_orders_are_forgotten_if_a_grace_time_and_a_database_are_named() -> None:
    database = SecretStr("sqlite:///orders.sqlite")
    named = WorkerSettings(database=database, forget_after=3_600)
    assert schedule(named)["segmented.forget"] == {"task": "segmented.forget", "schedule": 600.0}
    assert "segmented.forget" not in schedule(WorkerSettings(database=database))
    assert "segmented.forget" not in schedule(WorkerSettings(forget_after=3_600))


@pytest.fixture
def _own_settings() -> Iterator[None]:
    """Settings of this test alone."""
    current.use(WorkerSettings())
    yield
    current.use(None)


@pytest.mark.usefixtures("_own_settings")
def test_each_app_has_the_queue_of_its_own_routes_and_the_step_that_is_in_use() -> None:
    with Celery("one", set_as_current=False) as one, Celery("other", set_as_current=False) as other:
        one.conf.task_default_queue = "first"
        other.conf.task_routes = {TASK: {"queue": "second"}}
        assert [assignment_of(app) for app in (one, other, one)] == [
            Assignment("first"),
            Assignment("second"),
            Assignment("first"),
        ]
        current.use(WorkerSettings(step="shop:step"))
        assert assignment_of(one) == Assignment("first", "shop:step")


@pytest.mark.usefixtures("_own_settings")
def test_an_app_whose_route_reads_the_message_has_its_default_queue() -> None:
    def by_sku(_name: str, args: tuple[str, ...], *_: object, **__: object) -> dict[str, str]:
        return {"queue": f"shop-{args[0]}"}

    with Celery("routed", set_as_current=False) as app:
        app.conf.update(task_default_queue="usual", task_routes=(by_sku,))
        assert assignment_of(app) == Assignment("usual")


def test_ledgers_are_relayed_if_a_database_is_named() -> None:
    named = WorkerSettings(database=SecretStr("sqlite:///orders.sqlite"))
    assert schedule(named)["segmented.relay"] == {"task": "segmented.relay", "schedule": 10.0}
    assert "segmented.relay" not in schedule(WorkerSettings())
