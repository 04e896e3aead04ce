"""One text is one id and one key, in whatever form it is given: every id times every form, in memory and on a server.

The text has an accent, which may be a character of its own, and a no-break space.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from functools import partial
from typing import Any, Final
from unicodedata import normalize
from uuid import UUID

import pytest
from kombu.utils import json

from segmented import Dedup, FairLock, Lock, MemoryStore, Pool, ReentrantLock, Semaphore, locked
from segmented.dedup import StoreEffect
from segmented.dedup.identity import CallIdentity
from segmented.errors import InvalidInput, StaleToken
from segmented.locks import MultiLock, fenced_set, key_for
from segmented.models import Order
from segmented.plans.drivers import Store
from segmented.stock import Cart, Carts, ShardedPool

TEXT: Final = "Caf\u00e9\u00a07"


class Mixed(str, Enum):  # noqa: UP042  # its str() is its name
    """An enumeration of texts, as written before StrEnum."""

    MEMBER = TEXT


class Plain(StrEnum):
    """An enumeration of texts."""

    MEMBER = TEXT


class Loud(str):
    """A text that is shown as another one, as translated and safe texts of web frameworks may be."""

    __slots__ = ()

    def __str__(self) -> str:
        return "loud"


FORMS: Final = {"enum": Mixed.MEMBER, "StrEnum": Plain.MEMBER, "subclass": Loud(TEXT), "NFD": normalize("NFD", TEXT)}


def opened(store: Store, limit_per_customer: int | None = None) -> Pool:
    pool = Pool(store, "mug")
    pool.open(stock=10, segments=2, limit_per_customer=limit_per_customer)
    return pool


def orders(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    for form in forms:
        pool.reserve(form)
        pool.reserve_many([Order(form)])
    return 10 - pool.available()


def orders_in_shards(store: Store, forms: Sequence[str]) -> int:
    pool = ShardedPool(store, "mug")
    pool.open(stock=10, shards=2, segments=2)
    for form in forms:
        pool.reserve(form)
        pool.confirm(form)
    return 10 - pool.available()


def ends(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    pool.reserve(forms[0])
    ended = [pool.confirm(forms[1]), *pool.confirm_many(forms)]
    return sum(not getattr(one, "replay", True) for one in ended)


def readings(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    pool.reserve(forms[0])
    pool.cancel(forms[1])
    return len({record.state for form in forms if (record := pool.order(form)) is not None})


def customers(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store, limit_per_customer=1)
    return sum(bool(pool.reserve(f"o-{number}", customer_id=form)) for number, form in enumerate(forms))


def holders(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    return len({getattr(pool.grant("o-1", holder_id=form, timeout=0), "fencing_token", form) for form in forms})


def restocks(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    for form in forms:
        pool.restock(1, restock_id=form)
    return pool.available() - 10


def withdrawals(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    for form in forms:
        pool.withdraw(1, withdraw_id=form)
    return 10 - pool.available()


def carts(store: Store, forms: Sequence[str]) -> int:
    pool = opened(store)
    for form in forms:
        Carts(store).reserve(Cart(form, [("mug", 1)]))
        Carts(store).confirm(form, home="mug")
    return 10 - pool.available()


def skus(store: Store, forms: Sequence[str]) -> int:
    Pool(store, forms[0]).open(stock=10, segments=1)
    Pool(store, forms[1]).reserve("o-1")
    cart = Cart("c-1", [(forms[2], 1)])
    Carts(store).reserve(cart)
    Carts(store).cancel("c-1", home=forms[0])
    return 10 - Pool(store, forms[2]).available()


def locks(store: Store, forms: Sequence[str]) -> int:
    kinds: list[Callable[[str], Any]] = [
        lambda form: Lock(store, form, ttl=60),
        lambda form: FairLock(store, form, ttl=60),
        lambda form: MultiLock(store, [form], ttl=60),
        lambda form: Semaphore(store, form, permits=1, ttl=60),
    ]
    taken = 0
    for kind in kinds:
        leases = [lease for form in forms if (lease := kind(form).try_acquire())]
        taken = max(taken, len(leases))
        leases[0].release()
    return taken


def owners(store: Store, forms: Sequence[str]) -> int:
    leases = [ReentrantLock(store, "stock", ttl=60, owner=form).try_acquire() for form in forms]
    return len({lease.fencing_token for lease in leases if lease is not None})


def expressions(store: Store, forms: Sequence[str]) -> int:
    @locked("order:{order}", store=store, ttl=60)
    def charge(order: str) -> None: ...

    return len({key_for(charge, form) for form in forms})


def fenced_values(store: Store, forms: Sequence[str]) -> int:
    refused = 0
    for token, form in zip((9, 8), [str.__str__(forms[0]), forms[0]], strict=True):
        with suppress(StaleToken):
            fenced_set(store, form, form, token=token)
            continue
        refused += 1
    return refused


def dedup_keys(store: Store, forms: Sequence[str]) -> int:
    ran: list[str] = []
    for form in forms:
        Dedup(store, "shop").call(form, partial(ran.append, form))
    return len(ran)


def dedup_namespaces(store: Store, forms: Sequence[str]) -> int:
    ran: list[str] = []
    for form in forms:
        Dedup(store, form).call("key", partial(ran.append, form))
    return len(ran)


def dedup_arguments(_: Store, forms: Sequence[str]) -> int:
    def charge(order: object, units: int = 1) -> None: ...

    identities = [CallIdentity("charge", charge), CallIdentity("charge", charge, key="{order}")]
    return max(len({identity.of((form,), {}) for form in forms}) for identity in identities)


WHAT: Final = (
    orders,
    orders_in_shards,
    ends,
    readings,
    customers,
    holders,
    restocks,
    withdrawals,
    carts,
    skus,
    locks,
    owners,
    expressions,
    fenced_values,
    dedup_keys,
    dedup_namespaces,
    dedup_arguments,
)


GIVEN: Final = (fenced_values, dedup_arguments)
"""What callers have of their own: keys of Redis, and arguments."""


@pytest.mark.parametrize("where", ["memory", "server"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", WHAT, ids=lambda one: one.__name__)
def test_a_text_counts_once_in_whatever_form_it_is_given(
    what: Callable[[Store, Sequence[str]], int], form: str, where: str, request: pytest.FixtureRequest
) -> None:
    store = MemoryStore() if where == "memory" else request.getfixturevalue("store")
    assert what(store, (FORMS[form], TEXT, FORMS[form])) == 1


@pytest.mark.parametrize("hidden", ["\u200b", "\u202e", "\ufe0f", "\x07", "\ud800"], ids=ascii)
@pytest.mark.parametrize("what", [one for one in WHAT if one not in GIVEN], ids=lambda one: one.__name__)
def test_a_character_that_is_not_seen_is_refused_everywhere(
    what: Callable[[Store, Sequence[str]], int], hidden: str
) -> None:
    text = f"a{hidden}b"
    if what is expressions:  # a part of a key is escaped instead
        assert what(MemoryStore(), (text, "ab")) == 2
        return
    with pytest.raises(InvalidInput):
        what(MemoryStore(), (text, text, text))


# --- values that a message changes on its way ---


class Size(IntEnum):
    """An enumeration of whole numbers."""

    TWO = 2


class Grade(int, Enum):
    """The same, as written before IntEnum was usual."""

    TWO = 2


class Colour(IntFlag):
    """Flags, which are whole numbers."""

    RED = 1
    BLUE = 2


class Ratio(float, Enum):
    """An enumeration of numbers."""

    HALF = 0.5


class Moment(datetime):
    """A time of another library."""


class Day(date):
    """A date of another library."""


class Money(Decimal):
    """A number of another library."""


class Name(UUID):
    """An id of another library."""


VALUES: Final = (
    *FORMS.values(),
    *(Size.TWO, Grade.TWO, Colour.RED | Colour.BLUE, Ratio.HALF, True, None, 1, 0.5),
    *((1, "a"), [Mixed.MEMBER], {"a": Size.TWO}, {Mixed.MEMBER: 1}),
    *(Moment(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), Day(2026, 1, 2), date(2026, 1, 2), time(1, 2)),
    *(Money("1.0"), Name(int=5), b"bytes", b"\xff"),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda one: f"{type(one).__name__}-{one!a}")
def test_a_value_has_one_key_before_and_after_a_message_has_carried_it(value: object) -> None:
    def charge(value: object) -> None: ...

    identity = CallIdentity("charge", charge)
    assert identity.of((value,), {}) == identity.of((json.loads(json.dumps(value)),), {})


@pytest.mark.parametrize("where", ["memory", "server"])
@pytest.mark.parametrize("two", [2, Size.TWO, Grade.TWO], ids=["int", "IntEnum", "enum"])
def test_a_number_of_an_enumeration_is_its_value_for_a_lock_and_none_for_a_pool(
    two: int, where: str, request: pytest.FixtureRequest
) -> None:
    store = MemoryStore() if where == "memory" else request.getfixturevalue("store")
    room = Semaphore(store, "room", permits=two, ttl=two)
    leases = [room.acquire(timeout=two), Semaphore(store, "room", permits=2, ttl=60).acquire(timeout=0)]
    fenced_set(store, "key", "value", token=two)
    with pytest.raises(StaleToken):
        fenced_set(store, "key", "value", token=1)
    for lease in leases:
        lease.release()
    for number in (True, Size.TWO, Grade.TWO):
        with pytest.raises(InvalidInput, match="is not a whole number"):
            Order("o-1", number)
        with pytest.raises(InvalidInput, match="is not a whole number"):
            Cart("c-1", [("mug", number)])
        with pytest.raises(InvalidInput, match="is not a whole number"):
            Pool(store, "mug").open(stock=number, segments=1)


def test_an_effect_sends_the_values_of_enumerations_and_no_flags() -> None:
    assert StoreEffect("return 1", [Mixed.MEMBER], [Mixed.MEMBER, Grade.TWO, 3]).texts() == ((TEXT,), (TEXT, "2", "3"))
    with pytest.raises(InvalidInput):
        StoreEffect("return 1", arguments=[True])
