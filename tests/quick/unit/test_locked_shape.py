"""What `locked` refuses at the decoration, and what it leaves of a function as it was."""

from __future__ import annotations

import inspect
import pickle
from functools import partial
from math import inf, nan
from typing import TYPE_CHECKING, Any, cast

import pytest

from segmented import AsyncMemoryStore, MemoryStore
from segmented.errors import InvalidInput
from segmented.locks.call_keys import key_for
from segmented.locks.locked_decorator import locked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from segmented import AsyncLease, Lease

SYNC, ASYNC = MemoryStore(), AsyncMemoryStore()
HERE = "tests.quick.unit.test_locked_shape"
PARENTHESES = "a decorator without options needs its ()"


def plain(sku: str, quantity: int = 1) -> str:
    """Sell some."""
    return f"{quantity} of {sku}"


async def coroutine(sku: str, quantity: int = 1) -> str:
    return f"{quantity} of {sku}"


def generator(sku: str, quantity: int = 1) -> Iterator[str]:
    yield f"{quantity} of {sku}"


async def async_generator(sku: str, quantity: int = 1) -> AsyncIterator[str]:
    yield f"{quantity} of {sku}"


@locked("{sku}", store=SYNC)
def module_level(sku: str) -> str:
    return sku


def given_lease(sku: str, *, lease: Lease | None = None) -> int:
    return 0 if lease is None else lease.fencing_token * len(sku)


def is_kind(function: object) -> list[bool]:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.isfunction)
    return [kind(function) for kind in kinds]


@pytest.mark.parametrize("function", [plain, coroutine, generator, async_generator])
def test_a_locked_function_is_of_the_kind_it_was_and_has_its_name_and_signature(function: Callable[..., Any]) -> None:
    store = ASYNC if function in (coroutine, async_generator) else SYNC
    decorated = locked("{sku}", store=store)(function)
    assert is_kind(decorated) == is_kind(function)
    assert inspect.signature(decorated) == inspect.signature(function)
    assert (decorated.__name__, decorated.__doc__) == (function.__name__, function.__doc__)
    assert decorated.__wrapped__ is function  # type: ignore[attr-defined]  # functools.wraps sets it


def test_a_partial_and_an_object_that_can_be_called_keep_their_kind() -> None:
    class Seller:
        async def __call__(self, sku: str) -> str:
            return sku

    assert is_kind(locked("{sku}", store=ASYNC)(partial(coroutine, quantity=2)))[0]
    assert is_kind(locked("{sku}", store=ASYNC)(Seller()))[0]
    assert locked("{sku}:{quantity}", store=SYNC)(partial(plain, quantity=2))("shirt") == "2 of shirt"


def test_a_locked_function_can_be_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level  # noqa: S301  # our own bytes


def test_the_argument_for_the_lease_is_not_in_the_signature() -> None:
    decorated = locked("{sku}", store=SYNC, lease_as="lease")(given_lease)
    assert str(inspect.signature(decorated)) == "(sku: 'str') -> 'int'"
    with pytest.raises(TypeError, match="unexpected keyword argument 'lease'"):
        decorated("shirt", lease=None)


