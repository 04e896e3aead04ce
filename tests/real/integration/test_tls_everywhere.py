"""TLS to the order database and to a worker's three servers, with an authority of our own."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.orders import Gate, connect
from segmented.orders.answers import Confirmed
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.deployments import TlsServer
from tests.fixtures.postgres_tls import TlsPostgres
from tests.real.integration.test_worker_lifetime import said, sold
from tests.support.servers.certificates import Certificates, make_certificates
from tests.support.workers.worker_processes import working


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
