"""`segmented server` as its user sees it."""

import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil
import pytest
import redis
import sqlalchemy

from segmented.cli import server
from segmented.cli.main import run
from segmented.cli.server import NOT_ANNOUNCED, address_of, chosen_port, directives
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.fixtures.servers import require_postgres
from tests.support.paths import ROOT
from tests.support.servers.nodes import free_ports

COMMAND: Final = [sys.executable, "-c", "from segmented.__main__ import main; main()", "server"]
END_SECONDS: Final = 120.0


@contextlib.contextmanager
def serving(*options: str, beside: str = "") -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Run the command until both servers answer; give the process and the two URLs it printed.

    It is announced to nobody but those who have its temporary folder, or that of another one, `beside`.
    """
    require_postgres()
    with (
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(
            [*COMMAND, *(() if "--port" in options else ("--port", "0")), *options],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": beside or temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline() for _ in range(4)]
            url, database = lines[0].split()[-1], lines[1].split()[-1]
            is_secret = "@" in url
            given = "env:SEGMENTED_URL" if is_secret else url
            usage = shlex.join(["--stock", "1000", "--segments", "20", "--url", given, "--database", database])
            variable = f"SEGMENTED_URL={url} " if is_secret else ""
            assert lines == [
                f"stock     {url}\n",
                f"database  {database}\n",
                f"Use them: {variable}segmented sell ORDERS.csv {usage}\n",
                "Ctrl-C stops both.\n",
            ]
            yield process, url, database
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def test_it_serves_until_a_signal_and_ends_with_zero(tmp_path: Path) -> None:
    with serving("--json", str(tmp_path / "urls.json")) as (process, url, database):
        assert json.loads((tmp_path / "urls.json").read_text()) == {"url": url, "database": database}
        assert stat.S_IMODE((tmp_path / "urls.json").stat().st_mode) == 0o600
        with redis.Redis.from_url(url) as client:
            assert client.ping() is True
        engine = sqlalchemy.create_engine(database, poolclass=sqlalchemy.pool.NullPool)
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT current_database()")).scalar_one() == "segmented"
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=END_SECONDS)
    assert (process.returncode, printed, errors) == (0, "", "stopped\n")
    assert not Path(url.removeprefix("unix://").removesuffix("?db=0")).parent.exists()


def test_a_second_server_says_that_workers_find_the_first(tmp_path: Path) -> None:
    with serving(beside=str(tmp_path)), serving(beside=str(tmp_path)) as (second, _, _):
        second.terminate()
        _, errors = second.communicate(timeout=END_SECONDS)
    assert errors == f"{NOT_ANNOUNCED}\nstopped\n"
    assert second.returncode == 0


def test_data_is_kept_for_the_next_run_and_used_by_one_at_a_time(data_folder: Path) -> None:
    with serving("--data", str(data_folder)) as (process, url, _):
        with redis.Redis.from_url(url) as client:
            client.set("kept", "1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0
    with serving("--data", str(data_folder)) as (process, url, _):
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"1"
        words = [*COMMAND, "--data", str(data_folder)]
        second = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        sentence = f"data folder {data_folder / 'valkey'} is in use by a server that process {process.pid} started"
        assert (second.returncode, second.stderr) == (2, f"segmented: {sentence}\n")


# --- its port, and who finds it ---


def free_port() -> int:
    (port,) = free_ports(1)
    return port


def test_it_serves_redis_at_the_port_of_localhost_that_was_asked_for() -> None:
    port = free_port()
    with serving("--port", str(port)) as (_, url, _):
        password = urlsplit(url).password
        assert url == f"redis://:{password}@localhost:{port}/0"
        assert len(str(password)) == 32
        for host in ("localhost", "127.0.0.1"):
            with redis.Redis(host=host, port=port, password=password) as client:
                assert client.ping() is True
            with redis.Redis(host=host, port=port) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
        with redis.Redis.from_url(url) as client:
            assert client.config_get("bind") == {"bind": "127.0.0.1 -::1"}


def test_without_a_password_every_program_of_the_machine_can_use_the_port() -> None:
    port = free_port()
    with serving("--no-password", "--port", str(port)) as (_, url, _):
        assert url == f"redis://localhost:{port}/0"
        with redis.Redis(host="localhost", port=port) as client:
            assert client.ping() is True
            assert client.config_get("bind") == {"bind": "127.0.0.1 -::1"}


def test_a_taken_port_is_refused_if_asked_for_and_else_another_one_is_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = int(other.getsockname()[1])
        with pytest.raises(InvalidInput, match=f"^port {taken} of localhost is taken: choose another --port"):
            chosen_port(taken)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "PORT", taken)
            assert chosen_port(None) not in {0, taken}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "PORT", free := free_port())
        assert chosen_port(None) == free
    assert (chosen_port(0), directives(0, "word"), address_of(0, "word")) == (0, {}, "")


def test_a_data_folder_or_file_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "missing" / "urls.json"
    assert run(["server", "--json", str(file)]) == 2
    assert f"'--json': the file {file}: there is no folder {file.parent}" in capsys.readouterr().err
    assert run(["server", "--data", ""]) == 2
    assert capsys.readouterr().err == "segmented: Invalid value for '--data': it names no folder\n"


def test_commands_find_a_running_server_and_say_so_unless_they_are_given_another(tmp_path: Path) -> None:
    with serving(beside=str(tmp_path)) as (_, url, _):
        with RedisStore.from_url(url) as store:
            Pool(store, "mug").open(stock=1, segments=1)
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        for words in (["pool", "show", "mug"], ["lock", "show", "a"]):
            command = [*COMMAND[:-1], *words]
            found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            assert found.stderr.splitlines(keepends=True)[0] == f"using the running `segmented server`: {url}\n"
            told = subprocess.run([*command, "--url", url], capture_output=True, text=True, check=True, env=environment)
            assert ("using the running" not in told.stderr, told.stdout) == (True, found.stdout)


def test_a_server_that_dies_ends_the_command_with_one() -> None:
    with serving() as (process, _, _):
        family = psutil.Process(process.pid).children(recursive=True)
        valkey = next(member for member in family if "valkey" in member.name())
        valkey.kill()
        _, errors = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 1
    assert errors.startswith(f"segmented: Valkey (process {valkey.pid}) has stopped by itself")


def test_its_address_may_stand_in_a_file(
    valkey: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "url").write_text(f"{valkey.url}\n")
    monkeypatch.delenv("SEGMENTED_URL", raising=False)
    monkeypatch.setenv("SEGMENTED_URL_FILE", str(tmp_path / "url"))
    assert run(["pool", "open", "mug", "--stock", "7", "--segments", "1"]) == 0
    capsys.readouterr()
    assert run(["pool", "show", "mug", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["available"] == 7
    monkeypatch.setenv("SEGMENTED_URL", valkey.url)
    assert run(["pool", "show", "mug"]) == 2
    assert capsys.readouterr().err == "segmented: SEGMENTED_URL and SEGMENTED_URL_FILE are both set: set one of them\n"
    assert run(["pool", "show", "mug", "--url", valkey.url]) == 0
