"""The Django app `segmented.django`: settings, migration, admin. Django is configured once a process: each is one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import URL, create_engine, inspect, make_url

from segmented import Gate, Pool, RedisStore
from segmented.dedup import OnceTable
from segmented.orders import connect, migrate
from segmented.servers import ValkeyServer
from tests.support.rings import require_module

LIMIT: Final = 120
"""Seconds that a process of its own may take on a slow machine."""
SETTINGS: Final = """
import json
import os

import pymysql

SECRET_KEY = "of a test"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
INSTALLED_APPS = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
INSTALLED_APPS.append("segmented.django")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = ["template.context_processors.request", "contrib.auth.context_processors.auth"]
PROCESSORS.append("contrib.messages.context_processors.messages")
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [f"django.{name}" for name in PROCESSORS]},
    }
]
vars().update(json.loads(os.environ["CHANGED"]))
pymysql.install_as_MySQLdb()
"""
URLS: Final = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""
ADMIN: Final = """
import json
import re
import sys

import django

django.setup()

from django.contrib.auth.models import Permission, User
from django.test import Client

boss = User.objects.create_superuser("boss")
reader = User.objects.create_user("reader", is_staff=True)
reader.user_permissions.add(Permission.objects.get(codename="view_pool"))
said = []
for user, page in json.loads(sys.argv[1]):
    client = Client()
    client.force_login(User.objects.get(username=user))
    answer = client.get(f"/admin/segmented/{page}")
    cells = re.findall(r"<td>(.*?)</td>", answer.content.decode().partition('id="content-main"')[2])
    error = re.findall(r'errornote">(.*?)</p>', answer.content.decode())
    said.append([answer.status_code, cells or error])
print(json.dumps(said))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    require_module("Django", "django")
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "urls.py").write_text(URLS)
    return tmp_path


