"""A worker's channel to a Redis broker uses one client for all its messages and acknowledgements."""

from typing import Any

from kombu import Connection

from segmented.celery.consumer import reuse_client
from segmented.servers import ValkeyServer


def _client(channel: Any) -> Any:  # noqa: ANN401  # kombu's and redis-py's
    with channel.conn_or_acquire() as client:
        return client


def test_a_channel_creates_a_client_each_time_and_one_only_when_told(valkey: ValkeyServer) -> None:
    with Connection(valkey.url.replace("unix://", "redis+socket://")) as connection:
        channel: Any = connection.channel()
        assert _client(channel) is not _client(channel)  # if kombu itself keeps it one day, this code can go
        reuse_client(channel)
        assert _client(channel) is _client(channel)
        assert _client(channel).ping()
        with channel.conn_or_acquire("given") as given:
            assert given == "given"


def test_a_channel_with_another_pool_of_connections_gets_another_client(valkey: ValkeyServer) -> None:
    with Connection(valkey.url.replace("unix://", "redis+socket://")) as connection:
        channel: Any = connection.channel()
        reuse_client(channel)
        before = _client(channel)
        channel.pool.disconnect()
        assert _client(channel) is before  # the pool connects again
        channel._after_fork()  # noqa: SLF001  # what kombu calls in a child
        after = _client(channel)
        assert after is not before
        assert after.connection_pool is channel.pool
        assert after.ping()


def test_a_channel_of_another_transport_stays_as_it_is() -> None:
    with Connection("memory://") as connection:
        channel: Any = connection.channel()
        reuse_client(channel)
        assert not hasattr(channel, "conn_or_acquire")
