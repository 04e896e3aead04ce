"""The many-machine picture: nothing open to the network, no secret written down, nothing that could lose stock."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.tidy.sources import ROOT

TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
SERVERS = ("stock", "broker", "database")


def test_it_has_the_servers_and_the_workers() -> None:
    assert set(SERVICES) == {*SERVERS, "worker"}


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_bound_to_this_machine(service: str) -> None:
    assert [port for port in SERVICES[service].get("ports", []) if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_says_whether_it_is_healthy(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"]


@pytest.mark.parametrize("service", SERVERS)
def test_a_server_has_no_default_password(service: str) -> None:
    passwords = [value for name, value in SERVICES[service]["environment"].items() if name.endswith("PASSWORD")]
    assert [re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) is not None for value in passwords] == [True]


def test_no_variable_has_a_default_value() -> None:
    assert re.findall(r"\$\{\w+:?-[^}]*\}", TEXT) == []


def test_the_stock_is_neither_evicted_nor_forgotten() -> None:
    command = SERVICES["stock"]["command"]
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_the_order_database_waits_for_its_disk() -> None:
    command = SERVICES["database"]["command"]
    assert "fsync=on" in command
    assert "synchronous_commit=on" in command


def test_the_workers_start_after_all_servers() -> None:
    assert SERVICES["worker"]["depends_on"] == {server: {"condition": "service_healthy"} for server in SERVERS}
