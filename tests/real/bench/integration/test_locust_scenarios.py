"""The locustfiles, run by Locust itself: one process with its page, several processes, and a sale that is broken."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Final

import psutil
import pytest
from rich.console import Console

from bench.engine.percentiles import merged
from bench.load.measure import Sizes, measure_locust
from bench.results import display_on
from tests.support.bench.locusts import LOOK_SECONDS, WAIT_SECONDS, asked, got, locust, said
from tests.support.processes import outlasting
from tests.support.servers.nodes import free_ports

if TYPE_CHECKING:
    from pathlib import Path

OWN_STRATEGY: Final = """
import threading
from bench.strategies.base import Refused
from bench.strategies.counted import CountedStrategy

class Mine(CountedStrategy):
    name = "mine"
    summary = "one lock of the process"
    lock = threading.Lock()

    def buy(self, order):
        with self.lock:
            found = self.sell_guarded(order, 0)
        return found if isinstance(found, Refused) else self.sold_at(found, 0)
"""

ALSO_LATE: Final = ("--late-max", "1000000")
"""A test's machine may be busy: its sales count although the generator was late."""


def test_the_page_is_for_this_machine_and_others_start_no_sale_and_name_no_file(
    valkey_url: str, tmp_path: Path
) -> None:
    port, master_port = free_ports(2)
    options = ("--web-port", str(port), "--master", "--master-bind-port", str(master_port), "--expect-workers", "1")
    fields = {"user_count": "1", "spawn_rate": "1"}
    with locust("flash_sale", *options, url=valkey_url, folder=tmp_path) as process:
        got(port, "/")
        listening = {
            one.laddr.ip
            for one in psutil.Process(process.pid).net_connections()
            if one.status == psutil.CONN_LISTEN and one.laddr.port in {port, master_port}
        }
        assert listening == {"127.0.0.1"}
        assert asked(port, "GET", "/", Host=f"localhost:{port}") == 200
        assert asked(port, "GET", "/", Host=f"shop.example:{port}") == 403
        assert asked(port, "POST", "/swarm", fields, Origin="https://shop.example") == 403
        for name in ("sale_json", "html_file", "csv_prefix", "logfile", "locustfile"):
            assert asked(port, "POST", "/swarm", fields | {name: str(tmp_path / "written")}) == 403
        assert asked(port, "POST", "/swarm", fields | {"segments": "3"}, Origin=f"http://127.0.0.1:{port}") == 200
    assert not (tmp_path / "written").exists()


