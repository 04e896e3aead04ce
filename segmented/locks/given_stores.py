"""Stores given to decorators: the store itself, or a callable that gives it when a call needs it.

A decorator runs at import, when the program may not have connected yet; a callable puts that off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput
from segmented.plans.store_kinds import is_async_store, is_client, is_sync_store, wrong_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.drivers import AsyncStore, Store


def check_given(store: object, who: str, *, is_async: bool) -> None:
    """Refuse, as early as it can be known, what is no store and no callable, or a store of the other colour."""
    if is_async_store(store) or is_sync_store(store) or is_client(store):
        _check_colour(store, who, is_async=is_async)
    elif not callable(store):
        message = f"{who} needs a store, or a callable that gives one, and got {store!r}"
        raise InvalidInput(message)


def sync_store(given: Store | Callable[[], Store], who: str) -> Store:
    """Return the store for threads that was given, or that the given callable gives now."""
    found = given if is_sync_store(given) else _asked(given)
    _check_colour(found, who, is_async=False)
    return found  # type: ignore[return-value]  # just checked


def async_store(given: AsyncStore | Callable[[], AsyncStore], who: str) -> AsyncStore:
    """Return the store for asyncio that was given, or that the given callable gives now."""
    found = given if is_async_store(given) else _asked(given)
    _check_colour(found, who, is_async=True)
    return found  # type: ignore[return-value]  # just checked


def _asked(given: object) -> object:
    return given() if callable(given) else given


def _check_colour(store: object, who: str, *, is_async: bool) -> None:
    if not (is_async_store(store) if is_async else is_sync_store(store)):
        raise wrong_store(store, who, is_async=is_async)
