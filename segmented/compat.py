"""redis-py's lock interface on our locks, for existing code: `client.lock(name, lock_class=Lock)`.

New code should use `segmented.Lock`, whose leases offer more. docs/how-to/come-from-redis-py.md lists the differences.

`Terms` is what both classes share: it translates redis-py's arguments into ours, and our errors into redis-py's. The
key in Redis is the lock's name itself, with the token as its value, as redis-py writes it. So our class and redis-py's
exclude each other. The fencing token and the wake-ups have separate keys (`keys.named_lock_keys`).

All locks of a client share one store, which is closed when the client is garbage-collected. A store uses its own client
on the same connection pool, because holding the user's client would keep that alive. A cluster client has no such
second client: its store and the client live until both are closed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Generic, Literal, Self, TypeVar
from weakref import WeakKeyDictionary, finalize, ref

import redis
from redis import asyncio as redis_asyncio
from redis.exceptions import (
    AuthenticationError,
    ConnectionError as RedisConnectionError,
    LockError,
    LockNotOwnedError,
    ResponseError,
)

from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, LockUnreachable, StoreError, StoreUnavailable
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import TTL_MS_MAX, milliseconds
from segmented.locks.handle import Found, acquire_plan, adopt_plan
from segmented.locks.keeper import async_release_later, release_later
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import LeaseState, Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.process import THIS, Guard
from segmented.protocol import RenameHolder
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.clients import usable_client
from segmented.stores.redis.edge import is_password_refused

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["AsyncLock", "Lock", "async_store_of", "store_of"]

Client = redis.Redis | redis.RedisCluster
AsyncClient = redis_asyncio.Redis | redis_asyncio.RedisCluster
ClientT = TypeVar("ClientT", Client, AsyncClient)

_stores: WeakKeyDictionary[Client, RedisStore] = WeakKeyDictionary()
_async_stores: WeakKeyDictionary[AsyncClient, tuple[ref[AbstractEventLoop], AsyncRedisStore]] = WeakKeyDictionary()
_closing: set[asyncio.Future[None]] = set()
_guard = Guard()


def store_of(client: Client) -> RedisStore:
    """Return the store that the locks of `client` use, for threads.

    If you close the client before the program ends, close the store with it: `store_of(client).close()`. This function
    sends nothing to the server. Raises InvalidInput for anything but a client.
    """
    check_client(client)
    with _guard.lock:
        found = _stores.get(client)
        if found is None or found.is_closed:
            beside = client
            if isinstance(client, redis.Redis):
                beside = redis.Redis(connection_pool=client.connection_pool)
            found = _stores[client] = RedisStore.unchecked(beside)
            if beside is not client:
                finalize(client, _close_soon, found).atexit = False
        return found


def async_store_of(client: AsyncClient) -> AsyncRedisStore:  # asyncio only
    """Return the store that the locks of `client` use, for the running event loop.

    Close it together with the client: `await async_store_of(client).close()`.
    """
    async_check_client(client)
    loop = asyncio.get_running_loop()
    with _guard.lock:
        its_loop, found = _async_stores.get(client, (None, None))
        if found is None or found.is_closed or its_loop is None or its_loop() is not loop:
            beside = client
            if isinstance(client, redis_asyncio.Redis):
                beside = redis_asyncio.Redis(connection_pool=client.connection_pool)
            found = AsyncRedisStore(beside)
            _async_stores[client] = (ref(loop), found)
            if beside is not client:
                finalize(client, _close_in_loop, ref(loop), found).atexit = False
        return found


def async_check_client(client: AsyncClient) -> None:
    """Raise InvalidInput for anything but a client for asyncio."""
    if not isinstance(client, AsyncClient):
        usable_client(client, is_async=True)


def _close_soon(store: RedisStore) -> None:
    # Closing waits for the listener, and a finalizer may run anywhere.
    threading.Thread(target=store.close, name="segmented-close", daemon=True).start()


def _close_in_loop(its_loop: ref[AbstractEventLoop], store: AsyncRedisStore) -> None:
    def close() -> None:
        closing = asyncio.ensure_future(store.close())
        _closing.add(closing)  # a task without a reference may be collected before it ends
        closing.add_done_callback(_closing.discard)

    loop = its_loop()
    if loop is not None:
        with suppress(RuntimeError):  # it is closed, and the connections with it
            loop.call_soon_threadsafe(close)


Name = str | bytes | memoryview
Token = str | bytes

DEFAULT_SLEEP: Final = 0.1
ENDLESS_TTL: Final = 30.0
"""Seconds that a lock without a `timeout` outlives its process, which renews it while it runs."""
ENDLESS: Final = TTL_MS_MAX / 1000
NOT_ACQUIRED: Final = "Unable to acquire lock within the time specified"
NOT_OWNED: Final = "Cannot {} a lock that's no longer owned"

LeaseT = TypeVar("LeaseT", bound=LeaseState)
log = logging.getLogger("segmented.compat")


class Held(Generic[LeaseT]):
    """The state of a held lock: the token, which may be set from outside, and our lease."""

    token: bytes | None = None
    lease: LeaseT | None = None
    process_id = 0

    def hold(self, lease: LeaseT) -> None:
        """Note a lease that was acquired or adopted by this process."""
        self.lease, self.token, self.process_id = lease, lease.holder_id.encode(), THIS.process_id

    def drop(self) -> None:
        """Forget the lease and the token."""
        self.lease = self.token = None

    def known(self, token: str) -> LeaseT | None:
        """Return our lease of the token, or None if it must be adopted."""
        lease = self.lease
        is_ours = lease is not None and lease.holder_id == token and self.process_id == THIS.process_id
        return lease if is_ours and lease is not None and not lease.has_ended else None


class HeldByThread(Generic[LeaseT]):
    """The same, separate for each thread, or for each greenlet once gevent has patched `threading`."""

    def __init__(self) -> None:
        self._threads = threading.local()

    @property
    def here(self) -> Held[LeaseT]:
        """Return what this thread holds."""
        if type(self._threads) is not threading.local:
            self._threads = threading.local()
        found: Held[LeaseT] | None = getattr(self._threads, "held", None)
        if found is None:
            found = self._threads.held = Held()
        return found


class Terms(ABC, Generic[LeaseT, ClientT]):
    """The arguments of redis-py's lock."""

    def __init__(  # redis-py's own
        self,
        redis: ClientT,
        name: Name,
        timeout: float | None = None,
        sleep: float = DEFAULT_SLEEP,
        blocking: bool = True,  # noqa: FBT001, FBT002  # redis-py's own
        blocking_timeout: float | None = None,
        thread_local: bool = True,  # noqa: FBT001, FBT002  # redis-py's own
        raise_on_release_error: bool = True,  # noqa: FBT001, FBT002  # redis-py's own
    ) -> None:
        """Create a lock on the key `name` of the server of `redis`, for `timeout` seconds or until this process ends.

        The arguments are those of redis-py's class; `sleep` is accepted and ignored, because waiters are notified.
        """
        self.redis: ClientT = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._holds: Held[LeaseT] | HeldByThread[LeaseT] = HeldByThread() if thread_local else Held()
        self._check_client()
        self._key(redis)

    @abstractmethod
    def _check_client(self) -> None:
        """Raise InvalidInput for anything but a client of the right kind."""

    @property
    def local(self) -> Held[LeaseT]:
        """Return what is held: with `thread_local`, by this thread."""
        return self._holds if isinstance(self._holds, Held) else self._holds.here

    @property
    def lease(self) -> LeaseT | None:
        """Return our lease while this object holds the lock, for its fencing token, `require()` and `on_lost()`."""
        token = self.local.token
        return None if token is None else self.local.known(token.decode())

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r} timeout={self.timeout!r}>"

    def _seconds_to_wait(self, *, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        if not (self.blocking if blocking is None else blocking):
            return 0.0
        seconds = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return None if seconds is None else max(0.0, seconds)

    def _claim(self, holder_id: str | None = None) -> LockClaim:
        ttl_ms = milliseconds(self.timeout or ENDLESS_TTL, "timeout")
        return LockClaim(as_text(self.name, "name"), holder_id or new_holder_id(), ttl_ms, is_key=True)

    def _key(self, client: Client | AsyncClient) -> str:
        """Return the lock's key. Raises InvalidInput if the client's own commands would encode it differently."""
        name, encoding = as_text(self.name, "name"), client.get_encoder().encoding
        try:
            is_same = name.encode(encoding) == name.encode()
        except UnicodeEncodeError:
            is_same = False
        if not is_same:
            raise InvalidInput(
                f"the lock name {name!r} is another key in the client's encoding {encoding!r} than here, in utf-8: "
                "take a name in ASCII, or a client with encoding='utf-8'"
            )
        return name

    def _owned_token(self, message: str) -> str:
        if self.local.token is None:
            raise LockError(message, lock_name=self._lock_name())
        return self.local.token.decode()

    def _require_timeout(self, what: str) -> float:
        if self.timeout is None:
            raise LockError(f"Cannot {what} a lock with no timeout", lock_name=self._lock_name())
        return self.timeout

    def _lock_name(self) -> str:
        return as_text(self.name, "name")

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raise redis-py's errors instead of ours."""
        try:
            yield
        except LeaseLost as error:
            raise LockNotOwnedError(NOT_OWNED.format(what), lock_name=self._lock_name()) from error
        except StoreUnavailable as error:
            raise RedisConnectionError(str(error)) from error
        except StoreError as error:
            raise (AuthenticationError if is_password_refused(error) else ResponseError)(str(error)) from error

    def _after_block(self, error: BaseException | None, failure: LockError) -> None:
        """Handle a release that failed at the end of a `with` block; the block's own error takes precedence."""
        if error is not None:
            error.add_note(f"and afterwards: {failure}")
        elif self.raise_on_release_error:
            raise failure
        else:
            log.warning("lock.not_owned_at_exit", extra={"lock": self._lock_name()})


def as_text(value: Name, what: str) -> str:
    """Return a name or token, which redis-py also accepts as bytes, as text. Raises InvalidInput unless it is UTF-8."""
    if not value:
        raise InvalidInput(f"the {what} of a lock is empty")
    if isinstance(value, str):
        return str.__str__(value)  # not the name of an enumeration's member
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the {what} of a lock is text or UTF-8, not {bytes(value)!r}") from error


def named_plan(claim: LockClaim, token: str | None, timeout: float | None) -> Plan[tuple[LockClaim, Found]]:
    """Acquire, and then write the caller's own token as the lock's value.

    A caller's token may be in use twice, and a repeated acquire with the same holder id succeeds again: so the lock is
    taken under a unique id, and its value is changed in a second step.
    """
    found = yield from acquire_plan(claim, timeout, is_patient=False)
    if token is None:
        return claim, found
    try:
        is_renamed = yield from perform(RenameHolder(claim.name, claim.holder_id, token, is_key=claim.is_key))
    except GeneratorExit:
        raise
    except BaseException:
        with suppress(StoreError):  # the lease expires
            yield from perform(claim.releasing())
        raise
    if not is_renamed:
        raise LeaseLost(claim.name, claim.holder_id)
    return LockClaim(claim.name, token, claim.ttl_ms, claim.safety, claim.is_key), found


class AsyncLock(Terms[AsyncLease, AsyncClient]):
    """A lock with the methods, arguments and exceptions of redis-py's lock, on a lease of this library, for asyncio."""

    def _check_client(self) -> None:
        async_check_client(self.redis)

    async def __aenter__(self) -> Self:
        """Acquire. Raises LockError if the lock was not free in time."""
        if not await self.acquire():
            raise LockError(NOT_ACQUIRED, lock_name=self._lock_name())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; a failed release never hides the block's own error."""
        try:
            await self.release()
        except LockError as failure:
            self._after_block(error, failure)

    async def acquire(
        self,
        # threads: sleep: float | None = None,  # redis-py's own
        blocking: bool | None = None,  # noqa: FBT001  # redis-py's own
        blocking_timeout: float | None = None,
        token: Token | None = None,
    ) -> bool:
        """Wait as long as asked (default: the lock's own setting) and return whether the lock was acquired.

        The value of the key is `token`, or a random one if none is given.
        """
        own = None if token is None else as_text(token, "token")
        wanted = self._claim()
        plan = named_plan(wanted, own, self._seconds_to_wait(blocking=blocking, blocking_timeout=blocking_timeout))
        with self._errors("acquire"):
            try:
                claim, found = await run_async(plan, self._store)
            except AcquireTimeout:
                return False
            except LockUnreachable:
                async_release_later(wanted, self._store)
                raise
        self.local.hold(self._lease_of(claim, found))
        return True

    async def locked(self) -> bool:
        """Return whether any process holds the lock."""
        return bool(await self.redis.exists(self.name))

    async def owned(self) -> bool:
        """Return whether this object holds the lock, according to the server."""
        token = self.local.token
        if token is None:
            return False
        with self._errors("look at"):
            return isinstance(await self._store.execute(self._claim(token.decode()).adopting()), Acquired)

    async def release(self) -> None:
        """Release. Raises LockError if the lock is not held, LockNotOwnedError if it expired or changed hands."""
        token = self._owned_token("Cannot release a lock that's not owned or is already unlocked.")
        try:
            with self._errors("release"):
                await (await self._held(token)).release()
        except LockNotOwnedError:
            self.local.drop()
            raise
        self.local.drop()

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:  # noqa: FBT001, FBT002  # redis-py's own
        """Add seconds to the remaining time; with `replace_ttl`, count them from now."""
        token = self._owned_token("Cannot extend an unlocked lock")
        self._require_timeout("extend")
        with self._errors("extend"):
            lease = await self._held(token)
            seconds = 0.0 if replace_ttl else await self._seconds_left(token)
            await lease.renew(ttl=additional_time + seconds)
        return True

    async def reacquire(self) -> Literal[True]:
        """Reset the remaining time to `timeout`."""
        token = self._owned_token("Cannot reacquire an unlocked lock")
        timeout = self._require_timeout("reacquire")
        with self._errors("reacquire"):
            await (await self._held(token)).renew(ttl=timeout)
        return True

    @property
    def _store(self) -> AsyncRedisStore:
        return async_store_of(self.redis)

    async def _seconds_left(self, token: str) -> float:
        answer, _ = await run_async(adopt_plan(self._claim(token).adopting()), self._store)
        return answer.ttl_ms / 1000

    async def _held(self, token: str) -> AsyncLease:
        """Return a token's lease; ask the server if it was set from outside or before a fork, or is not trusted."""
        lease = self.local.known(token)
        if lease is None or not lease.is_trusted:
            claim = self._claim(token)
            lease = self._lease_of(claim, await run_async(adopt_plan(claim.adopting()), self._store))
            self.local.hold(lease)
        return lease

    def _lease_of(self, claim: LockClaim, found: Found) -> AsyncLease:
        return AsyncLease(self._store, claim, Renewal(not self.timeout, ENDLESS), *found)


# --- For threads: written by `make sync` from the classes above. ---


def check_client(client: Client) -> None:
    """Raise InvalidInput for anything but a client for threads."""
    if not isinstance(client, Client):
        usable_client(client, is_async=False)


class Lock(Terms[Lease, Client]):
    """A lock with the methods, arguments and exceptions of redis-py's lock, on a lease of this library, for threads."""

    def _check_client(self) -> None:
        check_client(self.redis)

    def __enter__(self) -> Self:
        """Acquire. Raises LockError if the lock was not free in time."""
        if not self.acquire():
            raise LockError(NOT_ACQUIRED, lock_name=self._lock_name())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; a failed release never hides the block's own error."""
        try:
            self.release()
        except LockError as failure:
            self._after_block(error, failure)

    def acquire(
        self,
        sleep: float | None = None,  # redis-py's own
        blocking: bool | None = None,  # noqa: FBT001  # redis-py's own
        blocking_timeout: float | None = None,
        token: Token | None = None,
    ) -> bool:
        """Wait as long as asked (default: the lock's own setting) and return whether the lock was acquired.

        The value of the key is `token`, or a random one if none is given.
        """
        own = None if token is None else as_text(token, "token")
        wanted = self._claim()
        plan = named_plan(wanted, own, self._seconds_to_wait(blocking=blocking, blocking_timeout=blocking_timeout))
        with self._errors("acquire"):
            try:
                claim, found = run_sync(plan, self._store)
            except AcquireTimeout:
                return False
            except LockUnreachable:
                release_later(wanted, self._store)
                raise
        self.local.hold(self._lease_of(claim, found))
        return True

    def locked(self) -> bool:
        """Return whether any process holds the lock."""
        return bool(self.redis.exists(self.name))

    def owned(self) -> bool:
        """Return whether this object holds the lock, according to the server."""
        token = self.local.token
        if token is None:
            return False
        with self._errors("look at"):
            return isinstance(self._store.execute(self._claim(token.decode()).adopting()), Acquired)

    def release(self) -> None:
        """Release. Raises LockError if the lock is not held, LockNotOwnedError if it expired or changed hands."""
        token = self._owned_token("Cannot release a lock that's not owned or is already unlocked.")
        try:
            with self._errors("release"):
                self._held(token).release()
        except LockNotOwnedError:
            self.local.drop()
            raise
        self.local.drop()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:  # noqa: FBT001, FBT002  # redis-py's own
        """Add seconds to the remaining time; with `replace_ttl`, count them from now."""
        token = self._owned_token("Cannot extend an unlocked lock")
        self._require_timeout("extend")
        with self._errors("extend"):
            lease = self._held(token)
            seconds = 0.0 if replace_ttl else self._seconds_left(token)
            lease.renew(ttl=additional_time + seconds)
        return True

    def reacquire(self) -> Literal[True]:
        """Reset the remaining time to `timeout`."""
        token = self._owned_token("Cannot reacquire an unlocked lock")
        timeout = self._require_timeout("reacquire")
        with self._errors("reacquire"):
            self._held(token).renew(ttl=timeout)
        return True

    @property
    def _store(self) -> RedisStore:
        return store_of(self.redis)

    def _seconds_left(self, token: str) -> float:
        answer, _ = run_sync(adopt_plan(self._claim(token).adopting()), self._store)
        return answer.ttl_ms / 1000

    def _held(self, token: str) -> Lease:
        """Return a token's lease; ask the server if it was set from outside or before a fork, or is not trusted."""
        lease = self.local.known(token)
        if lease is None or not lease.is_trusted:
            claim = self._claim(token)
            lease = self._lease_of(claim, run_sync(adopt_plan(claim.adopting()), self._store))
            self.local.hold(lease)
        return lease

    def _lease_of(self, claim: LockClaim, found: Found) -> Lease:
        return Lease(self._store, claim, Renewal(not self.timeout, ENDLESS), *found)
