"""The store for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.clock import Clock, checked_clock
from segmented.errors import InvalidInput, StoreError
from segmented.stores.redis.addresses import parse_address
from segmented.stores.redis.clients import close_client, sync_client
from segmented.stores.redis.edge import (
    CONNECT_TIMEOUT,
    Translated,
    guarded,
    is_refusal,
)
from segmented.stores.redis.eviction import Eviction
from segmented.stores.redis.executing import Executing, check_masters
from segmented.stores.redis.given_clients import usable_client
from segmented.stores.redis.linking import PATIENCE, checked_seconds

if TYPE_CHECKING:
    import redis

    from segmented.clock import Duration
    from segmented.protocol.wire import Dialect


class RedisStore(Executing):
    """Operations on Redis or Valkey, one round trip each: on one server, behind Sentinels, or on a cluster.

    Pass your own client, or a URL: see `from_url`. It accepts clients of redis-py (RESP2 or RESP3, with or without
    `decode_responses`; one from a Sentinel's `master_for`; a `RedisCluster`) and of valkey-py. The store opens its own
    connections with the client's settings, credentials and TLS, up to the client's `max_connections`, and does its own
    retries and deadlines. Threads can share a store.
    """

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster | str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        allow_eviction: bool = False,
    ) -> None:
        """Use `client`, which the caller closes; or connect to a URL, as `from_url` does.

        Raises InvalidInput for an unusable client or server, as `from_url` does. A client's server that does not answer
        now is checked before the first operation.

        With a `maxmemory-policy` other than `noeviction` the server may evict keys: the store warns once, and takes no
        pools unless `allow_eviction` (in a URL, `allow_eviction=yes`).

        With a `dialect` the store does not ask the server how to compare and delete. `patience` is how many seconds
        an operation is retried while Sentinels or a cluster replace a master, within the operation's deadline.
        """
        if isinstance(client, str):
            self._connect(client, checked_clock(clock), dialect, patience, allow_eviction=allow_eviction)
            return
        eviction = Eviction(is_allowed=allow_eviction)
        self._start(usable_client(client, is_async=False), clock, dialect, patience, eviction=eviction)
        try:
            self._check_now()
        except StoreError as error:  # an unreachable server is checked before the first operation
            if is_refusal(error):
                raise InvalidInput(str(error)) from error

    @classmethod
    def unchecked(cls, client: redis.Redis | redis.RedisCluster) -> RedisStore:
        """Use `client`; the first operation checks the server, within its own deadline."""
        store = cls.__new__(cls)
        usable = usable_client(client, is_async=False)
        store._start(usable, None, None, PATIENCE, eviction=Eviction())  # noqa: SLF001  # as in `from_url`
        return store

    def _check_now(self) -> None:
        with Translated(self._where):
            self._link.check(self.clock.now() + CONNECT_TIMEOUT)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        timeout: Duration | None = None,
    ) -> RedisStore:
        """Connect and check the server, or every master of a cluster.

        Raises InvalidInput if it is not usable, StoreUnavailable if it does not answer.

        `redis://`, `rediss://` and `unix://` name one server, `redis+sentinel://HOST:PORT,.../SERVICE` a master behind
        its Sentinels, `redis+cluster://HOST:PORT,...` a cluster; `rediss+...` uses TLS. `timeout` is how many seconds
        this first contact may take; without one, each of two tries may take five.
        """
        store = cls.__new__(cls)
        store._connect(url, checked_clock(clock), dialect, patience, timeout)  # noqa: SLF001  # the second constructor
        return store

    def _connect(
        self,
        url: str,
        clock: Clock,
        dialect: Dialect | None,
        patience: Duration,
        timeout: Duration | None = None,
        *,
        allow_eviction: bool = False,
    ) -> None:
        seconds = None if timeout is None else checked_seconds(timeout, "timeout")
        address = parse_address(url)
        eviction = Eviction(is_allowed=allow_eviction or address.allows_eviction)
        with guarded(url):
            client = sync_client(address)
            try:
                if seconds is None:
                    check_masters(client, address.shown, eviction)
                self._start(
                    client,
                    clock,
                    dialect,
                    patience,
                    owned_at=address.shown,
                    is_checked=seconds is None,
                    eviction=eviction,
                )
                if seconds is not None:
                    self._link.check(clock.now() + seconds)
            except BaseException:
                close_client(client)
                raise
