"""Servers that a session cannot use are refused in a sentence, before anything is made of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import redis

from bench.engine.cell import Cell
from bench.engine.environment import public, redis_of
from bench.engine.grid import PlannedCell
from bench.engine.servers import SessionServers
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path


def test_a_url_of_something_else_is_no_redis_server() -> None:
    with pytest.raises(InvalidInput, match=r"^'amqp://localhost' is not a Redis URL: Redis URL must specify one of"):
        redis_of("amqp://localhost", is_embedded=False)


def test_a_database_of_another_kind_is_refused_and_left_as_it_is(valkey_url: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    with (
        SessionServers(valkey_url, f"sqlite:///{file}") as servers,
        pytest.raises(InvalidInput, match=r"^--database: the bench commits to PostgreSQL, and this is sqlite$"),
    ):
        servers.prepare(database_connections=4)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_a_cell_without_a_delay_can_have_the_proxy_of_those_with_one(valkey_url: str) -> None:
    plain = Cell(strategy="segment-locks", section="none")
    urls = []
    with SessionServers(valkey_url, None) as servers:
        for cell in (plain, plain.model_copy(update={"proxied": True})):
            planned = PlannedCell(cell=cell, sweeps=("k",), seconds=1.0, warm_up=0.1)
            with servers.for_run(planned, cell) as run_servers, redis.Redis.from_url(run_servers.url) as client:
                urls.append((run_servers.url == run_servers.meter_url, client.ping()))
    assert urls == [(True, True), (False, True)]


def test_a_setting_is_published_without_secrets_and_paths() -> None:
    assert public("primary_conninfo", "host=10.0.0.1 password=hush") == "(left out)"
    assert public("requirepass", "hush") == "(left out)"
    assert public("data_directory", "/var/lib/data") == "(a path)"
    assert (public("fsync", "on"), public("requirepass", "")) == ("on", "")
