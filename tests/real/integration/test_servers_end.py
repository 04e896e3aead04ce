"""However the program ends, its servers, their guards and their folders are gone within seconds."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import redis

from segmented.servers import PostgresServer, ValkeyServer
from tests.fixtures.servers import require_postgres
from tests.support.paths import ROOT
from tests.support.processes import outlasting

GONE_SECONDS: Final = 60.0


@contextlib.contextmanager
def owner(way: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run the owner in a session of its own, as a terminal does, and read what it started."""
    require_postgres()
    argv = [sys.executable, "-m", "tests.real.integration.server_owner", way]
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def remains(report: dict[str, Any]) -> list[str]:
    """Wait until the processes are gone, or the time is up, and return what is still there."""
    running = [psutil.Process(pid) for pid in report["pids"] if is_alive(pid)]
    left = [f"process {process.pid}" for process in outlasting(running, GONE_SECONDS)]
    return left + [folder for folder in report["folders"] if Path(folder).exists()]


def is_alive(pid: int) -> bool:
    """Is the process running? One that only waits to be buried is not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("way", "exit_code"), [("error", 1), ("_exit", 3)])
def test_nothing_remains_when_the_program_ends(way: str, exit_code: int) -> None:
    with owner(way) as (process, report):
        assert process.wait(GONE_SECONDS) == exit_code
        assert remains(report) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_remains_after_a_signal_to_the_program(number: signal.Signals) -> None:
    with owner("wait") as (process, report):
        assert all(is_alive(pid) for pid in report["pids"])
        process.send_signal(number)
        assert process.wait(GONE_SECONDS) == -number
        assert remains(report) == []


@pytest.mark.parametrize("way", ["fork", "fork in C"])
def test_a_forked_child_neither_stops_the_servers_nor_keeps_them(way: str) -> None:
    with owner(way) as (process, report):
        assert all(is_alive(pid) for pid in report["pids"])
        process.kill()
        process.wait(GONE_SECONDS)
        try:
            assert remains(report) == []
            assert is_alive(report["helper"])
        finally:
            os.kill(report["helper"], signal.SIGKILL)


def test_the_terminals_ctrl_c_reaches_the_program_and_not_the_servers() -> None:
    with owner("wait") as (process, report):
        os.killpg(process.pid, signal.SIGSTOP)  # a program that cannot react yet
        os.killpg(process.pid, signal.SIGINT)
        with redis.Redis.from_url(report["urls"][0]) as client:
            assert client.ping() is True
        assert {os.getpgid(pid) for pid in report["pids"]} == set(report["pids"])
        os.killpg(process.pid, signal.SIGCONT)
        assert process.wait(GONE_SECONDS) == -signal.SIGINT
        assert remains(report) == []


def test_after_a_killed_guard_stop_removes_what_is_left(
    private_valkey: ValkeyServer, private_postgres: PostgresServer
) -> None:
    servers = (private_valkey, private_postgres)
    for server in servers:
        os.kill(server.guard_pid, signal.SIGKILL)
    for server in servers:
        server.stop()
    assert remains({"pids": [server.pid for server in servers], "folders": [server.folder for server in servers]}) == []
