"""Effects outside, on each store and in each colour: who is called, when again, and what is unknown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from segmented import protocol as op
from segmented.dedup import (
    AsyncExternalEffect,
    Dedup,
    Done,
    EffectUnknown,
    ExternalEffect,
    InFlight,
    NotDone,
    ResultUnkept,
    RunLost,
    StillUnknown,
)
from segmented.errors import InvalidInput
from segmented.models.dedup import RecordName
from segmented.stores.memory import AsyncMemoryStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.dedup.external import Policy, Resolution
    from tests.fixtures.stores import Side

POLICIES: Final[list[Policy]] = ["provider_key", "at_most_once", "at_least_once"]
LEASE: Final = 60.0
DAY_MS: Final = 86_400_000


class Provider:
    """Counts its calls; what it does in one is a list of operations, and then an answer or an error."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.keys: list[str] = []
        self.answer: object = "sent"
        self.steps: Sequence[op.Operation[Any]] = ()

    def call(self) -> Callable[[str], Any]:
        return self._send if self.side.flavour.colour == "sync" else self._async_send

    def _send(self, provider_key: str) -> object:
        self.keys.append(provider_key)
        for step in self.steps:
            self.side.store.execute(step)
        return self._answered()

    async def _async_send(self, provider_key: str) -> object:
        self.keys.append(provider_key)
        for step in self.steps:
            await self.side.store.execute(step)
        return self._answered()

    def _answered(self) -> object:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Effects:
    """One effect on one side, and its provider."""

    def __init__(self, side: Side, policy: Policy, resolutions: Sequence[Resolution] | None = None) -> None:
        self.side, self.namespace = side, side.name("sms")
        self.provider = Provider(side)
        self.asked: list[tuple[str, str]] = []
        self.steps: Sequence[op.Operation[Any]] = ()
        self._resolutions = iter(resolutions or ())
        certain = (ConnectionRefusedError,) if policy == "at_most_once" else ()
        has_resolver = resolutions is not None
        self.effect = side.made(
            lambda store: ExternalEffect(
                store,
                self.namespace,
                policy=policy,
                resolver=self._resolve if has_resolver else None,
                certain=certain,
                ttl=LEASE,
            ),
            lambda store: AsyncExternalEffect(
                store,
                self.namespace,
                policy=policy,
                resolver=self._async_resolve if has_resolver else None,
                certain=certain,
                ttl=LEASE,
            ),
        )

    @property
    def record(self) -> RecordName:
        return RecordName(self.namespace, self.effect.provider_key("a"))

    def perform(self, key: str = "a", **options: Any) -> object:  # noqa: ANN401  # those of perform
        return self.effect.perform(key, self.provider.call(), **options)

    def perform_and_fail(self, error: BaseException) -> None:
        self.provider.answer = error
        with pytest.raises(type(error)):
            self.perform()
        self.provider.answer = "sent"

    def begin(self, message: str, holder: str = "h", ttl_ms: int = 60_000) -> None:
        """Begin as another process does."""
        on_lapse = "unknown" if self.effect.policy == "at_most_once" else "again"
        terms: Any = {"on_lapse": on_lapse}
        self.side.execute(op.BeginRun(self.record, message, holder, "", "sms", ttl_ms, DAY_MS, **terms))

    def _resolve(self, key: str, provider_key: str) -> Resolution:
        self.asked.append((key, provider_key))
        for step in self.steps:
            self.side.store.execute(step)
        return next(self._resolutions)

    async def _async_resolve(self, key: str, provider_key: str) -> Resolution:
        self.asked.append((key, provider_key))
        for step in self.steps:
            await self.side.store.execute(step)
        return next(self._resolutions)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_repeat_gets_the_result_without_a_call(side: Side, policy: Policy) -> None:
    effects = Effects(side, policy)
    assert effects.perform() == "sent"
    effects.provider.answer = "sent again"
    assert effects.perform() == "sent"
    assert effects.provider.keys == [effects.effect.provider_key("a")]


@pytest.mark.parametrize("policy", ["provider_key", "at_least_once"])
def test_after_an_error_the_next_calls_again_with_the_same_key(side: Side, policy: Policy) -> None:
    effects = Effects(side, policy)
    effects.perform_and_fail(TimeoutError("no answer"))
    assert effects.perform() == "sent"
    assert effects.provider.keys == [effects.effect.provider_key("a")] * 2


