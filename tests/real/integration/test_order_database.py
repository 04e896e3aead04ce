"""Connecting to an order database: what is refused, in one clear sentence that never shows a password."""

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url, text

from segmented.errors import DatabaseUnavailable, InvalidInput, SegmentedError
from segmented.imports import install
from segmented.orders import connect
from segmented.servers import PostgresServer, postgres
from tests.fixtures.servers import require_postgres
from tests.support.contract.parking import wait_until

SECRET: Final = "s3cr3t"
NOBODY: Final = 65_534
PATIENCE: Final = 44.0
"""Seconds for which a database is waited for, longer than a busy machine stands still."""


def refusal(url: str, *, kind: type[SegmentedError] = InvalidInput, timeout: float = PATIENCE) -> str:
    """Return why `connect` refuses; fails if the password stands anywhere in what a user could see."""
    with pytest.raises(kind) as caught:
        connect(url, timeout=timeout)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- URLs ---


@pytest.mark.parametrize(
    "url",
    [
        "",
        "orders",
        f"postgresql://buyer:{SECRET}/orders",
        f"postgresql://buyer:p@{SECRET}@localhost/orders",
        f"postgresql://buyer:{SECRET}@localhost:port/orders",
        f"postgresql://buyer:%00{SECRET}@localhost/orders",
        f"postgresql://buyer:\udcff{SECRET}@localhost/orders",
        f"postgresql://localhost/orders?application_name=%00{SECRET}",
        "sqlite:////data/\udcff.db",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    assert refusal(url) == (
        "the order database's URL cannot be read; it should look like postgresql://user:password@host/database "
        "(with %40 for @ in a password), mysql://user:password@host/database or sqlite:///path"
    )


@pytest.mark.parametrize(
    "scheme", ["oracle", "mysql+asyncmy", "postgresql+psycopg2", "postgresql+asyncpg", "redis", "http"]
)
def test_another_database_or_driver_is_named(scheme: str) -> None:
    assert refusal(f"{scheme}://buyer:{SECRET}@localhost/orders") == (
        f"{scheme}:// is not a supported order database; "
        "use postgresql:// (psycopg 3), mysql:// (pymysql) or sqlite:///path"
    )


def test_nobody_at_the_address() -> None:
    sentence = refusal(f"postgresql://buyer:{SECRET}@127.0.0.1:1/orders?sslpassword={SECRET}", kind=DatabaseUnavailable)
    assert sentence.startswith(
        "the order database postgresql://buyer:***@127.0.0.1:1/orders?sslpassword=*** cannot be used: "
    )
    assert sentence.endswith("Connection refused")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert refusal(f"postgresql://buyer:{SECRET}@localhost/orders") == (
        f"an order database at postgresql:// needs the package psycopg: {install('postgres')}"
    )


# --- PostgreSQL ---


def test_an_unknown_database(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="nowhere").render_as_string(hide_password=False)
    assert 'database "nowhere" does not exist' in refusal(url)


def asks_for_passwords(url: str) -> bool:
    """Return whether a server has read its new rules, by which a role without a password may not connect."""
    try:
        connect(url, pool_size=1).dispose()
    except SegmentedError as error:
        return "no password supplied" in str(error)
    return False


def test_a_wrong_password(private_postgres: PostgresServer) -> None:
    engine = connect(private_postgres.url, pool_size=1)
    with engine.connect() as connection:
        connection.execute(text("CREATE ROLE buyer LOGIN PASSWORD 'right'"))
        connection.execute(text("CREATE ROLE other LOGIN PASSWORD 'right'"))
        Path(connection.execute(text("SHOW hba_file")).scalar_one()).write_text("local all all scram-sha-256\n")
        connection.execute(text("SELECT pg_reload_conf()"))
    engine.dispose()
    wait_until(lambda: asks_for_passwords(private_postgres.url))
    buyer = make_url(private_postgres.url).set(username="buyer")
    sentence = refusal(buyer.set(password=SECRET).render_as_string(hide_password=False))
    assert sentence.startswith("the order database postgresql://buyer:***@")
    assert sentence.endswith('password authentication failed for user "buyer"')
    connect(buyer.set(password="right").render_as_string(hide_password=False)).dispose()


def test_a_password_among_the_options_is_used_and_not_shown_by_the_engine(private_postgres: PostgresServer) -> None:
    engine = connect(f"{private_postgres.url}&sslpassword={SECRET}&connect_timeout=55", pool_size=1)
    with engine.connect() as connection:
        hba = Path(connection.execute(text("SHOW hba_file")).scalar_one())
        connection.execute(text(f"CREATE ROLE buyer LOGIN PASSWORD '{SECRET}'"))
        hba.write_text("local all all scram-sha-256\n")
        connection.execute(text("SELECT pg_reload_conf()"))
    assert (SECRET in repr(engine), "connect_timeout=55" in repr(engine)) == (False, True)
    engine.dispose()
    wait_until(lambda: asks_for_passwords(private_postgres.url))
    url = make_url(private_postgres.url).set(username="buyer").render_as_string(hide_password=False)
    engine = connect(f"{url}&password={SECRET}")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT current_user")).scalar_one() == "buyer"
    assert SECRET not in repr(engine)
    engine.dispose()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("synchronous_commit = off", "synchronous_commit=off and would lose sold orders; set it to on"),
        ("default_transaction_read_only = on", "is read-only, as a standby is, and takes no orders; name the primary"),
    ],
)
def test_a_database_that_would_lose_or_refuse_orders_is_refused(
    postgres_database: str, setting: str, sentence: str
) -> None:
    engine = connect(postgres_database)
    with engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {make_url(postgres_database).database} SET {setting}"))
    engine.dispose()
    assert refusal(postgres_database).endswith(sentence)


