"""Idempotent execution for functions and web handlers: work runs once per key; repeats get its result."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar
from uuid import uuid4

from segmented.clock import WallClock, in_seconds
from segmented.dedup.identity import CallIdentity, Identity, checked_key, explicit_key, payload_print
from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, awaited, dumped, loaded
from segmented.dedup.run import AsyncRun, Replay, Run, async_begun, begun
from segmented.dedup.terms import DAY, DEFAULT_TTL, DedupOptions, RunClaim, checked_namespace, read_words
from segmented.errors import InFlight, InvalidInput
from segmented.locks.call_keys import checked_function, name_of, shape_of
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import checked_timeout
from segmented.models.dedup import NotUnknown, RecordName
from segmented.plans import perform, run_async, run_sync
from segmented.plans.store_kinds import async_store, check_given, sync_store
from segmented.protocol import FreeKey, ReadRecord, SettleRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from segmented.clock import Clock, Duration
    from segmented.dedup.terms import OnCrash
    from segmented.models.dedup import Freed, RecordState
    from segmented.plans.drivers import AsyncStore, Store


P = ParamSpec("P")
V = TypeVar("V")
WHO: Final = "a Dedup"
NOTHING: Final = object()
SLOTS_MAX: Final = 10**11
"""More than the number of any slot, so that a name that is too long is refused when the function is decorated."""
WALL: Final = WallClock()


class DedupBase:
    """Namespace and options of the sync and the async class."""

    def __init__(self, namespace: str, options: DedupOptions) -> None:
        self.namespace = checked_namespace(namespace)
        self._options = options
        self._terms = options.terms(namespace)
        self._form = options.form

    def with_times(self, keep: Duration | None = None, ttl: Duration | None = None) -> Self:
        """Return the same deduplication, but for how long results are kept and how long a dead process holds a key."""
        other, options = copy(self), self._options
        times = options.keep if keep is None else keep, options.ttl if ttl is None else ttl
        DedupBase.__init__(other, self.namespace, replace(options, keep=times[0], ttl=times[1]))
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.namespace!r})"

    def _identity(self, key: str, payload: object) -> Identity:
        return Identity(explicit_key(self.namespace, key), "" if payload is NOTHING else payload_print(payload))

    def _record(self, key: str) -> RecordName:
        return RecordName(self.namespace, explicit_key(self.namespace, key))

    def _settling(self, key: str, result: object) -> SettleRun:
        kind, body = self._form.written(result)
        terms = self._terms
        return SettleRun(self._record(key), terms.remember_ms, kind, body, keep_ms=terms.keep_ms)

    def _claim(self, identity: Identity, task: str | None, shown: str | None = None) -> RunClaim:
        holder_id = new_holder_id()
        terms = self._terms if task is None else self._options.terms(task)
        record = RecordName(self.namespace, identity.key)
        return RunClaim(shown or identity.key, holder_id, terms.ttl_ms, record, f"call-{uuid4().hex}", terms)


def checked_identity(
    dedup: DedupBase,
    function: Callable[..., Any],
    key: str | Callable[..., object] | None,
    *,
    payload: str | Callable[..., object] | bool,
    wanted: str,
) -> CallIdentity:
    """Return how the calls of `function` are identified. Raises InvalidInput if it is not a `wanted`, or a lambda."""
    checked_function(function, f"@{type(dedup).__name__}(...)")
    kind = shape_of(function)
    if kind != wanted:
        article = "an" if kind[0] == "a" else "a"
        raise InvalidInput(f"{type(dedup).__name__} runs a {wanted}, and {name_of(function)} is {article} {kind}")
    if name_of(function).endswith("<lambda>"):
        raise InvalidInput(
            f"{name_of(function)} has no name of its own, so its calls could not be distinguished from another lambda's"
        )
    return CallIdentity(name_of(function), function, key=key, payload=payload)


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


def once_per(
    period: Duration | str,
    *,
    store: Store | Callable[[], Store],
    name: str | None = None,
    ttl: Duration = 30.0,
    clock: Clock = WALL,
) -> Callable[[Callable[P, V]], Callable[P, V | None]]:
    """Decorate a function: the first call in a slot runs it, and every other call in that slot returns None at once.

    Slots are counted from 1970 by the caller's wall clock: with a period of 300 seconds, every five minutes of the
    hour. A clock that is off by less than a period runs nothing twice in a slot.

    `period` is a number of seconds, a timedelta, or a text such as "30s", "5m", "2h" or "1d". `name` identifies the
    function over all processes (default: its module and name); `clock` is the wall clock. A run that raises frees its
    slot for the next call. A process that dies in the function keeps the slot for `ttl` seconds; then the next call in
    the slot runs it again.
    Raises InvalidInput for a bad period, and for anything but a function.
    """
    seconds = _seconds(period)
    dedup = Dedup(store, "once-per", keep=2 * seconds, ttl=ttl, dump=lambda _: "null")

    def decorate(function: Callable[P, V]) -> Callable[P, V | None]:
        checked_function(function, "@once_per(...)")
        if shape_of(function) != "function":
            raise InvalidInput(f"once_per runs a function, and {name_of(function)} is a {shape_of(function)}")
        scope = name or name_of(function)
        checked_key(f"{scope} {seconds:g} {SLOTS_MAX}", "the name of a job with its period and slot")

        @wraps(function)
        def run(*arguments: P.args, **options: P.kwargs) -> V | None:
            try:
                turn = dedup.begin(f"{scope} {seconds:g} {int(clock.now() // seconds)}")
            except InFlight:
                return None
            with turn:
                if turn.is_replay:
                    return None
                result = function(*arguments, **options)
                turn.finish()
            return result

        return run

    return decorate


def _seconds(period: Duration | str) -> float:
    found: object = in_seconds(read_words(period))
    if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found <= 366 * DAY:
        message = f"a period of {period!r} is not one: give seconds from 1 on, or a text such as '5m', '2h' or '1d'"
        raise InvalidInput(message)
    return float(found)


# --- For threads: written by `make sync` from the classes above. ---


class Dedup(DedupBase):
    """Runs a function once per key, for threads.

    ```python
    payments = Dedup(store, "payments", keep=86_400)

    with payments.begin(request.headers["Idempotency-Key"], payload=request.json) as run:
        answer = run.result if run.is_replay else charge(request.json)
        if not run.is_replay:
            run.finish(answer)
    ```

    Guaranteed, by the store's clock and as long as the store loses nothing: at most one call per key has a valid lease,
    and once a call has finished, repeats get its result for `keep` seconds. Not guaranteed: a call that stalls for
    longer than its lease may continue beside the next one, and a call that died may have done some of its work. After
    `ttl` seconds another call runs and repeats the first one's effects outside the store. With `on_crash="unknown"`
    none does: such a key raises EffectUnknown until it is settled or freed.
    """

    def __init__(  # noqa: PLR0913  # each is an option of its own
        self,
        store: Store | Callable[[], Store],
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
        check_given(store, WHO, is_async=False)
        self._given = store

    def begin(self, key: str, *, payload: object = NOTHING, timeout: Duration | None = 0.0) -> Run | Replay:
        """Begin the run of `key`, or return the replay of the run that has ended.

        With a `payload` (any value that `canonical` can write), a key that was used with another payload is refused.
        Waits up to `timeout` seconds for a call in flight. Raises InFlight (409), OtherPayload (422), CallCancelled,
        EffectUnknown.
        """
        identity = self._identity(key, payload)
        return self._begun(self._claim(identity, None, key), identity, timeout)

    def call(
        self,
        key: str,
        function: Callable[[], V],
        *,
        payload: object = NOTHING,
        timeout: Duration | None = 0.0,
    ) -> V:
        """Return the result of `function`, or the kept result of its first call, read by `load`; see `begin`."""
        return self._called(self.begin(key, payload=payload, timeout=timeout), function)

    def __call__(
        self,
        key: str | Callable[..., object] | None = None,
        *,
        payload: str | Callable[..., object] | bool = True,
        timeout: Duration | None = 0.0,
    ) -> Callable[[Callable[P, V]], Callable[P, V]]:
        """Decorate a function: calls with equal keys run once.

        `key` is an expression over the arguments such as `"{order.id}"`, a callable that takes the arguments, or None
        for all of them. `payload` selects what else must be equal (True: all arguments); otherwise OtherPayload is
        raised.
        """
        checked_timeout(timeout)

        def decorate(function: Callable[P, V]) -> Callable[P, V]:
            identity = checked_identity(self, function, key, payload=payload, wanted="function")

            @wraps(function)
            def run(*arguments: P.args, **options: P.kwargs) -> V:
                found = identity.of(arguments, options)
                turn = self._begun(self._claim(found, name_of(function)), found, timeout)
                return self._called(turn, lambda: function(*arguments, **options))

            return run

        return decorate

    def read(self, key: str) -> RecordState | None:
        """Return the record of a key, or None if the key was never used or is forgotten."""
        return run_sync(perform(ReadRecord(self._record(key))), sync_store(self._given, WHO))

    def settle(self, key: str, result: object = None) -> bool:
        """Settle an unknown call as made: repeats get this result. Returns False if nothing is unknown.

        `free` settles it as not made, so that the next call makes it.
        """
        operation = self._settling(key, result)
        return not isinstance(run_sync(perform(operation), sync_store(self._given, WHO)), NotUnknown)

    def free(self, key: str) -> Freed:
        """End the run or message that holds a key, and forget its outcome. A running call cannot keep its result."""
        return run_sync(perform(FreeKey(self._record(key))), sync_store(self._given, WHO))

    def _begun(self, claim: RunClaim, identity: Identity, timeout: Duration | None) -> Run | Replay:
        store = sync_store(self._given, WHO)
        return begun(store, claim, identity.payload_print, timeout, self._form)

    def _called(self, turn: Run | Replay, function: Callable[[], V]) -> V:
        if isinstance(turn, Replay):
            return turn.result  # type: ignore[no-any-return]  # what the function gave
        with turn:
            result = awaited(function(), function)
            turn.finish_or_owe(result)
        return result
