"""The broker of an app: our own, which may be derived, or the user's, which keeps the one it has."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from pydantic import SecretStr

from segmented.celery import WorkerSettings, add_tasks, publisher, settings as current
from segmented.celery.apps import celery_settings
from segmented.errors import InvalidInput

ENDANGERING = (
    "on the server of SEGMENTED_URL, where a full queue stops the sale: name another server, "
    "or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
)


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No server is announced on this machine, as far as these tests see."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    current.use(None)
    publisher.cache_clear()


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        (
            "redis+cluster://:secret@a,b",
            "SEGMENTED_BROKER is not set, and no broker can be derived from Sentinels or a cluster: name a server",
        ),
        (
            "redis://:secret@host/0",
            f"SEGMENTED_BROKER is not set, and would be {ENDANGERING}",
        ),
    ],
)
def test_a_broker_that_would_have_to_be_derived_is_refused_where_one_is_needed(url: str, refusal: str) -> None:
    settings = WorkerSettings(url=SecretStr(url))  # enough for tasks in an app that has a broker of its own
    with pytest.raises(InvalidInput) as refused:
        celery_settings(settings)
    assert str(refused.value) == refusal


def own_app(broker: Any) -> Celery:  # noqa: ANN401  # one address, several, or none
    app = Celery("shop", broker=broker, set_as_current=False)
    assert app.conf.broker_url == broker  # it is configured from here on
    return app


@pytest.mark.parametrize(
    ("broker", "sentence"),
    [
        (
            "redis://127.0.0.1/0",
            "the broker of the Celery app names the database of SEGMENTED_URL: stock and messages must not share one",
        ),
        (["redis://other/1", "redis://localhost:6379/1"], f"the broker of the Celery app is {ENDANGERING}"),
    ],
)
def test_in_an_app_of_the_users_own_its_broker_is_the_one_that_is_refused(
    broker: str | list[str], sentence: str
) -> None:
    app = own_app(broker)
    for use in (lambda: add_tasks(app, WorkerSettings(url=SecretStr("redis://localhost/0"))), lambda: publisher(app)):
        with pytest.raises(InvalidInput) as refused:
            use()
        assert str(refused.value) == sentence


@pytest.mark.parametrize("broker", ["redis://localhost:6380/1", "amqp://guest@localhost//", "memory://", None])
def test_an_app_of_the_users_own_keeps_a_broker_apart_from_the_stock(broker: str | None) -> None:
    app = own_app(broker)
    add_tasks(app, WorkerSettings(url=SecretStr("redis://localhost/0")))
    publisher(app)