def ran(project: Path, *words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a command of Django, or with `-c` a program, with further settings."""
    start = () if words[0] == "-c" else ("-m", "django")
    changed = {"SEGMENTED": {"URL": "redis://localhost:6379/0"}, **settings}
    told = {"DJANGO_SETTINGS_MODULE": "settings", "CHANGED": json.dumps(changed), "PYTHONPATH": str(project)}
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=project,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


def database(url: URL) -> dict[str, Any]:
    """Return the entry of DATABASES."""
    if url.drivername == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.database}
    if url.get_backend_name() == "mysql":
        place = url.query["unix_socket"]
        return {"ENGINE": "django.db.backends.mysql", "NAME": url.database, "USER": url.username, "HOST": place}
    host = url.host or url.query.get("host")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password or "",
        "HOST": host,
        "PORT": url.port or "",
    }


def tables(url: str) -> dict[str, object]:
    """Return columns, keys, checks and indexes of each table of the gate."""
    engine = create_engine(url)
    found: dict[str, object] = {}
    there = inspect(engine)
    for name in there.get_table_names():
        if name.startswith("segmented_"):
            columns = [{**one, "type": str(one["type"])} for one in there.get_columns(name)]
            checks = sorted(str(one) for one in there.get_check_constraints(name))
            found[name] = columns, there.get_pk_constraint(name), checks, there.get_indexes(name)
    engine.dispose()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_the_migration_makes_the_tables_that_alembic_makes(
    project: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    one = f"sqlite:///{project}/alembic.sqlite"
    if kind != "sqlite":
        one = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
        one = one.replace("postgresql://", "postgresql+psycopg://")
    engine = connect(one)
    migrate(engine)
    OnceTable().create(engine)
    wanted = tables(one)
    if kind != "sqlite":
        with engine.begin() as connection:
            for name in wanted:
                connection.exec_driver_sql(f"DROP TABLE {name}")
    engine.dispose()
    other = one.replace("alembic.sqlite", "django.sqlite")
    databases = {"default": database(make_url(other))}
    done = ran(project, "migrate", DATABASES=databases)
    assert done.returncode == 0, done.stderr
    assert len(wanted) == 10
    assert tables(other) == wanted
    again = ran(project, "makemigrations", "--check", "--dry-run", DATABASES=databases)
    assert (again.returncode, again.stdout) == (0, "No changes detected\n")
    engine = connect(other)
    assert migrate(engine).replay
    engine.dispose()


def test_tables_that_are_there_and_other_databases_are_left_alone(project: Path) -> None:
    engine = connect(f"sqlite:///{project}/gate.sqlite")
    migrate(engine)
    OnceTable().create(engine)
    engine.dispose()
    urls = {name: make_url(f"sqlite:///{project}/{name}.sqlite") for name in ("default", "gate")}
    settings = {
        "DATABASES": {name: database(url) for name, url in urls.items()},
        "SEGMENTED": {"URL": "redis://localhost", "DATABASE": "gate"},
    }
    for alias in urls:
        done = ran(project, "migrate", "--database", alias, **settings)
        assert done.returncode == 0, done.stderr
    assert len(tables(f"sqlite:///{project}/gate.sqlite")) == 10
    assert tables(f"sqlite:///{project}/default.sqlite") == {}


WRONG: Final[tuple[tuple[object, str, str], ...]] = (
    (None, "E001 the settings lack SEGMENTED", "add SEGMENTED ="),
    ({"DATABASE": None}, 'E001 SEGMENTED has no "URL" of a Redis server', "add it, as in SEGMENTED ="),
    ({"url": "redis://localhost"}, "E001 SEGMENTED has 'url', which is not a setting", "write 'URL'"),
    ({"URL": "http://localhost", "DATABASE": None}, "E001 ", ""),
    ({"URL": "redis://localhost", "DATABASE": "gone"}, "E002 ", "name one of ['default']"),
    ({"URL": "redis://localhost"}, "E002 ", "name another one in SEGMENTED["),
    ({"URL": "redis://localhost", "DATABASE": None, "NAMESPACE": ""}, "E003 ", ""),
    ({"URL": "redis://localhost", "DATABASE": None, "IDEMPOTENCY": {}}, "E004 ", "give WebOptions(scope=...)"),
)
CHECKED: Final = """
import json
import sys

import django
from django.core.checks import run_checks
from django.test import override_settings

django.setup()
said = []
for one in json.loads(sys.argv[1]):
    with override_settings(SEGMENTED=one):
        said.append([[error.id, error.msg, error.hint or ""] for error in run_checks()])
print(json.dumps(said))
"""


def test_a_wrong_setting_is_a_check_that_names_the_cure(project: Path) -> None:
    memory = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    done = ran(project, "-c", CHECKED, json.dumps([one for one, _, _ in WRONG]), DATABASES=memory)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [len(errors) for errors in said] == [1] * len(WRONG)
    for ((name, text, hint),), (_, wanted, cure) in zip(said, WRONG, strict=True):
        assert f"{name} {text}".startswith(f"segmented.{wanted}")
        assert hint.startswith(cure)


def test_the_admin_shows_pools_orders_and_keys_to_those_who_may_see_them(project: Path, valkey: ValkeyServer) -> None:
    url = f"sqlite:///{project}/gate.sqlite"
    settings = {"DATABASES": {"default": database(make_url(url))}, "SEGMENTED": {"URL": valkey.url}}
    done = ran(project, "migrate", **settings)
    assert done.returncode == 0, done.stderr
    with RedisStore.from_url(valkey.url) as store, Gate(url) as gate:
        pool = Pool(store, "<poster>", gate=gate)
        pool.open(stock=10, segments=2)
        reserved = pool.reserve("o-1", quantity=2)
        assert reserved
        pool.confirm("o-1")
    asked = [["boss", "pool/"], ["boss", "order/?sku=<poster>&order=o-1"], ["reader", "pool/"], ["reader", "order/"]]
    asked += [["boss", "order/?sku=gone"], ["boss", "heldkey/"], ["boss", "pool/add/"]]
    done = ran(project, "-c", ADMIN, json.dumps(asked), **settings)
    assert done.returncode == 0, done.stderr
    row = ["&lt;poster&gt;", "8", "0", "2", "2", "open, gated"]
    said = json.loads(done.stdout)
    assert said[0] == said[2] == [200, row]
    order = said[1][1]
    assert [said[1][0], order[:3], order[-1]] == [200, ["o-1", "confirmed", "2"], "confirmed, 2 units"]
    assert [status for status, _ in said[3:]] == [403, 200, 200, 403]
    assert "&#x27;gone&#x27;" in said[4][1][0]


IN_TESTS: Final = """
import os
from unittest import mock

from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from segmented import Pool
from segmented.django import gate, store

told = []


def pool():
    return Pool(store(), "poster", gate=gate())


def sold():
    with transaction.atomic():
        Group.objects.create(name="o-1")
        answer = pool().confirm("o-1", within=connection)
        transaction.on_commit(lambda: told.append(answer.tell().state))
    return answer.state


class A(TransactionTestCase):
    def test_commit(self):
        self.assertTrue(pool().open(stock=4, segments=2))
        self.assertTrue(pool().reserve("o-1"))
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            pool().confirm("o-1", within=connection)
            raise ZeroDivisionError
        self.assertEqual(gate().orders("poster", ["o-1"]), {})
        self.assertEqual((sold(), told.pop()), ("confirmed", "confirmed"))
        self.assertEqual(gate().orders("poster", ["o-1"])["o-1"].state, "confirmed")
        self.assertIn("test_", str(gate().where))


class B(TestCase):
    @classmethod
    def setUpClass(cls):
        Pool(store(), "mug", gate=gate()).open(stock=4, segments=2)
        super().setUpClass()

    def test_no_commit(self):
        mug = Pool(store(), "mug", gate=gate())
        mug.reserve("o-2")
        with self.captureOnCommitCallbacks(execute=False) as callbacks, transaction.atomic():
            self.assertEqual(mug.confirm("o-2", within=connection).state, "confirmed")
            transaction.on_commit(told.clear)
        self.assertEqual(len(callbacks), 1)
        self.assertEqual(gate().orders("mug", ["o-2"]), {})
"""


def test_the_gate_follows_djangos_tests_to_their_database(
    project: Path, valkey: ValkeyServer, postgres_database: str
) -> None:
    (project / "test_shop.py").write_text(IN_TESTS)
    databases = {"default": database(make_url(postgres_database))}
    done = ran(project, "test", DATABASES=databases, SEGMENTED={"URL": valkey.url})
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
