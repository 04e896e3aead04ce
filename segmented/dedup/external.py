"""Effects outside the store: a text message, a payment, a parcel. Nothing here can make them happen exactly once.

The provider is not part of any transaction of ours. When a process dies in the call, or the call raises, it may have
been made or not, and only the provider knows. You choose a policy for this case for each effect:

| policy | after a death or an error in the call | so the provider is called |
| --- | --- | --- |
| `provider_key` | called again, with the same key, which the provider recognises | once or more, and does it once |
| `at_most_once` | unknown: not called again until a resolver or a human settles it | once or never |
| `at_least_once` | called again | once or more, and may do it more than once |

All three hold as long as the record is kept (`keep` seconds), on a store that loses nothing. A Redis that was emptied,
or that failed over to a replica that lagged, has forgotten what was done, and the provider is called again. Only a
provider that recognises keys can detect this, because the key is made of the namespace and the key alone.

A process that stalls in the call for longer than its lease counts as dead, and may make its call afterwards. So a late
call may overtake a resolver's `NotDone`: return it only if the provider would refuse such a call, or after a time by
which no process can still be stalled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args
from uuid import uuid4

from segmented.dedup.async_run import AsyncRun, async_begun
from segmented.dedup.base import NOTHING
from segmented.dedup.identity import explicit_key, payload_print
from segmented.dedup.outcomes import NeverAwaited, OutcomeForm, awaited
from segmented.dedup.run import Run, begun
from segmented.dedup.run_state import Replay
from segmented.dedup.terms import DAY, DEFAULT_TTL, DedupOptions, RunClaim, checked_namespace
from segmented.errors import EffectUnknown, InvalidInput, SegmentedError
from segmented.locks.call_keys import name_of
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import milliseconds
from segmented.models.dedup import NotUnknown, RecordName
from segmented.plans import perform, run_async, run_sync
from segmented.plans.store_kinds import async_store, check_given, sync_store
from segmented.protocol import ReadRecord, SettleRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.clock import Duration
    from segmented.models.dedup import RecordState
    from segmented.plans import Plan
    from segmented.plans.drivers import AsyncStore, Store

V = TypeVar("V")
Policy = Literal["provider_key", "at_most_once", "at_least_once"]
WHO: Final = "an ExternalEffect"
JSON: Final = OutcomeForm()
CALLED: Final = "the provider was called, and its result may not have been kept"
SETTLED_MAX: Final = 10
"""How often one call settles a key that other calls make unknown again."""


@dataclass(frozen=True, slots=True)
class Done:
    """A resolver's answer: the effect was done, and repeats get this result."""

    result: object = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """A resolver's answer: the effect was not done, and no earlier call can still do it. It is called again."""


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """A resolver's answer: it is not known, or not yet."""


Resolution = Done | NotDone | StillUnknown


def effect_scope(namespace: str) -> str:
    """Return the scope of an effect's keys. It differs from that of a `Dedup` of the same namespace."""
    return f"effect:{namespace}"


