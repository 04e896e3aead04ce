"""Each extra alone, and the documented combination, from the wheel in a clean environment: `make test-install`."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from segmented import imports
from segmented.servers import ValkeyServer
from tests.support.paths import ROOT

UV: Final = (sys.executable, "-m", "uv")
SECONDS: Final = 240.0
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORTS: Final = {
    "orders": "from segmented.orders import Gate, connect; Gate(connect('sqlite:///orders.sqlite')).create()",
    "postgres": "from segmented.orders import connect; import psycopg, sqlalchemy.ext.asyncio",
    "sql-records": "from segmented.dedup import Dedup, SqlRecords; import psycopg\n"
    "from sqlalchemy import create_engine\n"
    "records = SqlRecords(create_engine('sqlite:///records.db')); records.create()\n"
    "assert [Dedup(records, 'shop', keep=60).call('o-7', lambda: n) for n in (1, 2)] == [1, 1]",
    "mysql": "from segmented.locks import SqlRowLock; import pymysql, asyncmy",
    "zookeeper": "from segmented.locks import ZooKeeperLock; import kazoo.client",
    "fast": "import hiredis, uvloop, redis.utils; assert redis.utils.HIREDIS_AVAILABLE",
    "embedded": "from segmented.servers import ValkeyServer\nwith ValkeyServer.start() as server: print(server.url)",
    "django": "import django; from django.conf import settings; from django.core.management import call_command\n"
    "files = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'shop.sqlite'}}\n"
    "apps = ['django.contrib.contenttypes', 'segmented.django']\n"
    "settings.configure(INSTALLED_APPS=apps, DATABASES=files, SEGMENTED={'URL': 'redis://localhost'})\n"
    "django.setup(); call_command('check'); call_command('migrate')\n"
    "import segmented.django; segmented.django.gate(); segmented.django.Once",
    "watch": "from segmented.watch import server; server.exposition(None)",
    "all": "import celery, hiredis, kazoo, psycopg, pymysql, rich, typer",
}


def ran(*words: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with none of this environment's Python settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SEGMENTED_"))}
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**kept, "TMPDIR": str(folder), "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it, an empty folder beside it, and what Python compiled in any of them."""

    programs: Path
    folder: Path
    compiled: Path

    def python(self, program: str, **environment: str) -> str:
        done = self._ran("python", "-c", program, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self._ran("segmented", *words, **environment)

    def _ran(self, program: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        told = {"PYTHONPYCACHEPREFIX": str(self.compiled), **environment}
        return ran(self.programs / program, *words, folder=self.folder, **told)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built once."""
    folder = tmp_path_factory.mktemp("wheel")
    done = ran(*UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, folder=folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[..., Installed]:
    """Make a clean environment with these extras.

    All have the same place, one after the other, and links to the same files: each package is compiled once.
    """

    def make(extras: str = "", link_mode: str = "symlink") -> Installed:
        home, folder = wheel.parent / "environment", tmp_path / "work"
        shutil.rmtree(home, ignore_errors=True)
        folder.mkdir()
        wanted = f"segmented-locks{f'[{extras}]' if extras else ''} @ {wheel.as_uri()}"
        python = home / "bin" / "python"
        for words in (
            ("venv", "--quiet", "--python", sys.executable, home),
            ("pip", "install", "--quiet", "--link-mode", link_mode, "--python", python, wanted),
            ("pip", "check", "--quiet", "--python", python),
        ):
            done = ran(*UV, *words, folder=folder)
            assert done.returncode == 0, done.stderr
        return Installed(home / "bin", folder, wheel.parent / "compiled")

    return make


def test_the_wheel_installs_one_package_with_its_scripts_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"segmented", "segmented_locks-0.3.0.dist-info"}
    assert {"segmented/py.typed", "segmented/watch/page.html"} <= set(names)
    scripts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "segmented").rglob("*.lua")}
    assert scripts <= set(names)


def test_the_core_needs_the_driver_alone_and_runs_the_examples_of_the_readme(
    install: Callable[..., Installed], valkey: ValkeyServer
) -> None:
    core = install()
    listed = ran(*UV, "pip", "list", "--python", core.programs / "python", "--format", "freeze", folder=core.folder)
    drivers_own = {"async-timeout"} if sys.version_info < (3, 11, 3) else set[str]()
    assert {line.partition("==")[0].partition(" ")[0] for line in listed.stdout.split("\n") if line} == {
        "redis",
        "segmented-locks",
        *drivers_own,
    }
    assert core.python("from segmented import *; print(Pool.__name__)") == "Pool\n"
    pool, lock = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:2]
    assert core.python(pool.replace("redis://localhost:6379/0", valkey.url)).endswith("2 sold\n")
    assert core.python(lock.replace("redis://localhost:6379/0", valkey.url)).startswith("writing the report")
    assert core.command("--version").stdout == "segmented 0.3.0\n"
    refused = core.command("pool", "show", "mug")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"segmented: the command line needs the package typer: {imports.install('cli')}\n",
    )


def test_the_command_line_opens_and_shows_a_pool(install: Callable[..., Installed], valkey: ValkeyServer) -> None:
    cli = install("cli")
    opened = cli.command("pool", "open", "mug", "--stock", "5", "--segments", "2", "--url", valkey.url)
    assert (opened.returncode, opened.stderr) == (0, "")
    assert "available\t5\n" in cli.command("pool", "show", "mug", "--url", valkey.url).stdout
    away = cli.command("demo")
    assert (away.returncode, away.stderr.count("\n")) == (2, 1)
    gated = ("pool", "open", "cup", "--stock", "5", "--segments", "2", "--gated", "--database", "sqlite:///cups")
    for words, package, extra in ((("exporter",), "uvicorn", "watch"), (gated, "sqlalchemy", "orders")):
        refused = cli.command(*words, "--url", valkey.url)
        sentence = f"segmented: segmented {words[0]} needs the package {package}: {imports.install(extra)}\n"
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", sentence)


@pytest.mark.parametrize("extra", IMPORTS)
def test_an_extra_alone_brings_what_it_names(install: Callable[..., Installed], extra: str) -> None:
    install(extra).python(IMPORTS[extra])


def test_workers_alone_run_the_readmes_task_and_take_a_submitted_order(
    install: Callable[..., Installed], valkey: ValkeyServer
) -> None:
    workers = install("workers")
    workers.python("import celery, kombu.transport.redis; from segmented.celery import add_tasks, publisher")
    told = {
        "SEGMENTED_URL": valkey.url,
        "SEGMENTED_DATABASE": f"sqlite:///{workers.folder}/orders.sqlite",
        "SEGMENTED_BROKER_ON_STOCK_SERVER": "1",
    }
    once = next(block for block in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")) if "Once" in block)
    for number in (1, 2, 3):
        once = once.replace(f"redis://localhost:6379/{number}", celery_url(valkey, number + 3))
    once = once.replace(celery_url(valkey, 6), valkey.url.replace("db=0", "db=6"))
    workers.python(once)
    for name in ("workers", "bench"):  # a user's own folders
        (workers.folder / name).mkdir()
        (workers.folder / name / "__init__.py").write_text("raise RuntimeError\n", encoding="utf-8")
    words = [workers.programs / "celery", "-A", "segmented.celery.app", "worker", "-P", "solo", "--loglevel", "WARNING"]
    told |= {"TMPDIR": str(workers.folder), "PYTHONWARNINGS": "ignore", "PYTHONPYCACHEPREFIX": str(workers.compiled)}
    with subprocess.Popen([str(word) for word in words], cwd=workers.folder, env={**os.environ, **told}) as worker:
        try:
            outcome = workers.python(
                "from segmented import Outbox, Pool, RedisStore; from segmented.celery import publisher\n"
                f"pool = Pool(RedisStore.from_url({valkey.url!r}), 'poster', outbox=Outbox(publisher()))\n"
                "pool.open(stock=1, segments=1)\nprint(pool.submit('a').wait(60).state)",
                **told,
            )
        finally:
            worker.terminate()
            code = worker.wait(SECONDS)
    assert (outcome, code) == ("confirmed\n", 0)


def test_the_documented_combination_sells_a_file_beside_a_users_own_folders(
    install: Callable[..., Installed],
) -> None:
    # as root, PostgreSQL runs from a copy of its files, which another account reads
    shop = install("cli,embedded,workers,postgres", link_mode="copy")
    for name in ("workers", "bench"):
        (shop.folder / name).mkdir()
        (shop.folder / name / "__init__.py").write_text("raise RuntimeError\n", encoding="utf-8")
    lines = ["order_id,quantity", *(f"a-{number},1" for number in range(20))]
    (shop.folder / "orders.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    sold = shop.command("sell", "orders.csv", "--stock", "12", "--segments", "3")
    assert sold.returncode == 0, sold.stderr
    words = [line.split()[:2] for line in sold.stdout.splitlines()]
    assert [word for word in words if word[0] in {"confirmed", "refused"}][:2] == [
        ["confirmed", "12"],
        ["refused", "8"],
    ]


def celery_url(valkey: ValkeyServer, number: int) -> str:
    """Return the server's address as Celery spells a socket."""
    return valkey.url.replace("unix://", "redis+socket://").replace("db=0", f"virtual_host={number}")
