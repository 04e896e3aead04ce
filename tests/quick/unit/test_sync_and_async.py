"""Every class for threads and its twin for asyncio have the same names, signatures and first sentences.

Where both are written by hand, a change of one that forgets the other ends here. Where they differ on purpose, a table
says why.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import pytest

import segmented
from tests.support import twins as compared
from tests.support.twins import Twins

PROGRAMS: Final = (
    *("segmented.celery", "segmented.cli", "segmented.django", "segmented.servers", "segmented.testing"),
    "segmented.orders.migrations",
)
"""Packages without a shell for asyncio: programs, what starts or controls servers and processes, Alembic's scripts."""

EXCEPTIONS: Final[dict[str, dict[str, str]]] = {
    "only sync": {
        "the order database is for threads: its gate for asyncio has it as `gate`": (
            "AsyncGate.carts AsyncGate.confirm AsyncGate.confirm_many AsyncGate.confirmed_units "
            "AsyncGate.confirming AsyncGate.each_confirmed AsyncGate.each_order AsyncGate.is_decided "
            "AsyncGate.ledger AsyncGate.lower AsyncGate.missing_tables AsyncGate.names_of "
            "AsyncGate.note_forgotten AsyncGate.open AsyncGate.orders AsyncGate.outcome_rows AsyncGate.pruning "
            "AsyncGate.returns AsyncGate.sales AsyncGate.stocking AsyncGate.totals AsyncGate.transaction "
            "AsyncGate.transfers AsyncGate.unfinished_changes AsyncGate.void AsyncGate.void_many AsyncGate.where "
            "AsyncGate.while_undecided"
        ),
        "a store for threads is checked when it is made, where nothing can be awaited; asyncio checks with the "
        "first operation": ("AsyncLink.check"),
    },
    "only async": {
        "the steps of its gate run in threads": "AsyncGate.gate",
    },
    "not awaited": {
        "it notes something in this process and asks no server": ("AsyncKeeper.discard AsyncKeeper.watch"),
    },
    "signature": {
        "a socket that is closed without waiting is asyncio's": "AsyncWire.close",
        "only a task can be cancelled while it waits for a connection": "AsyncLink.run",
    },
    "sentence": {
        "its steps run in threads, and it ends them": "AsyncGate AsyncGate.close",
    },
}
"""Differences on purpose: their kind, their reason, and their place."""

WORKERS: Final = "Celery workers are synchronous, and so is what they and the order database's scripts call"
SYNC_ONLY: Final = {
    "take_envelope": WORKERS,
    "rebuild": WORKERS,
    "erase_customer": WORKERS,
    "forget": WORKERS,
    "prune": WORKERS,
    "relay": WORKERS,
    "tell_pool": WORKERS,
    "reopen_gated": WORKERS,
    "verify": WORKERS,
    "once_per": "a job that starts on several machines is a program of its own, which waits for nothing else",
    "audit_both": WORKERS,
    "pool_of": "a worker finds the pool of an order; a caller of asyncio has `async_find_pool`",
    "measure": "the command `segmented advise` measures a server",
    "WsgiIdempotencyMiddleware": "WSGI is synchronous; `IdempotencyMiddleware` is its twin for ASGI",
}
"""Public functions and classes that serve a store, pool or dedup for threads alone, and why."""

MODULES: Final = compared.modules(segmented, without=PROGRAMS)
PAIRS, ALONE = compared.pairs(MODULES)
BY_HAND: Final = [one for one in PAIRS if compared.are_by_hand(one)]
ALLOWED: Final = {
    (place, what) for what, reasons in EXCEPTIONS.items() for places in reasons.values() for place in places.split()
}


def test_every_class_for_asyncio_has_a_twin_for_threads() -> None:
    assert ALONE == []
    assert len(PAIRS) >= 45


def test_every_public_class_for_asyncio_is_compared() -> None:
    offered = {name for name, value in compared.exported(MODULES).items() if inspect.isclass(value)}
    public = {name for name in offered if name.startswith("Async")}
    assert len(public) >= 25
    assert public <= {one.asynchronous.__name__ for one in PAIRS}


@pytest.mark.parametrize("twins", BY_HAND, ids=lambda twins: f"{twins.asynchronous.__module__}.{twins.sync.__name__}")
def test_a_class_and_its_twin_differ_only_where_the_table_says_so(twins: Twins) -> None:
    assert [one for one in compared.differences(twins) if one not in ALLOWED] == []


def test_every_exception_is_still_one() -> None:
    assert sorted(ALLOWED - {one for twins in BY_HAND for one in compared.differences(twins)}) == []


def test_no_exception_stands_twice() -> None:
    places = [(place, what) for what, why in EXCEPTIONS.items() for one in why.values() for place in one.split()]
    assert len(places) == len(ALLOWED)


def test_what_serves_threads_alone_stands_in_a_table() -> None:
    assert compared.sync_only(MODULES) == set(SYNC_ONLY)


# --- the comparison notices ---


class Shop:
    """A shop, for threads."""

    def __init__(self, name: str) -> None:
        """Open `name`."""
        self.name = name

    def sell(self, units: int = 1) -> Shop:
        """Sell some."""
        raise NotImplementedError

    def entries(self, *, after: int = 0) -> Iterator[int]:
        """Read all."""
        raise NotImplementedError

    def visit(self, guest: Callable[[str], int]) -> int:
        """Let a guest in."""
        return guest(self.name)


class AsyncShop:
    """A shop, for asyncio; otherwise as `Shop`."""

    def __init__(self, name: str) -> None:
        """Open `name`; see `Shop`."""
        self.name = name

    async def sell(self, units: int = 1) -> AsyncShop:
        """Sell some."""
        raise NotImplementedError

    async def entries(self, *, after: int = 0) -> AsyncIterator[int]:
        """Read all."""
        yield after

    async def visit(self, guest: Callable[[str], Awaitable[int]]) -> int:
        """Let a guest in."""
        return await guest(self.name)


async def other_default(self: AsyncShop, units: int = 2) -> AsyncShop:
    """Sell some."""
    raise NotImplementedError


async def other_kind(self: AsyncShop, *, units: int = 1) -> AsyncShop:
    """Sell some."""
    raise NotImplementedError


async def other_name(self: AsyncShop, count: int = 1) -> AsyncShop:
    """Sell some."""
    raise NotImplementedError


async def other_annotation(self: AsyncShop, units: float = 1) -> AsyncShop:
    """Sell some."""
    raise NotImplementedError


async def other_answer(self: AsyncShop, units: int = 1) -> AsyncShop | None:
    """Sell some."""
    raise NotImplementedError


async def other_sentence(self: AsyncShop, units: int = 1) -> AsyncShop:
    """Sell a few."""
    raise NotImplementedError


def not_awaited(self: AsyncShop, units: int = 1) -> AsyncShop:
    """Sell some."""
    raise NotImplementedError


@pytest.mark.parametrize(
    ("sell", "what"),
    [
        (other_default, "signature"),
        (other_kind, "signature"),
        (other_name, "signature"),
        (other_annotation, "signature"),
        (other_answer, "signature"),
        (other_sentence, "sentence"),
        (not_awaited, "not awaited"),
        (property(not_awaited), "called and value"),
    ],
)
def test_a_method_that_differs_is_noticed(sell: object, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "OURS", __name__.partition(".")[0])
    assert list(compared.differences(Twins(Shop, AsyncShop))) == []
    monkeypatch.setattr(AsyncShop, "sell", sell)
    function = compared.member(sell).function
    assert function is not None
    assert list(compared.differences(Twins(Shop, AsyncShop))) == [(function.__qualname__, what)]
