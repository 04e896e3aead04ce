"""TLS: to one server, by way of Sentinels, and on a cluster. Whom we do not trust, and who does not trust us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import sqlalchemy

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.orders.answers import Confirmed
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.deployments import TlsPostgres, TlsServer
from tests.fixtures.stores_deployed import COLOURS, deployed_side
from tests.real.integration.test_worker_lifetime import said, sold
from tests.support.servers.certificates import Certificates, make_certificates
from tests.support.workers.worker_processes import working

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.deployments import TlsServer
    from tests.support.servers.deployments import Cluster, Sentinels
    from tests.support.servers.nodes import Node

LONG: Final = 600.0
SOON: Final = 60.0


def connect_sync(url: str) -> None:
    RedisStore.from_url(url).close()


def connect_async(url: str) -> None:
    async def connect() -> None:
        await (await AsyncRedisStore.from_url(url)).close()

    asyncio.run(connect())


both_colours = pytest.mark.parametrize("connect", [connect_sync, connect_async])


def use(url: str, colour: str) -> None:
    """Take two locks, and be woken once."""
    side = deployed_side(url, colour)
    for name in ("a", "b"):
        held = side.lock(name, ttl=LONG).acquire(timeout=0)
        lock = side.lock(name, ttl=LONG)
        waiter = side.start(lambda lock=lock: lock.acquire(timeout=LONG))  # type: ignore[misc]  # bound in the loop
        held.release()
        waiter.result(SOON).release()
    side.close()


@both_colours
def test_a_server_whose_authority_we_do_not_know_is_refused(
    connect: Callable[[str], None], tls_server: TlsServer
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        connect(tls_server.bare_url)
    assert str(caught.value).startswith(f"no server answers at {tls_server.bare_url}: ")
    assert "certificate verify failed" in str(caught.value)


@both_colours
def test_a_url_without_tls_at_a_server_with_tls_names_the_cure(
    connect: Callable[[str], None], tls_server: TlsServer
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        connect(tls_server.bare_url.replace("rediss", "redis"))
    assert str(caught.value).endswith("; if the server asks for TLS, begin the URL with rediss://")


@both_colours
def test_a_url_with_tls_at_a_server_without_it_names_the_cure(
    connect: Callable[[str], None], single_server: Node
) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        connect(f"rediss://127.0.0.1:{single_server.port}?socket_connect_timeout=0.2")
    assert str(caught.value).endswith("; if the server speaks no TLS, begin the URL with redis://")


@both_colours
def test_a_server_that_asks_for_our_certificate_gets_it(
    connect: Callable[[str], None], start_tls_server: Callable[..., TlsServer]
) -> None:
    server = start_tls_server({"tls-auth-clients": "yes"})
    connect(server.identified_url)
    with pytest.raises(StoreUnavailable) as caught:
        connect(server.url)
    assert str(caught.value).startswith(f"no server answers at {server.url}: ")


@pytest.mark.parametrize("colour", COLOURS)
def test_locks_by_way_of_sentinels_over_tls(tls_sentinels: Sentinels, tls_server: TlsServer, colour: str) -> None:
    use(f"{tls_sentinels.url}?ssl_ca_certs={tls_server.certificates.authority}", colour)
    with pytest.raises(StoreUnavailable, match="No master found for 'stock'"):
        connect_sync(tls_sentinels.url)


@pytest.mark.parametrize("colour", COLOURS)
def test_locks_on_a_cluster_over_tls(tls_cluster: Cluster, tls_server: TlsServer, colour: str) -> None:
    use(f"{tls_cluster.url}?ssl_ca_certs={tls_server.certificates.authority}", colour)
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        connect_sync(tls_cluster.url)


# TLS to the order database and to a worker's three servers, with an authority of our own.


@pytest.fixture
def verified(tls_postgres: TlsPostgres, certificates: Certificates) -> str:
    """Return the address with the check of the server's certificate and its name."""
    engine = sqlalchemy.create_engine(
        tls_postgres.url.replace("postgresql", "postgresql+psycopg"),
        isolation_level="AUTOCOMMIT",
        poolclass=sqlalchemy.pool.NullPool,
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
        connection.exec_driver_sql("DROP ROLE IF EXISTS shop")
        connection.exec_driver_sql("CREATE ROLE shop LOGIN SUPERUSER")
    return f"{tls_postgres.url}?sslmode=verify-full&sslrootcert={certificates.authority}"


def with_certificate(url: str, certificates: Certificates) -> str:
    return f"{url}&sslcert={certificates.certificate}&sslkey={certificates.key}"


def test_an_order_is_stored_over_a_connection_whose_server_is_verified(verified: str) -> None:
    engine = connect(verified)
    with engine.connect() as connection:
        mine = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.exec_driver_sql(mine).scalar_one() is True
    with Gate(engine) as gate:
        gate.create()
        gate.open("mug", [2])
        answer = gate.confirm(order_id="a", sku="mug", segment=0, quantity=1, epoch=1)
        assert answer == Confirmed(replay=False, sequence=0)


def test_a_database_of_another_authority_is_refused(verified: str, certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    with pytest.raises(InvalidInput, match="certificate verify failed"):
        Gate(verified.replace(str(certificates.authority), str(other.authority)))


def test_a_database_of_another_name_is_refused(verified: str) -> None:
    with pytest.raises(InvalidInput, match=r'"127\.0\.0\.1" .*does not match host name "localhost"'):
        Gate(verified.replace("@127.0.0.1", "@localhost"))


def test_a_role_that_needs_a_clients_certificate_gets_it(verified: str, certificates: Certificates) -> None:
    as_shop = verified.replace("//postgres@", "//shop@")
    with pytest.raises(InvalidInput, match="connection requires a valid client certificate"):
        Gate(as_shop)
    with Gate(with_certificate(as_shop, certificates)) as gate:
        assert gate.missing_tables()


def test_a_server_of_another_name_is_refused_by_both_stores(tls_server: TlsServer) -> None:
    elsewhere = tls_server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match="Hostname mismatch"):
        RedisStore.from_url(elsewhere)

    async def contact() -> None:
        await AsyncRedisStore.from_url(elsewhere)

    with pytest.raises(StoreUnavailable, match="Hostname mismatch"):
        asyncio.run(contact())


def test_a_workers_three_servers_ask_for_its_certificate(
    start_tls_server: Callable[..., TlsServer], verified: str, certificates: Certificates, tmp_path: Path
) -> None:
    """Stock, broker and database know one authority, and take no client without a certificate of it."""
    asks = {"tls-auth-clients": "yes"}
    stock, broker = start_tls_server(asks), start_tls_server(asks)
    database = with_certificate(verified.replace("//postgres@", "//shop@"), certificates)
    urls = (stock.identified_url, database, broker.identified_url)
    with working(tmp_path, said(*urls)) as worker, sold(*urls):
        assert "Traceback" not in worker.said()