def test_the_key_of_a_call_can_be_asked_for() -> None:
    class Shop:
        name = "a:b"

        @locked("{self.name}:{sku}", store=SYNC)
        def sell(self, sku: str) -> str:
            return sku

    assert key_for(module_level, "a:b") == "a:b"
    assert key_for(Shop.sell, Shop(), "c") == "a%3Ab:c"
    assert key_for(Shop().sell, "c") == "a%3Ab:c"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ttl": 0}, "ttl of 0 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"ttl": nan}, "ttl of nan s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"renew_max": -1}, "renew_max of -1 s is not a duration: give between 0.001 and 9007199254740 s"),
        ({"timeout": -1}, "timeout of -1 s is not a waiting time: give 0 or more, or None for no limit"),
        ({"timeout": nan}, "timeout of nan s is not a waiting time: give 0 or more, or None for no limit"),
        ({"retries": -1}, "retries of -1 is not a number of further tries: give 0 or more"),
        ({"retries": 1.5}, "retries of 1.5 is not a number of further tries: give 0 or more"),
        ({"retries": True}, "retries of True is not a number of further tries: give 0 or more"),
        ({"retry_every": -1}, "retry_every of -1 s is not a time between tries: give 0 or more"),
        ({"retry_every": inf}, "retry_every of inf s is not a time between tries: give 0 or more"),
        ({"on_busy": "ignore"}, "on_busy is 'ignore': give one of raise, skip, run, or a callable"),
        ({"on_busy": None}, "on_busy is None: give one of raise, skip, run, or a callable"),
        ({"transaction": "sku", "release_with": print}, "locked takes transaction or release_with, not both"),
        ({"store": None}, f"locked on {HERE}.plain needs a store, or a callable that gives one, and got None"),
        (
            {"store": ASYNC},
            f"locked on {HERE}.plain needs a store for threads, such as RedisStore, and got AsyncMemoryStore",
        ),
        (
            {"lease_as": "lease"},
            f"{HERE}.plain cannot be given its lease as 'lease': that must be an argument by name, or the last by position",  # noqa: E501  # one sentence
        ),
        (
            {"lease_as": "sku"},
            f"{HERE}.plain cannot be given its lease as 'sku': that must be an argument by name, or the last by position",  # noqa: E501  # one sentence
        ),
        (
            {"lease_as": "quantity", "expression": "{quantity}"},
            f"key expression '{{quantity}}' of {HERE}.plain: 'quantity' is not an argument; there are sku",
        ),
        (
            {"transaction": "session"},
            f"transaction 'session' in locked on {HERE}.plain: 'session' is not an argument; there are sku, quantity",
        ),
        (
            {"transaction": "sku._session"},
            (
                f"transaction 'sku._session' in locked on {HERE}.plain: 'sku._session' reads '_session': "
                "attributes with a leading underscore are not read"
            ),
        ),
        ({"expression": 5}, f"key expression 5 of {HERE}.plain is neither a text nor a callable"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_at_the_decoration(options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"expression": "{sku}", "store": SYNC, **options}
    expression = given.pop("expression")
    with pytest.raises(InvalidInput) as caught:
        locked(expression, **given)(plain)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("function", [coroutine, async_generator])
def test_an_asynchronous_function_needs_an_asynchronous_store(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match=r"needs a store for asyncio, such as AsyncRedisStore, and got MemoryStore$"):
        locked("{sku}", store=SYNC)(function)


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (staticmethod(plain), f"@locked stands below @staticmethod, next to the function {HERE}.plain"),
        (classmethod(cast("Any", plain)), f"@locked stands below @classmethod, next to the function {HERE}.plain"),
        (MemoryStore, f"@locked decorates a function, not {MemoryStore!r}; {PARENTHESES}"),
        (5, f"@locked decorates a function, not 5; {PARENTHESES}"),
    ],
)
def test_what_is_no_function_is_refused(thing: Any, sentence: str) -> None:  # noqa: ANN401  # anything at all
    with pytest.raises(InvalidInput) as caught:
        locked("{sku}", store=SYNC)(thing)
    assert str(caught.value) == sentence


def test_a_callable_gives_the_store_when_a_call_needs_it_and_its_colour_is_checked() -> None:
    asked: list[str] = []

    def store() -> MemoryStore:
        asked.append("store")
        return SYNC

    decorated = locked("{sku}", store=store)(plain)
    assert asked == []
    assert decorated("shirt") == "1 of shirt"
    assert asked == ["store"]
    with pytest.raises(InvalidInput, match=r"needs a store for threads, such as RedisStore, and got AsyncMemoryStore$"):
        locked("{sku}", store=lambda: ASYNC)(plain)("shirt")
    with pytest.raises(InvalidInput, match=r"needs a store for threads, such as RedisStore, and got NoneType$"):
        locked("{sku}", store=lambda: None)(plain)("shirt")  # type: ignore[arg-type]  # what is tested


def test_work_that_would_run_after_the_release_is_refused() -> None:
    def makes_coroutine(sku: str) -> Any:  # noqa: ANN401  # a coroutine that must not run unlocked
        return coroutine(sku)

    def makes_generator(sku: str) -> Iterator[str]:
        return generator(sku)

    for function, kind in ((makes_coroutine, "coroutine"), (makes_generator, "generator")):
        with pytest.raises(InvalidInput, match=f"it returned {kind}, which would run unlocked; decorate what makes it"):
            locked("{sku}", store=SYNC)(function)("shirt")


def test_types_pass_through() -> None:
    """Nothing runs here that mypy does not look at first."""
    kept: str = locked("{sku}", store=SYNC)(plain)("shirt", quantity=2)
    skipped: str | None = locked("{sku}", store=SYNC, on_busy="skip")(plain)("shirt")
    token: int = locked("{sku}", store=SYNC, lease_as="lease")(given_lease)("shirt")

    @locked("{sku}", store=ASYNC, lease_as="lease")
    async def asynchronous(sku: str, *, lease: AsyncLease | None = None) -> str:
        return f"{sku} {lease}"

    assert inspect.iscoroutinefunction(asynchronous)
    assert (kept, skipped, token > 0) == ("2 of shirt", "1 of shirt", True)
