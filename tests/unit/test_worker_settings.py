from __future__ import annotations

import pytest
from pydantic import SecretStr

from segmented.errors import InvalidInput
from workers.broker import broker_beside, kombu_url
from workers.celery_settings import celery_settings
from workers.selling.servers import queue_name
from workers.settings import WorkerSettings


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://localhost", "redis://localhost/1"),
        ("redis://localhost:6379/0", "redis://localhost:6379/1"),
        ("redis://:pw@host:6380/4", "redis://:pw@host:6380/5"),
        ("redis://host/?db=7", "redis://host/8"),
        ("rediss://host/0?ssl_cert_reqs=required", "rediss://host/1?ssl_cert_reqs=required"),
        ("unix:///run/valkey.sock?db=0", "redis+socket:///run/valkey.sock?virtual_host=1"),
        ("unix://:pw@/run/valkey.sock?db=2", "redis+socket://:pw@/run/valkey.sock?virtual_host=3"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock?virtual_host=1"),
    ],
)
def test_the_broker_is_the_next_database_of_the_stocks_server(url: str, broker: str) -> None:
    assert broker_beside(url) == broker


def test_there_is_no_next_database_of_another_kind_of_server() -> None:
    with pytest.raises(InvalidInput, match="no broker can be derived from a stock server at http://; name one"):
        broker_beside("http://host")


def test_a_socket_is_named_as_celery_wants_it_and_everything_else_stays() -> None:
    assert kombu_url("unix:///run/valkey.sock?db=3") == "redis+socket:///run/valkey.sock?virtual_host=3"
    assert kombu_url("redis+socket:///run/x.sock?virtual_host=3") == "redis+socket:///run/x.sock?virtual_host=3"
    assert kombu_url("amqp://guest@host//") == "amqp://guest@host//"


def test_settings_come_from_the_environment_and_go_back_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTED_URL", "redis://:secret@host:6379/0")
    monkeypatch.setenv("SEGMENTED_CONCURRENCY", "7")
    monkeypatch.setenv("SEGMENTED_QUEUE", "")
    settings = WorkerSettings()
    assert (settings.concurrency, settings.queue) == (7, "segmented")
    assert settings.broker_url == "redis://:secret@host:6379/1"
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    again = WorkerSettings()
    assert again.broker == SecretStr("redis://:secret@host:6379/1")
    assert again.model_copy(update={"broker": None}) == settings


def test_no_secret_is_shown() -> None:
    settings = WorkerSettings(
        url=SecretStr("redis://:secret@a/0"),
        database=SecretStr("postgresql://u:secret@b/c"),
        broker=SecretStr("redis://:secret@d/0"),
    )
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


def test_messages_are_acknowledged_late_and_nothing_watches() -> None:
    conf = celery_settings(WorkerSettings())
    assert conf["task_acks_late"] is True
    assert conf["task_reject_on_worker_lost"] is True
    assert conf["task_ignore_result"] is True
    assert conf["worker_send_task_events"] is False
    assert conf["worker_enable_remote_control"] is False
    assert conf["worker_prefetch_multiplier"] == 2
    assert conf["broker_transport_options"]["visibility_timeout"] == 60


def test_sales_of_other_servers_have_other_queues_whatever_the_password() -> None:
    name = queue_name("redis://:one@host/0", "postgresql://u:one@host/a")
    assert name == queue_name("redis://:two@host/0", "postgresql://u:two@host/a")
    assert name != queue_name("redis://:one@host/0", "postgresql://u:one@host/b")
    assert name != queue_name("redis://:one@host/1", "postgresql://u:one@host/a")