def test_every_new_connection_of_an_engine_is_checked(postgres_database: str) -> None:
    engine = connect(postgres_database, pool_size=2)
    with engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {make_url(postgres_database).database} SET synchronous_commit = off"))
        with pytest.raises(InvalidInput, match="synchronous_commit=off"):
            engine.connect()
    engine.dispose()


def test_a_server_without_fsync_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_postgres()
    monkeypatch.setitem(postgres.SETTINGS, "fsync", "off")
    with postgres.PostgresServer.start() as server:
        assert refusal(server.url).endswith("has fsync=off and would lose orders in a power cut; set fsync=on")


def test_every_wait_on_the_server_has_a_deadline(postgres_database: str) -> None:
    engine = connect(postgres_database, timeout=PATIENCE)
    with engine.connect() as connection:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        shown = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
        assert shown == ["44s", "22s", "66s"]
    engine.dispose()


# --- SQLite ---


def test_a_sqlite_file_is_made_safe(sqlite_url: str) -> None:
    engine = connect(sqlite_url, timeout=4.0)
    with engine.connect() as connection:
        names = ("journal_mode", "synchronous", "busy_timeout")
        assert [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names] == ["wal", 2, 2_000]
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:orders?mode=memory&uri=true"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    assert refusal(url).endswith("is not a plain file; name one as in sqlite:///path")


def test_a_file_that_cannot_keep_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.sqlite"
    connect(f"sqlite:///{path}").dispose()
    sentence = refusal(f"sqlite:///file:{path}?immutable=1&uri=true")
    assert sentence.endswith("cannot be made safe: journal_mode=delete, synchronous=2")


def test_a_file_that_is_read_only_is_refused() -> None:
    folder = Path(tempfile.mkdtemp(prefix="segmented-test-"))
    url = f"sqlite:///{folder / 'orders.sqlite'}"
    connect(url).dispose()
    (folder / "orders.sqlite").chmod(0o444)
    folder.chmod(0o777)
    with without_privileges():
        assert refusal(url).endswith("cannot be used: attempt to write a readonly database")
    shutil.rmtree(folder)


@contextmanager
def without_privileges() -> Iterator[None]:
    """For root nothing is read-only, so be somebody else."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)
