"""Event loops on which asynchronous calls are measured: uvloop, which the extra `fast` brings, and asyncio's own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

OWN_LOOP: Final = "asyncio's own loop"


def event_loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return how to make a loop of each kind, by its name; the fastest is the first."""
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415  # not on every system

        found["uvloop"] = uvloop.new_event_loop
    return found | {OWN_LOOP: asyncio.new_event_loop}