class EffectBase:
    """Policy, records and keys of the sync and the async class."""

    def __init__(
        self,
        namespace: str,
        options: DedupOptions,
        policy: Policy,
        resolver: object,
        certain: tuple[type[BaseException], ...],
    ) -> None:
        """Create the shared part of both classes. Raises InvalidInput if the arguments contradict each other."""
        self.namespace = checked_namespace(namespace)
        self.policy = _checked_policy(policy, resolver, certain)
        milliseconds(options.keep, "keep")
        self._certain = tuple(certain)
        self._form = options.form
        terms = options.terms(f"{namespace} ({policy})")
        self._terms = replace(terms, on_lapse="unknown") if policy == "at_most_once" else terms

    def __repr__(self) -> str:
        """Return the class name, the namespace and the policy."""
        return f"{type(self).__name__}({self.namespace!r}, policy={self.policy!r})"

    def provider_key(self, key: str) -> str:
        """Return the key that the provider gets for `key`: the same in every attempt, process and version.

        It is also the key of the record, as `segmented dedup list` shows it.
        """
        return explicit_key(effect_scope(self.namespace), key)

    def _record(self, key: str) -> RecordName:
        return RecordName(self.namespace, self.provider_key(key))

    def _claim(self, key: str) -> RunClaim:
        return RunClaim(key, new_holder_id(), self._terms.ttl_ms, self._record(key), f"call-{uuid4().hex}", self._terms)

    def _is_in_doubt(self, error: BaseException) -> bool:
        return self.policy == "at_most_once" and not isinstance(error, (NeverAwaited, *self._certain))

    def _settling(self, key: str, found: Resolution, of_message: str = "") -> Plan[bool]:
        """Settle an unknown call. Returns False if it is not unknown, or the unknown call is another message's."""
        kind, body = self._form.written(found.result) if isinstance(found, Done) else (None, "")
        times = (self._terms.remember_ms, self._terms.keep_ms)
        operation = SettleRun(self._record(key), times[0], kind, body, keep_ms=times[1], of_message=of_message)
        return not isinstance((yield from perform(operation)), NotUnknown)


def _options(keep: Duration, ttl: Duration, form: OutcomeForm) -> DedupOptions:
    return DedupOptions(keep, 0.0, ttl, form.dump, form.load, form.size_max)


def _checked_policy(policy: Policy, resolver: object, certain: object) -> Policy:
    if policy not in get_args(Policy):
        message = f"the policy of an effect is one of {', '.join(get_args(Policy))}, not {policy!r}"
        raise InvalidInput(message)
    if resolver is not None and not callable(resolver):
        message = f"the resolver of an effect is a callable that is given key and provider key, not {resolver!r}"
        raise InvalidInput(message)
    is_types = isinstance(certain, tuple) and all(
        isinstance(one, type) and issubclass(one, BaseException) for one in certain
    )
    if not is_types:
        message = f"the certain errors of an effect are a tuple of exception types, not {certain!r}"
        raise InvalidInput(message)
    if policy != "at_most_once" and (resolver is not None or certain):
        message = f"resolver and certain belong to at_most_once: under {policy} nothing is unknown"
        raise InvalidInput(message)
    return policy


def _checked(found: object) -> Resolution:
    if not isinstance(found, Resolution):
        message = f"the resolver of an effect answers with Done(result), NotDone() or StillUnknown(), not {found!r:.80}"
        raise InvalidInput(message)
    return found


