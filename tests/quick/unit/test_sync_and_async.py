"""Every class for asyncio has its twin for threads, and nothing serves threads alone but what a table names.

`make sync` writes nearly all classes for threads. The few pairs written by hand have the same public methods with the
same parameters; where they differ on purpose, a table says why.
"""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import segmented
from tests.support import sync_of

PROGRAMS: Final = (
    *("segmented.celery", "segmented.cli", "segmented.django", "segmented.servers", "segmented.testing"),
    "segmented.orders.migrations",
)
"""Packages without a shell for asyncio: programs, what starts or controls servers and processes, Alembic's scripts."""
OTHER_NAMES: Final = {
    "AsyncHandle": "SyncHandle",
    "AsyncKeeper": "ThreadKeeper",
    "AsyncLane": "ThreadLane",
    "AsyncQuorumWakeups": "ThreadQuorumWakeups",
    "AsyncioWakeups": "ThreadWakeups",
}
"""Twins that are not called `AsyncX` and `X`."""
SPECIAL: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}

EXCEPTIONS: Final[dict[str, dict[str, str]]] = {
    "only sync": {
        "the order database is for threads: its gate for asyncio has it as `gate`": (
            "AsyncGate.confirm AsyncGate.confirm_many AsyncGate.confirmed_units AsyncGate.each_confirmed "
            "AsyncGate.each_order AsyncGate.is_decided AsyncGate.lower AsyncGate.missing_tables "
            "AsyncGate.names_of AsyncGate.note_forgotten AsyncGate.open AsyncGate.orders AsyncGate.sales "
            "AsyncGate.sold_among "
            "AsyncGate.totals AsyncGate.transaction AsyncGate.unfinished_changes AsyncGate.void "
            "AsyncGate.void_many AsyncGate.while_undecided"
        ),
        "a store for threads is checked when it is made, where nothing can be awaited; asyncio checks with the "
        "first operation": "AsyncLink.check",
    },
    "parameters": {
        "a socket that is closed without waiting is asyncio's": "AsyncWire.close",
        "only a task can be cancelled while it waits for a connection": "AsyncLink.run",
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


def modules(package: ModuleType) -> list[ModuleType]:
    """Return a package and its modules, but for what runs a program."""
    found = [package]
    for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not one.name.endswith("__main__") and one.name not in PROGRAMS:
            module = importlib.import_module(one.name)
            found += modules(module) if one.ispkg else [module]
    return found


MODULES: Final = modules(segmented)
CLASSES: Final = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
}
NAMES: Final = {name: OTHER_NAMES.get(name, name.removeprefix("Async")) for name in CLASSES if name.startswith("Async")}
EXPORTED: Final = {
    name: getattr(module, name)
    for module in MODULES
    for name in vars(module).get("__all__", ())
    if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))
}


def is_by_hand(kind: type) -> bool:
    """Return whether no part of a class for threads is written by `make sync`."""
    text = Path(inspect.getfile(kind)).read_text()
    line = text.partition(f"\n{sync_of.MARK}")[0].count("\n")
    return not text.startswith("# Written by `make sync`") and inspect.getsourcelines(kind)[1] <= line + 1


def methods(kind: type) -> dict[str, object]:
    """Return the public methods and properties of a class, inherited ones too, as threads spell them."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == kind.__module__.partition(".")[0]:
            found |= {
                SPECIAL.get(name, name): value for name, value in vars(base).items() if callable_or_property(value)
            }
    compared = {"__init__", "__call__", *SPECIAL.values()}
    return {name: value for name, value in found.items() if name in compared or not name.startswith("_")}


def callable_or_property(value: object) -> bool:
    return callable(value) or isinstance(value, (property, staticmethod, classmethod))


def parameters(value: object) -> object:
    """Return the name, kind and default of each parameter."""
    if isinstance(value, property):
        return property
    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    assert callable(function)
    return [(name, one.kind, repr(one.default)) for name, one in inspect.signature(function).parameters.items()]


def differences(sync: type, asynchronous: type) -> set[tuple[str, str]]:
    """Return where two twins differ, and in what."""
    ours, theirs = methods(sync), methods(asynchronous)
    title = asynchronous.__name__
    found = {(f"{title}.{name}", "only sync" if name in ours else "only async") for name in set(ours) ^ set(theirs)}
    both = set(ours) & set(theirs)
    return found | {
        (f"{title}.{name}", "parameters") for name in both if parameters(ours[name]) != parameters(theirs[name])
    }


def test_every_class_for_asyncio_has_a_twin_for_threads() -> None:
    assert [name for name, twin in NAMES.items() if twin not in CLASSES] == []
    assert len(NAMES) >= 45


def test_classes_written_by_hand_differ_only_where_the_table_says_so() -> None:
    pairs = [(getattr(sys.modules[CLASSES[a].__module__], b, CLASSES[b]), CLASSES[a]) for a, b in NAMES.items()]
    found = {one for pair in pairs if is_by_hand(pair[0]) for one in differences(*pair)}
    assert found == {
        (place, what) for what, reasons in EXCEPTIONS.items() for places in reasons.values() for place in places.split()
    }


def test_what_serves_threads_alone_stands_in_a_table() -> None:
    """That is: takes a class for threads, where nothing takes its twin."""
    served = {colourless(name) for name in EXPORTED if "async" in name.lower()}
    found = set()
    for name, value in EXPORTED.items():
        words = words_asked(value)
        if name not in NAMES.values() and colourless(name) not in served:
            found |= {name for other, one in NAMES.items() if one in words and other not in words}
    assert found == set(SYNC_ONLY)


def colourless(name: str) -> str:
    """Return what a function is called without the word that says for whom it is."""
    return re.sub("a?sync|_", "", name.lower())


def words_asked(value: object) -> set[str]:
    """Return the words in the annotations of a function's parameters, or of what makes an object of a class."""
    said = dict(getattr(value.__init__ if inspect.isclass(value) else value, "__annotations__", {}))
    said.pop("return", None)
    return {word for one in said.values() for word in re.findall(r"\w+", str(one))}


class Shop:
    def sell(self, units: int = 1) -> object: ...


class AsyncShop:
    async def sell(self, units: int = 1) -> object: ...


async def other_default(self: AsyncShop, units: int = 2) -> object: ...
async def other_kind(self: AsyncShop, *, units: int = 1) -> object: ...
async def other_name(self: AsyncShop, count: int = 1) -> object: ...


@pytest.mark.parametrize("sell", [other_default, other_kind, other_name, property(other_default)])
def test_a_method_that_differs_is_noticed(
    sell: Callable[..., Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert differences(Shop, AsyncShop) == set()
    monkeypatch.setattr(AsyncShop, "sell", sell)
    assert differences(Shop, AsyncShop) == {("AsyncShop.sell", "parameters")}
    monkeypatch.delattr(AsyncShop, "sell")
    assert differences(Shop, AsyncShop) == {("AsyncShop.sell", "only sync")}
