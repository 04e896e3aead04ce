"""Idempotent execution for functions and web handlers, for asyncio: work runs once per key; repeats get its result."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from segmented.dedup.async_run import AsyncRun, async_begun
from segmented.dedup.base import NOTHING, WHO, DedupBase, checked_identity
from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, dumped, loaded  # asyncio only

# threads: from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, awaited, dumped, loaded
from segmented.dedup.run_state import Replay
from segmented.dedup.terms import DAY, DEFAULT_TTL, DedupOptions
from segmented.locks.call_keys import name_of
from segmented.locks.durations import checked_timeout
from segmented.models.dedup import NotUnknown
from segmented.plans import perform, run_async
from segmented.plans.store_kinds import async_store, check_given
from segmented.protocol import FreeKey, ReadRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from segmented.clock import Duration
    from segmented.dedup.identity import Identity
    from segmented.dedup.terms import OnCrash, RunClaim
    from segmented.models.dedup import Freed, RecordState
    from segmented.plans.drivers import AsyncStore

P = ParamSpec("P")
V = TypeVar("V")


class AsyncDedup(DedupBase):
    """Runs a coroutine function once per key, for asyncio.

    ```python
    payments = AsyncDedup(store, "payments", keep=86_400)

    async with await payments.begin(request.headers["Idempotency-Key"], payload=request.json) as run:
        answer = run.result if run.is_replay else await charge(request.json)
        if not run.is_replay:
            await run.finish(answer)
    ```

    Guaranteed, by the store's clock and as long as the store loses nothing: at most one call per key has a valid lease,
    and once a call has finished, repeats get its result for `keep` seconds. Not guaranteed: a call that stalls for
    longer than its lease may continue beside the next one, and a call that died may have done some of its work. After
    `ttl` seconds another call runs and repeats the first one's effects outside the store. With `on_crash="unknown"`
    none does: such a key raises EffectUnknown until it is settled or freed.
    """

    def __init__(  # noqa: PLR0913  # each is an option of its own
        self,
        store: AsyncStore | Callable[[], AsyncStore],
        namespace: str,
        *,
        keep: Duration | str = DAY,
        keep_failures: Duration | str = 0.0,
        ttl: Duration | str = DEFAULT_TTL,
        dump: Callable[[Any], str] = dumped,
        load: Callable[[str], Any] = loaded,
        size_max: int = DEFAULT_SIZE_MAX,
        on_crash: OnCrash = "again",
    ) -> None:
        """Create an instance that keeps its records on `store`, under keys of `namespace`.

        Results are kept for `keep` seconds, failures for `keep_failures` seconds (0: a repeat runs again); each may be
        a text such as "30s", "5m", "2h" or "1d". A call whose process dies keeps its key for `ttl` seconds; a running
        call renews its lease. `dump` turns a result into text, `load` reads it back. With `on_crash="unknown"`, a call
        that may or may not have been made, since its process died or it raised, is not made again: at most once.
        """
        super().__init__(namespace, DedupOptions(keep, keep_failures, ttl, dump, load, size_max, on_crash))
        check_given(store, WHO, is_async=True)
        self._given = store

    async def begin(self, key: str, *, payload: object = NOTHING, timeout: Duration | None = 0.0) -> AsyncRun | Replay:
        """Begin the run of `key`, or return the replay of the run that has ended.

        With a `payload` (any value that `canonical` can write), a key that was used with another payload is refused.
        Waits up to `timeout` seconds for a call in flight. Raises InFlight (409), OtherPayload (422), CallCancelled,
        EffectUnknown.
        """
        identity = self._identity(key, payload)
        return await self._begun(self._claim(identity, None, key), identity, timeout)

    async def call(
        self,
        key: str,
        function: Callable[[], Awaitable[V]],
        *,
        payload: object = NOTHING,
        timeout: Duration | None = 0.0,
    ) -> V:
        """Return the result of `function`, or the kept result of its first call, read by `load`; see `begin`."""
        return await self._called(await self.begin(key, payload=payload, timeout=timeout), function)

    def __call__(
        self,
        key: str | Callable[..., object] | None = None,
        *,
        payload: str | Callable[..., object] | bool = True,
        timeout: Duration | None = 0.0,
    ) -> Callable[[Callable[P, Coroutine[Any, Any, V]]], Callable[P, Coroutine[Any, Any, V]]]:
        """Decorate a coroutine function: calls with equal keys run once.

        `key` is an expression over the arguments such as `"{order.id}"`, a callable that takes the arguments, or None
        for all of them. `payload` selects what else must be equal (True: all arguments); otherwise OtherPayload is
        raised.
        """
        checked_timeout(timeout)

        def decorate(function: Callable[P, Coroutine[Any, Any, V]]) -> Callable[P, Coroutine[Any, Any, V]]:
            identity = checked_identity(self, function, key, payload=payload, wanted="coroutine function")

            @wraps(function)
            async def run(*arguments: P.args, **options: P.kwargs) -> V:
                found = identity.of(arguments, options)
                turn = await self._begun(self._claim(found, name_of(function)), found, timeout)
                return await self._called(turn, lambda: function(*arguments, **options))

            return run

        return decorate

    async def read(self, key: str) -> RecordState | None:
        """Return the record of a key, or None if the key was never used or is forgotten."""
        return await run_async(perform(ReadRecord(self._record(key))), async_store(self._given, WHO))

    async def settle(self, key: str, result: object = None) -> bool:
        """Settle an unknown call as made: repeats get this result. Returns False if nothing is unknown.

        `free` settles it as not made, so that the next call makes it.
        """
        operation = self._settling(key, result)
        return not isinstance(await run_async(perform(operation), async_store(self._given, WHO)), NotUnknown)

    async def free(self, key: str) -> Freed:
        """End the run or message that holds a key, and forget its outcome. A running call cannot keep its result."""
        return await run_async(perform(FreeKey(self._record(key))), async_store(self._given, WHO))

    async def _begun(self, claim: RunClaim, identity: Identity, timeout: Duration | None) -> AsyncRun | Replay:
        store = async_store(self._given, WHO)
        return await async_begun(store, claim, identity.payload_print, timeout, self._form)

    async def _called(self, turn: AsyncRun | Replay, function: Callable[[], Awaitable[V]]) -> V:
        if isinstance(turn, Replay):
            return turn.result  # type: ignore[no-any-return]  # what the function gave
        async with turn:
            result = await function()  # asyncio only
            # threads: result = awaited(function(), function)
            await turn.finish_or_owe(result)
        return result