class AsyncExternalEffect(EffectBase):
    """Calls a provider outside under a stated policy, for asyncio.

    ```python
    sms = AsyncExternalEffect(store, "order-sms", policy="at_most_once", certain=(ConnectionRefusedError,))
    await sms.perform(order.id, lambda provider_key: provider.send(order.mobile, text, reference=provider_key))
    ```

    Guaranteed, by the store's clock and for `keep` seconds: at most one call per key is under way, and once a call has
    returned, repeats get its result without a call. The policy decides what a death or an error in the call means; see
    this module. Not guaranteed, because nobody can: that the provider does it exactly once.
    """

    def __init__(
        self,
        store: AsyncStore | Callable[[], AsyncStore],
        namespace: str,
        *,
        policy: Policy,
        resolver: Callable[[str, str], Awaitable[Resolution]] | None = None,
        certain: tuple[type[BaseException], ...] = (),
        ttl: Duration = DEFAULT_TTL,
        keep: Duration = DAY,
        form: OutcomeForm = JSON,
    ) -> None:
        """Create an effect that keeps its records on `store`; `namespace` names the effect and is part of its keys.

        With `at_most_once`, errors of the `certain` types prove that nothing was sent, so they free the key.
        `resolver(key, provider_key)` asks the provider what became of an unknown call, and returns `Done(result)`,
        `NotDone()` or `StillUnknown()`. A call whose process dies keeps its key for `ttl` seconds. Results are kept
        for `keep` seconds, written by `form` (default: JSON). After that the key counts as new, so choose `keep` longer
        than the latest time at which a repeat may arrive.
        """
        super().__init__(namespace, _options(keep, ttl, form), policy, resolver, certain)
        if resolver is not None and not iscoroutinefunction(resolver):  # asyncio only
            message = "the resolver of an AsyncExternalEffect is a coroutine function"
            raise InvalidInput(message)
        # threads: if iscoroutinefunction(resolver):
        # threads:     message = "the resolver of an ExternalEffect is a function, not a coroutine_function"
        # threads:     raise InvalidInput(message)
        check_given(store, WHO, is_async=True)
        self._given = store
        self._resolver = resolver

    async def perform(
        self,
        key: str,
        function: Callable[[str], Awaitable[V]],
        *,
        payload: object = NOTHING,
        timeout: Duration | None = 0.0,
    ) -> V:
        """Return the result of `function`, or the kept result of its first call; `function` gets the provider's key.

        An error in the call is raised unchanged; cancelling the call counts as one. Waits up to `timeout` seconds for a
        call in flight. Raises InFlight, EffectUnknown (at_most_once), OtherPayload if the key was used with another
        `payload`, and RunLost if the call was made but its result could not be kept.
        """
        # threads: if iscoroutinefunction(function):
        # threads:     message = f"an ExternalEffect calls a function, and {name_of(function)} is a coroutine_function"
        # threads:     raise InvalidInput(message)
        seen = "" if payload is NOTHING else payload_print(payload)
        for _ in range(SETTLED_MAX):
            try:
                run = await async_begun(self._store(), self._claim(key), seen, timeout, self._form)
            except EffectUnknown as unknown:
                await self._resolve(key, unknown)
            else:
                return await self._called(run, key, function)
        raise EffectUnknown(key, "?")

    async def settle(self, key: str, *, done: object) -> bool:
        """Settle the unknown call as made, with the result `done` for repeats. Returns False if nothing was unknown."""
        return await run_async(self._settling(key, Done(done)), self._store())

    async def settle_not_done(self, key: str) -> bool:
        """Settle the unknown call as never made, so the next perform calls. Returns False if nothing was unknown."""
        return await run_async(self._settling(key, NotDone()), self._store())

    async def read(self, key: str) -> RecordState | None:
        """Return the record of a key, or None if the key was never used or is forgotten."""
        return await run_async(perform(ReadRecord(self._record(key))), self._store())

    def _store(self) -> AsyncStore:
        return async_store(self._given, WHO)

    async def _resolve(self, key: str, unknown: EffectUnknown) -> None:
        found: Resolution = StillUnknown()
        if self._resolver is not None:
            found = _checked(await self._resolver(key, self.provider_key(key)))
        if isinstance(found, StillUnknown):
            raise unknown
        await run_async(self._settling(key, found, unknown.message_id), self._store())

    async def _called(self, run: AsyncRun | Replay, key: str, function: Callable[[str], Awaitable[V]]) -> V:
        if isinstance(run, Replay):
            return run.result  # type: ignore[no-any-return]  # what the function gave
        try:
            result = await function(self.provider_key(key))  # asyncio only
            # threads: result = awaited(function(self.provider_key(key)), function)
        except BaseException as error:
            try:
                await (run.doubt() if self._is_in_doubt(error) else run.abandon())
            except SegmentedError as failure:
                error.add_note(f"and afterwards: {failure}")
            raise
        try:
            await run.finish(result)
        except SegmentedError as failure:
            failure.add_note(CALLED)
            raise
        return result


# --- For threads: written by `make sync` from the classes above. ---


