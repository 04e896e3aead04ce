"""Plans: protocols as generators that yield effects and receive replies, and the drivers that run them.

A plan reads no clock, opens no socket and does not use asyncio. The same plan runs under `run_sync` (threads, gevent),
`run_async` (asyncio) and the simulator, so the simulator tests the code that runs in production.
"""

from segmented.plans.drivers import async_run_owed, run_async, run_owed, run_sync
from segmented.plans.effects import (
    Batch,
    Join,
    Leave,
    Listen,
    Now,
    Outside,
    Park,
    Plan,
    Try,
    Within,
    perform,
    substituted,
)
from segmented.plans.line import Line, Offer, Place
from segmented.plans.waiting import pause, undo_after, wait_for, wait_in_line

__all__ = [
    "Batch",
    "Join",
    "Leave",
    "Line",
    "Listen",
    "Now",
    "Offer",
    "Outside",
    "Park",
    "Place",
    "Plan",
    "Try",
    "Within",
    "async_run_owed",
    "pause",
    "perform",
    "run_async",
    "run_owed",
    "run_sync",
    "substituted",
    "undo_after",
    "wait_for",
    "wait_in_line",
]
