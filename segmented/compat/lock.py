"""A lock with the interface of redis-py's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from redis.exceptions import LockError, LockNotOwnedError

from segmented.compat.terms import (
    ENDLESS,
    NOT_ACQUIRED,
    AsyncClient,
    Client,
    Terms,
    Token,
    as_text,
    async_check_client,
    async_store_of,
    check_client,
    named_plan,
    store_of,
)
from segmented.errors import AcquireTimeout, LockUnreachable
from segmented.locks.handle import Found, adopt_plan
from segmented.locks.keeper import async_release_later, release_later
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import Renewal
from segmented.models import Acquired
from segmented.plans import run_async, run_sync

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.locks.lock import LockClaim
    from segmented.stores.redis import AsyncRedisStore, RedisStore


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