class ExternalEffect(EffectBase):
    """Calls a provider outside under a stated policy, for threads.

    ```python
    sms = ExternalEffect(store, "order-sms", policy="at_most_once", certain=(ConnectionRefusedError,))
    sms.perform(order.id, lambda provider_key: provider.send(order.mobile, text, reference=provider_key))
    ```

    Guaranteed, by the store's clock and for `keep` seconds: at most one call per key is under way, and once a call has
    returned, repeats get its result without a call. The policy decides what a death or an error in the call means; see
    this module. Not guaranteed, because nobody can: that the provider does it exactly once.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store],
        namespace: str,
        *,
        policy: Policy,
        resolver: Callable[[str, str], Resolution] | None = None,
        certain: tuple[type[BaseException], ...] = (),
        ttl: Duration = DEFAULT_TTL,
        keep: Duration = DAY,
        form: OutcomeForm = JSON,
    ) -> None:
        """Create an effect that keeps its records on `store`; `namespace` names the effect and is part of its keys.

        With `at_most_once`, errors of the `certain` types prove that nothing was sent, so they free the key.
        `resolver(key, provider_key)` asks the provider what became of an unknown call, and returns `Done(result)`,
        `NotDone()` or `StillUnknown()`. A call whose process dies keeps its key for `ttl` seconds. Results are kept
        for `keep` seconds, written by `form` (default: JSON). After that the key counts as new, so choose `keep` longer
        than the latest time at which a repeat may arrive.
        """
        super().__init__(namespace, _options(keep, ttl, form), policy, resolver, certain)
        if iscoroutinefunction(resolver):
            message = "the resolver of an ExternalEffect is a function, not a coroutine function"
            raise InvalidInput(message)
        check_given(store, WHO, is_async=False)
        self._given = store
        self._resolver = resolver

    def perform(
        self,
        key: str,
        function: Callable[[str], V],
        *,
        payload: object = NOTHING,
        timeout: Duration | None = 0.0,
    ) -> V:
        """Return the result of `function`, or the kept result of its first call; `function` gets the provider's key.

        An error in the call is raised unchanged; cancelling the call counts as one. Waits up to `timeout` seconds for a
        call in flight. Raises InFlight, EffectUnknown (at_most_once), OtherPayload if the key was used with another
        `payload`, and RunLost if the call was made but its result could not be kept.
        """
        if iscoroutinefunction(function):
            message = f"an ExternalEffect calls a function, and {name_of(function)} is a coroutine function"
            raise InvalidInput(message)
        seen = "" if payload is NOTHING else payload_print(payload)
        for _ in range(SETTLED_MAX):
            try:
                run = begun(self._store(), self._claim(key), seen, timeout, self._form)
            except EffectUnknown as unknown:
                self._resolve(key, unknown)
            else:
                return self._called(run, key, function)
        raise EffectUnknown(key, "?")

    def settle(self, key: str, *, done: object) -> bool:
        """Settle the unknown call as made, with the result `done` for repeats. Returns False if nothing was unknown."""
        return run_sync(self._settling(key, Done(done)), self._store())

    def settle_not_done(self, key: str) -> bool:
        """Settle the unknown call as never made, so the next perform calls. Returns False if nothing was unknown."""
        return run_sync(self._settling(key, NotDone()), self._store())

    def read(self, key: str) -> RecordState | None:
        """Return the record of a key, or None if the key was never used or is forgotten."""
        return run_sync(perform(ReadRecord(self._record(key))), self._store())

    def _store(self) -> Store:
        return sync_store(self._given, WHO)

    def _resolve(self, key: str, unknown: EffectUnknown) -> None:
        found: Resolution = StillUnknown()
        if self._resolver is not None:
            found = _checked(self._resolver(key, self.provider_key(key)))
        if isinstance(found, StillUnknown):
            raise unknown
        run_sync(self._settling(key, found, unknown.message_id), self._store())

    def _called(self, run: Run | Replay, key: str, function: Callable[[str], V]) -> V:
        if isinstance(run, Replay):
            return run.result  # type: ignore[no-any-return]  # what the function gave
        try:
            result = awaited(function(self.provider_key(key)), function)
        except BaseException as error:
            try:
                (run.doubt() if self._is_in_doubt(error) else run.abandon())
            except SegmentedError as failure:
                error.add_note(f"and afterwards: {failure}")
            raise
        try:
            run.finish(result)
        except SegmentedError as failure:
            failure.add_note(CALLED)
            raise
        return result