def test_workers_share_a_flash_sale_and_the_master_has_the_last_word(valkey_url: str, tmp_path: Path) -> None:
    results, port = tmp_path / "sale.json", str(free_ports(1)[0])
    options = ("--headless", "--processes", "2", "--rate", "120", "--arrivals", "spike", "--seconds", "1.5", *ALSO_LATE)
    with locust("flash_sale", *options, "--warm-up", "0.2", "--stock", "20", "--segments", "4", "--hold", "2",
                "--seed", "5", "--sale-json", str(results), "--master-bind-port", port, "--master-port", port,
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        family = [psutil.Process(process.pid)]
        until = time.monotonic() + WAIT_SECONDS
        while len(family) < 3 and time.monotonic() < until:
            family = [family[0], *family[0].children()]
            threading.Event().wait(LOOK_SECONDS)
        assert process.wait(WAIT_SECONDS) == 0, said(tmp_path)
    assert outlasting(family, WAIT_SECONDS) == []
    found = json.loads(results.read_text())
    counts = found["counts"]
    assert found["processes"] == 2
    assert found["broken"] == []
    assert counts["planned"] == counts["sent"] > 20
    assert (counts["sold"], counts["sold_out"]) == (20, counts["sent"] - 20)
    assert (counts["failed"], counts["shed"]) == (0, 0)
    assert (found["checker"]["sold"], found["checker"]["oversold"], found["checker"]["refused_wrongly"]) == (20, 0, 0)
    assert (found["orders_per_s"] is None) == bool(found["void"])
    times = found["times_ms"]
    assert times["response"]["n"] == times["service"]["n"] == times["lateness"]["n"] <= counts["sent"]
    assert times["response"]["p99"] is None  # fewer than a thousand samples
    assert merged([times["response"]["encoded"]]).n == times["response"]["n"]


@pytest.mark.parametrize("killed", [1, 2])
def test_a_sale_whose_workers_were_killed_ends_and_says_which_never_reported(
    valkey_url: str, tmp_path: Path, killed: int
) -> None:
    """Killed as soon as they are to spawn users: that all have spawned, Locust says only if it hears so in a second."""
    results, port = tmp_path / "sale.json", str(free_ports(1)[0])
    buyers = ("--processes", "2", "-u", "4", "-r", "100", "--hold", "5", "--stock", "100000")
    options = ("--headless", "--seconds", "3", "--warm-up", "0", "--master-bind-port", port, "--master-port", port)
    with locust("capacity", *buyers, *options, *ALSO_LATE, "--sale-json", str(results),
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        until = time.monotonic() + WAIT_SECONDS
        while "Sending spawn jobs" not in said(tmp_path) and time.monotonic() < until:
            threading.Event().wait(LOOK_SECONDS)
        for worker in psutil.Process(process.pid).children()[:killed]:
            worker.kill()
        assert process.wait(WAIT_SECONDS) == 1, said(tmp_path)
    found = json.loads(results.read_text())
    (never,) = [one for one in found["broken"] if one.startswith("processes that never reported their sales: ")]
    assert never.count(",") == killed - 1
    assert found["orders_per_s"] is None


@pytest.mark.long
def test_a_capacity_test_that_oversells_has_no_rate_and_ends_with_1(valkey_url: str, tmp_path: Path) -> None:
    results = tmp_path / "sale.json"
    options = ("--headless", "-u", "8", "-r", "100", "--strategy", "no-lock", "--seconds", "30", "--warm-up", "0")
    with locust("capacity", *options, "--stock", "40", "--hold", "5", "--sale-json", str(results),
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        assert process.wait(WAIT_SECONDS) == 1, said(tmp_path)
    found = json.loads(results.read_text())
    assert found["orders_per_s"] is None
    assert found["checker"]["oversold"] == found["counts"]["sold"] - 40 > 0
    assert found["broken"][0] == f"oversold by {found['checker']['oversold']} units"
    assert "orders that hold stock: none: the promise was broken" in said(tmp_path)
    assert "closed loop" in said(tmp_path)


@pytest.mark.long
def test_a_sale_whose_generator_was_late_has_no_rate_and_ends_with_1(valkey_url: str, tmp_path: Path) -> None:
    """It is late whenever it takes any time at all."""
    results = tmp_path / "sale.json"
    options = ("--headless", "-u", "2", "-r", "100", "--seconds", "60", "--warm-up", "0", "--hold", "5")
    with locust("capacity", *options, "--stock", "200", "--late-max", "0", "--sale-json", str(results),
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        assert process.wait(WAIT_SECONDS) == 1, said(tmp_path)
    found = json.loads(results.read_text())
    assert (found["orders_per_s"], found["broken"]) == (None, [])
    assert found["void"][0].startswith("the median lateness of the load generator is ")
    assert "orders that hold stock: none: void\n" in said(tmp_path)


def test_one_lock_is_compared_with_segments_through_the_same_locust_users(
    valkey_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.load.measure.SEGMENT_COUNTS", (1, 4))
    sizes = Sizes(rounds=1, seconds=0.5, warm_up=0.1, lone_seconds=0.5, commits=(False,))
    results = measure_locust(valkey_url, sqlite_url, display_on(Console(quiet=True)), sizes)
    written = results.as_json()
    values = {figure["name"]: figure["value"] for figure in written["figures"]}
    assert (written["benchmark"], results.is_kept, values["sales whose books did not add up"]) == ("locust", True, 0)
    assert values["a lone order, hold 20 ms: its hold"] >= 20
    assert values.get("one lock, hold 20 ms", 0) <= 52  # one order of a window of half a second began before it
    voided = {remark.split(",")[0].removeprefix("Void: ") for remark in written["remarks"]}
    for name in ("one lock", "4 segments"):
        assert (f"{name}, hold 20 ms" in values) != (name in voided)


def test_what_could_not_work_is_one_sentence_before_anything_begins(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    nobody = f"redis://127.0.0.1:{port}/0"
    with locust("capacity", "--headless", url=nobody, folder=tmp_path) as process:
        assert process.wait(WAIT_SECONDS) == 2
    assert f"SEGMENTED_URL: no server answers at {nobody}: " in said(tmp_path)
    assert "Ramping" not in said(tmp_path)
    assert "Traceback" not in said(tmp_path)


@pytest.mark.long
def test_a_strategy_of_ones_own_sells_under_locust_and_its_books_are_checked(valkey_url: str, tmp_path: Path) -> None:
    file, results = tmp_path / "mine.py", tmp_path / "sale.json"
    file.write_text(OWN_STRATEGY)
    options = (
        "--headless",
        "-u",
        "4",
        "-r",
        "100",
        "--seconds",
        "30",
        "--warm-up",
        "0",
        "--hold",
        "1",
        "--stock",
        "40",
    )
    with locust("capacity", *options, *ALSO_LATE, "--strategy", f"{file}:Mine", "--sale-json", str(results),
                url=valkey_url, folder=tmp_path) as process:  # fmt: skip
        assert process.wait(WAIT_SECONDS) == 0, said(tmp_path)
    found = json.loads(results.read_text())
    assert (found["cell"]["strategy"], found["checker"]["sold"], found["broken"]) == ("mine", 40, [])
