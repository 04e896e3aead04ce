"""What takes long to import, or may not be installed, is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import segmented
from segmented import locks, servers
from segmented.servers.valkey import ValkeyServer
from tests.support.reference import public_names

LATE_MODULES = ("sqlalchemy", "kazoo", "celery", "psycopg", "pymysql", "asyncmy", "segmented.dedup", "segmented.compat")
PATIENCE = 120
"""Seconds that a process of its own may take on a slow machine."""

pytestmark = pytest.mark.timeout(300)


def modules_after(program: str) -> list[str]:
    """Return the names of the modules that a new process has after a program."""
    words = f"{program}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout.split()


def found_after(imports: str, names: tuple[str, ...]) -> list[str]:
    """Return which of these modules a new process has after some imports."""
    return sorted(set(names) & set(modules_after(f"import {imports}")))


@pytest.mark.parametrize(
    ("program", "budget"),
    [
        ("import segmented", 2),
        ("import segmented.testing.plugin", 14),
        ("from segmented import Lock", 51),
        ("from segmented import Lock, RedisStore", 79),
        ("from segmented import Pool, RedisStore", 115),
    ],
)
def test_an_import_loads_no_more_of_our_modules_than_it_needs(program: str, budget: int) -> None:
    ours = [name for name in modules_after(program) if name.partition(".")[0] == "segmented"]
    assert len(ours) <= budget, ours


@pytest.mark.parametrize(
    "program", ["import segmented", "import segmented.testing.plugin", "from segmented import Lock"]
)
def test_locks_and_the_pytest_plugin_load_no_driver_and_nothing_of_stock(program: str) -> None:
    loaded = set(modules_after(program))
    unwanted = {"redis", "segmented.stock", "segmented.dedup", "segmented.cli", "segmented.orders", *LATE_MODULES}
    assert loaded & unwanted == set()


def test_importing_the_library_imports_no_driver() -> None:
    assert found_after("segmented, segmented.locks, segmented.stock.pool", LATE_MODULES) == []


def test_every_name_of_the_library_is_listed_and_found() -> None:
    assert set(public_names(segmented)) <= set(dir(segmented))
    assert set(segmented.LATE) == {*public_names(segmented), "AsyncGate", "Gate"}
    assert [name for name in public_names(segmented) if not hasattr(segmented, name)] == []
    assert not hasattr(segmented, "NoSuchName")


def test_a_command_in_a_pipe_imports_nothing_that_draws() -> None:
    commands = ", ".join(f"segmented.cli.{name}" for name in ("main", "advise", "lock", "pool"))
    assert found_after(commands, ("rich", *LATE_MODULES)) == []
    assert found_after("segmented.cli.sell", LATE_MODULES) == []


def test_who_looks_for_a_running_server_imports_nothing_that_starts_one() -> None:
    assert found_after("segmented.servers.announcement", ("psutil", "rich")) == []
    assert servers.ValkeyServer is ValkeyServer
    assert sorted(servers.LATE) == sorted(public_names(servers))


@pytest.mark.parametrize("name", sorted(set(locks.LATE) & set(segmented.LATE)))
def test_a_late_name_is_the_same_wherever_it_is_imported_from(name: str) -> None:
    assert getattr(segmented, name) is getattr(locks, name)
    assert segmented.LATE[name] == "segmented.locks"


WITHOUT_UNIX = """
import os, sys
del os.register_at_fork, os.fork
for name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
    sys.modules[name] = None
"""


def test_locks_pools_and_their_commands_need_nothing_that_only_unix_has(private_valkey: ValkeyServer) -> None:
    program = f"""{WITHOUT_UNIX}
import segmented
from segmented.cli.main import run
names = segmented.__all__
print(len([getattr(segmented, name) for name in names]) == len(names))
with segmented.RedisStore.from_url({private_valkey.url!r}) as store:
    with segmented.Lock(store, "report").acquire():
        print(run(["lock", "show", "report", "--url", {private_valkey.url!r}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout.splitlines()[0], done.stdout.splitlines()[-1]) == (0, "True", "0"), done.stderr


@pytest.mark.parametrize(
    ("absent", "sentence"),
    [
        (("typer",), "the command line needs the package typer: pip install "),
        (("celery", "psycopg"), "segmented sell cannot run: celery is not installed; pip install "),
    ],
)
def test_a_command_names_all_the_extras_that_it_needs(absent: tuple[str, ...], sentence: str) -> None:
    hidden = "; ".join(f"sys.modules[{name!r}] = None" for name in absent)
    program = f"import sys; {hidden}; from segmented.__main__ import main; main()"
    ran = subprocess.run([sys.executable, "-c", program, "sell", "a.csv"], capture_output=True, text=True, check=False)
    where = "in the checkout (segmented-locks is not on a package index yet)"
    said = f"segmented: {sentence}'.[cli,embedded,postgres,workers]' {where}\n"
    assert (ran.returncode, ran.stderr) == (2, said)


def test_a_task_by_its_name_needs_celery_which_is_named_before_what_it_brings() -> None:
    program = "import sys; sys.modules.update(celery=None, billiard=None); from segmented.__main__ import main; main()"
    command = (sys.executable, "-c", program, "dedup", "explain", "--task", "shop.charge", "1")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.partition(": pip")[0]) == (
        2,
        "segmented: segmented dedup needs the package celery",
    )