@pytest.mark.parametrize("policy", ["provider_key", "at_least_once"])
def test_after_a_death_the_next_calls_again_once_the_lease_is_over(side: Side, policy: Policy) -> None:
    effects = Effects(side, policy)
    effects.begin("dead")
    with pytest.raises(InFlight, match="message 'dead' is running"):
        effects.perform()
    side.execute(op.RenewRun(effects.record, "dead", "h", 50, DAY_MS))
    side.pass_time(0.06)
    assert effects.perform() == "sent"
    assert len(effects.provider.keys) == 1


def test_at_most_once_an_error_makes_it_unknown_at_once(side: Side) -> None:
    effects = Effects(side, "at_most_once")
    effects.perform_and_fail(TimeoutError("no answer"))
    with pytest.raises(EffectUnknown, match="it is not known whether the work was done"):
        effects.perform(timeout=30.0)
    assert len(effects.provider.keys) == 1
    state = effects.effect.read("a")
    assert state is not None
    assert state.run is not None
    assert (state.run.is_unknown, state.task) == (True, f"{effects.namespace} (at_most_once)")


def test_at_most_once_an_error_that_proves_that_nothing_was_sent_leaves_the_key_free(side: Side) -> None:
    effects = Effects(side, "at_most_once")
    effects.perform_and_fail(ConnectionRefusedError("nobody there"))
    assert effects.perform() == "sent"


def test_a_resolver_that_says_done_gives_the_result_without_a_call(side: Side) -> None:
    effects = Effects(side, "at_most_once", [Done("sms-7")])
    effects.perform_and_fail(TimeoutError("no answer"))
    assert [effects.perform(), effects.perform()] == ["sms-7", "sms-7"]
    assert effects.asked == [("a", effects.effect.provider_key("a"))]
    assert len(effects.provider.keys) == 1


def test_a_resolver_that_says_not_done_has_it_called(side: Side) -> None:
    effects = Effects(side, "at_most_once", [NotDone()])
    effects.perform_and_fail(TimeoutError("no answer"))
    assert effects.perform() == "sent"
    assert len(effects.provider.keys) == 2


def test_a_resolver_that_cannot_tell_leaves_it_unknown(side: Side) -> None:
    effects = Effects(side, "at_most_once", [StillUnknown(), Done(None)])
    effects.perform_and_fail(TimeoutError("no answer"))
    with pytest.raises(EffectUnknown):
        effects.perform()
    assert effects.perform() is None


def test_a_resolver_that_knows_of_an_earlier_call_settles_no_later_one(side: Side) -> None:
    effects = Effects(side, "at_most_once", [NotDone(), StillUnknown()])
    effects.perform_and_fail(TimeoutError("no answer"))
    effects.steps = [  # while it asks, somebody else settles, calls, and does not learn
        op.SettleRun(effects.record, DAY_MS, None),
        op.BeginRun(effects.record, "later", "h", "", "sms", 60_000, DAY_MS, on_lapse="unknown"),
        op.DoubtRun(effects.record, "later", "h", DAY_MS),
    ]
    with pytest.raises(EffectUnknown) as raised:
        effects.perform()
    assert raised.value.message_id == "later"
    assert (len(effects.provider.keys), len(effects.asked)) == (1, 2)


def test_a_human_settles_it_as_done_or_as_not_done(side: Side) -> None:
    effects = Effects(side, "at_most_once")
    assert effects.effect.settle("a", done="sms-1") is False
    effects.perform_and_fail(TimeoutError("no answer"))
    assert effects.effect.settle("a", done="sms-1") is True
    assert effects.effect.settle_not_done("a") is False
    assert effects.perform() == "sms-1"
    effects.begin("dead", ttl_ms=1)  # kept: no run begins
    assert effects.perform() == "sms-1"
    other = Effects(side, "at_most_once")
    other.perform_and_fail(TimeoutError("no answer"))
    assert other.effect.settle_not_done("a") is True
    assert other.perform() == "sent"


