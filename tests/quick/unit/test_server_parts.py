"""The parts of the embedded servers that need no server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from segmented.errors import InvalidInput
from segmented.servers import postgres
from segmented.servers.account import Account, blocking_ancestors, is_reachable
from segmented.servers.folders import Claim, is_short, private_folder
from segmented.servers.supervised import Command, Stops, quiet_environment
from segmented.servers.valkey import configuration, quoted

OTHER = Account("other", os.geteuid() + 1, os.getegid() + 1)
STATUS_FILE = "{pid}\n/data\n1790000000\n5432\n/sockets\n\n  1 2\n{status}\n"


def test_valkey_without_a_data_folder_keeps_nothing() -> None:
    lines = configuration(Path("/run/x"), kept=None, extra={}).splitlines()
    assert lines == [
        "port 0",
        'unixsocket "/run/x/valkey.sock"',
        "unixsocketperm 700",
        'dir "/run/x"',
        "databases 16",
        "maxclients 4096",
        "maxmemory-policy noeviction",
        'save ""',
        "appendonly no",
        "appendfsync everysec",
    ]


def test_valkey_with_a_data_folder_appends_to_a_file_there() -> None:
    lines = configuration(Path("/run/x"), kept=Path("/data/valkey"), extra={}).splitlines()
    assert 'dir "/data/valkey"' in lines
    assert "appendonly yes" in lines


def test_a_further_directive_overrides_ours_and_is_there_once() -> None:
    lines = configuration(Path("/run/x"), kept=None, extra={"maxclients": "10"}).splitlines()
    assert [line for line in lines if line.startswith("maxclients")] == ["maxclients 10"]


@pytest.mark.parametrize(("name", "value"), [("", "1"), ("hz", "10\nport 1"), ("hz\n", "10")])
def test_a_directive_that_is_not_one_line_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not one line$"):
        configuration(Path("/run/x"), kept=None, extra={name: value})


def test_a_path_is_quoted_for_the_configuration_file() -> None:
    assert quoted(Path('/a "b"/c\\d')) == '"/a \\"b\\"/c\\\\d"'


def test_the_environment_of_a_server_has_no_locale_time_zone_or_pg_variable() -> None:
    user = {"PATH": "/bin", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "PGDATA": "/x", "PGPORT": "1", "HOME": "/h"}
    assert quiet_environment(user) == {"PATH": "/bin", "LC_ALL": "C", "LANG": "C", "TZ": "UTC"}


def test_a_command_is_run_as_ourselves_unless_told_otherwise() -> None:
    assert Command(("true",)).account is None


def test_stopping_is_bounded_by_the_sum_of_its_steps() -> None:
    assert Stops(((2, 10.0), (3, 5.0), (9, 5.0))).seconds == 20.0


@pytest.mark.parametrize(("length", "short"), [(89, True), (90, False)])
def test_a_socket_path_has_at_most_103_bytes(length: int, *, short: bool) -> None:
    assert is_short(Path("/" + "x" * (length - 1))) is short


def test_a_private_folder_has_a_new_name_each_time_and_is_not_made_yet() -> None:
    folders = {private_folder() for _ in range(100)}
    assert len(folders) == 100
    assert not any(folder.exists() for folder in folders)


def test_a_temporary_folder_that_is_too_long_for_a_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert not private_folder().is_relative_to(long)


def test_a_claim_is_refused_while_another_holds_it_and_free_afterwards(tmp_path: Path) -> None:
    first = Claim.take(tmp_path / "valkey")
    with pytest.raises(InvalidInput) as refusal:
        Claim.take(tmp_path / "valkey")
    first.hand_over()
    Claim.take(tmp_path / "valkey").hand_over()
    sentence = f"data folder {tmp_path / 'valkey'} is in use by a server that process {os.getpid()} started"
    assert str(refusal.value) == sentence


def test_the_claim_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "lock").write_text("1234567\n")
    Claim.take(tmp_path / "valkey").hand_over()
    assert (tmp_path / "valkey" / "lock").read_text() == f"{os.getpid()}\n"


def test_a_folder_without_the_right_to_pass_blocks_another_account(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "open"
    inner.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o710)
    assert tmp_path / "closed" in blocking_ancestors(inner, OTHER)
    assert not is_reachable(inner, OTHER)
    (tmp_path / "closed").chmod(0o711)
    assert tmp_path / "closed" not in blocking_ancestors(inner, OTHER)


def test_an_owner_is_judged_by_the_owners_rights(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    ourselves = Account("ourselves", os.geteuid(), os.getegid())
    assert tmp_path / "closed" not in blocking_ancestors(tmp_path / "closed" / "file", ourselves)


def test_everything_is_reachable_for_ourselves(tmp_path: Path) -> None:
    assert is_reachable(tmp_path, None)


@pytest.mark.parametrize(
    ("pid", "status", "ready"), [(70, "ready", True), (70, "starting", False), (71, "ready", False)]
)
def test_postgres_is_ready_when_its_file_says_so_of_this_process(
    tmp_path: Path, pid: int, status: str, *, ready: bool
) -> None:
    (tmp_path / "postmaster.pid").write_text(STATUS_FILE.format(pid=pid, status=f"{status}   "))
    assert postgres.is_ready(tmp_path, 70) is ready


@pytest.mark.parametrize("text", ["", "70\n", "70\n/data\n"])
def test_postgres_is_not_ready_while_its_file_is_incomplete(tmp_path: Path, text: str) -> None:
    assert not postgres.is_ready(tmp_path, 70)
    (tmp_path / "postmaster.pid").write_text(text)
    assert not postgres.is_ready(tmp_path, 70)


def test_the_file_of_a_dead_postgres_goes_although_its_process_id_lives_on(tmp_path: Path) -> None:
    file = tmp_path / "postmaster.pid"
    file.write_text(STATUS_FILE.format(pid=os.getpid(), status="ready"))
    postgres.forget_dead(tmp_path)
    assert not file.exists()


def test_a_file_that_is_not_postgres_own_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "postmaster.pid"
    file.write_text("not a number\n")
    postgres.forget_dead(tmp_path)
    assert file.exists()
