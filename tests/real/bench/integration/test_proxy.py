"""The network delay: a round trip takes as long as asked, all bytes arrive in order, and no process stays."""

from __future__ import annotations

import stat
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from bench.proxy import delayed, through, upstream_of
from bench.proxy_relay import Upstream
from tests.support.processes import words_of

ROUND_TRIP_MS = 20.0


def proxies() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "bench.proxy_relay" in words_of(one)]


def test_a_ping_takes_the_round_trip_and_the_process_is_gone_afterwards(valkey_url: str) -> None:
    with delayed(valkey_url, ROUND_TRIP_MS) as url, closing(redis.Redis.from_url(url)) as client:
        [process] = proxies()
        client.ping()
        began = time.monotonic()
        assert client.ping()
        assert time.monotonic() - began >= ROUND_TRIP_MS / 1_000  # a slow machine takes longer still
    assert not process.is_running()
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(url).ping()


def test_the_url_through_the_proxy_keeps_all_but_the_address() -> None:
    for url, upstream, proxied in (
        ("unix:///run/a%20b.sock?db=3", Upstream(path="/run/a b.sock"), "unix:///x/s?db=3"),
        ("redis://u:p@shop:6380/1?x=1", Upstream(host="shop", port=6380), "unix://u:p@/x/s?x=1&db=1"),
        ("redis://shop", Upstream(host="shop", port=6379), "unix:///x/s"),
    ):
        assert upstream_of(url) == upstream
        assert through(url, "/x/s") == proxied


def test_the_proxy_is_in_a_private_folder_which_goes_with_it(valkey_url: str) -> None:
    with delayed(valkey_url, 1.0) as url:
        folder = Path(urlsplit(url).path).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        [process] = proxies()
        assert [one for one in process.net_connections() if one.status == psutil.CONN_LISTEN] == []
    assert not folder.exists()
