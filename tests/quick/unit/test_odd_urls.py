"""Addresses that cannot be read: no part of a password is in a text, an error, a traceback, a repr or the log."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from segmented import AsyncRedisStore, RedisStore
from segmented.celery.settings import WorkerSettings
from segmented.masking import masked
from segmented.orders import connect
from tests.support.odd_urls import leaks, odd_urls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STOCK = "redis://127.0.0.1:1/0"
URLS = odd_urls()


def store(url: str) -> str:
    with RedisStore.from_url(url) as found:
        return repr(found)


def asynchronous(url: str) -> str:
    async def run() -> str:
        async with await AsyncRedisStore.from_url(url) as found:
            return repr(found)

    return asyncio.run(run())


def database(url: str) -> str:
    engine = connect(url, pool_size=1, timeout=1)
    engine.dispose()
    return repr(engine)


def worker_stock(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(url), broker=SecretStr("amqp://127.0.0.1:1")))


def worker_broker(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(STOCK), broker=SecretStr(url)))


def worker_database(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(STOCK), database=SecretStr(url), broker_on_stock_server=True))


USES: list[Callable[[str], str]] = [store, asynchronous, database, worker_stock, worker_broker, worker_database]


def test_no_odd_address_is_shown_with_its_password() -> None:
    assert len(URLS) >= 400
    assert [url for url in URLS if leaks(masked(url))] == []


@pytest.mark.long
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_whatever_uses_an_odd_address_shows_no_password(
    use: Callable[[str], str], caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path of SQLite is a file here
    caplog.set_level(logging.DEBUG)
    shown: dict[str, str] = {}
    for url in URLS:
        caplog.clear()
        try:
            text = use(url)
        except Exception as error:  # noqa: BLE001  # any error may show it
            text = "".join((*traceback.format_exception(error), repr(error)))
        shown[url] = text + caplog.text
    assert {url: text for url, text in shown.items() if leaks(text)} == {}
