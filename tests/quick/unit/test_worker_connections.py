"""How a process of workers opens its connections, and how many pools it keeps."""

from collections.abc import Iterator

import pytest
from celery.signals import worker_process_shutdown, worker_shutdown
from celery.utils.dispatch import Signal
from pydantic import SecretStr

from segmented.celery import connections as opening
from segmented.celery.settings import WorkerSettings
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.servers import ValkeyServer


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    opening.disconnect()


def told(monkeypatch: pytest.MonkeyPatch, url: str, database: str) -> None:
    settings = WorkerSettings(url=SecretStr(url), database=SecretStr(database), broker_on_stock_server=True)
    monkeypatch.setattr(opening, "settings", lambda: settings)


def test_a_server_that_never_comes_is_awaited_with_growing_pauses_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str
) -> None:
    told(monkeypatch, "unix:///nowhere.sock", sqlite_url)
    clock, pauses = ManualClock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    with pytest.raises(StoreUnavailable, match=r"^no server answers at unix:///nowhere\.sock: "):
        opening.open_when_there(pool_size=1, seconds=10.0, now=clock.now, sleep=sleep)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_a_database_whose_address_can_never_be_right_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, valkey: ValkeyServer
) -> None:
    told(monkeypatch, valkey.url, "postgresql://localhost:1/shop?sslmode=sometimes")
    with pytest.raises(InvalidInput, match='invalid sslmode value: "sometimes"'):
        opening.open_when_there(pool_size=1, seconds=0.0)


@pytest.mark.parametrize("end", [worker_shutdown, worker_process_shutdown])
def test_what_a_process_opened_is_closed_at_its_end(
    monkeypatch: pytest.MonkeyPatch, valkey: ValkeyServer, sqlite_url: str, end: Signal
) -> None:
    """The system closes the sockets of a dead process, too, but the servers are to be told."""
    told(monkeypatch, valkey.url, sqlite_url)
    shared = opening.connections()
    end.send(sender=None)
    assert shared.store.is_closed
    assert shared.engine.pool.checkedin() == 0  # type: ignore[attr-defined]  # a queue, as ours are


def test_a_task_is_put_off_also_where_a_server_refuses(monkeypatch: pytest.MonkeyPatch, valkey: ValkeyServer) -> None:
    """What was fine at the start may be put right again, and the order must not be lost meanwhile."""
    told(monkeypatch, valkey.url, "sqlite:////nowhere/orders.sqlite")
    with pytest.raises(StoreUnavailable, match="unable to open database file"):
        opening.connections()


def test_a_process_has_one_store_and_a_bounded_number_of_pools(
    monkeypatch: pytest.MonkeyPatch, valkey: ValkeyServer, sqlite_url: str
) -> None:
    told(monkeypatch, valkey.url, sqlite_url)
    monkeypatch.setattr(opening, "POOLS_MAX", 2)
    shared = opening.connections()
    assert opening.connections() is shared
    mug, cup = shared.pool("mug"), shared.pool("cup")
    assert shared.pool("mug") is mug
    shared.pool("jug")
    assert shared.pool("mug") is mug
    assert shared.pool("cup") is not cup
    opening.disconnect()
    assert shared.store.is_closed
    assert opening.connections() is not shared