def test_a_call_whose_run_is_lost_meanwhile_says_that_it_was_made(side: Side) -> None:
    effects = Effects(side, "at_most_once")
    effects.provider.steps = [op.FreeKey(effects.record)]
    with pytest.raises(RunLost) as raised:
        effects.perform()
    assert raised.value.__notes__ == ["the provider was called, and its result may not have been kept"]


def test_a_result_that_cannot_be_written_does_not_call_twice(side: Side) -> None:
    effects = Effects(side, "at_least_once")
    effects.provider.answer = {1, 2}
    assert effects.perform() == {1, 2}
    with pytest.raises(ResultUnkept):
        effects.perform()
    assert len(effects.provider.keys) == 1


def test_a_cancelled_call_is_unknown() -> None:
    async def scene() -> None:
        effect = AsyncExternalEffect(AsyncMemoryStore(), "sms", policy="at_most_once")
        is_called = asyncio.Event()

        async def hang(_: str) -> None:
            is_called.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(effect.perform("a", hang))
        await is_called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(EffectUnknown):
            await effect.perform("a", hang)

    asyncio.run(scene())


def test_the_provider_key_is_the_same_for_ever_and_for_this_effect_alone() -> None:
    store = MemoryStore()
    sms = ExternalEffect(store, "sms", policy="provider_key")
    assert sms.provider_key("a") == "1b928415b85569e8433102d2efa99e5f"
    other = ExternalEffect(store, "mail", policy="provider_key")
    assert len({sms.provider_key("a"), sms.provider_key("b"), other.provider_key("a")}) == 3


async def _resolve_later(_key: str, _provider_key: str) -> StillUnknown:
    return StillUnknown()


def test_functions_of_the_other_colour_are_refused_before_anything_is_sent() -> None:
    effect = ExternalEffect(MemoryStore(), "sms", policy="at_most_once")
    with pytest.raises(InvalidInput, match=r"calls a function, and .* is a coroutine function"):
        effect.perform("a", cast("Any", _resolve_later))
    assert effect.read("a") is None
    with pytest.raises(InvalidInput, match="is a function, not a coroutine function"):
        ExternalEffect(MemoryStore(), "sms", policy="at_most_once", resolver=cast("Any", _resolve_later))
    with pytest.raises(InvalidInput, match="is a coroutine function"):
        AsyncExternalEffect(AsyncMemoryStore(), "sms", policy="at_most_once", resolver=cast("Any", print))
    with pytest.raises(InvalidInput, match="needs a store for threads"):
        ExternalEffect(cast("Any", AsyncMemoryStore()), "sms", policy="at_most_once")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": "exactly_once"}, "one of provider_key, at_most_once, at_least_once, not 'exactly_once'"),
        ({"policy": "at_least_once", "resolver": print}, "resolver and certain belong to at_most_once"),
        ({"policy": "provider_key", "certain": (OSError,)}, "resolver and certain belong to at_most_once"),
        ({"policy": "at_most_once", "resolver": 1}, "the resolver of an effect is a callable"),
        ({"policy": "at_most_once", "certain": [OSError]}, "a tuple of exception types"),
        ({"policy": "at_most_once", "certain": ("OSError",)}, "a tuple of exception types"),
        ({"policy": "at_most_once", "keep": 0}, "keep of 0 s"),
        ({"policy": "at_most_once", "ttl": -1}, "ttl of -1 s"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        ExternalEffect(MemoryStore(), "sms", **options)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_coroutine_that_nothing_would_await_is_refused_and_leaves_the_key_free(policy: Policy) -> None:
    async def send() -> str:
        return "sent"

    def forgotten(*_: str) -> Any:  # noqa: ANN401  # a type checker would tell
        return send()

    effect = ExternalEffect(MemoryStore(), "sms", policy=policy)
    with pytest.raises(InvalidInput, match="gave a coroutine, which nothing awaits here"):
        effect.perform("k", forgotten)
    assert effect.perform("k", lambda _: "sent") == "sent"
    dedup = Dedup(MemoryStore(), "n")
    with pytest.raises(InvalidInput, match="gave a coroutine"):
        dedup.call("k", forgotten)
    assert dedup.call("k", lambda: "sent") == "sent"
