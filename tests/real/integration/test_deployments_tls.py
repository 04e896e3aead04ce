"""TLS: to one server, by way of Sentinels, and on a cluster. Whom we do not trust, and who does not trust us."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from segmented.errors import StoreUnavailable
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores_deployed import COLOURS, deployed_side

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
