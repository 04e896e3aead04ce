"""Plans: protocols as generators that yield effects and receive replies, and the drivers that run them.

A plan reads no clock, opens no socket and does not use asyncio. The same plan runs under `run_sync` (threads, gevent),
`run_async` (asyncio) and the simulator, so the simulator tests the code that runs in production.
"""

from segmented.plans.drivers import run_async, run_sync
from segmented.plans.effects import Batch, IsWaitedFor, Join, Leave, Listen, Now, Park, Plan, Within, perform
from segmented.plans.line import Line, Offer, Place
from segmented.plans.waiting import pause, wait_for

__all__ = [
    "Batch",
    "IsWaitedFor",
    "Join",
    "Leave",
    "Line",
    "Listen",
    "Now",
    "Offer",
    "Park",
    "Place",
    "Plan",
    "Within",
    "pause",
    "perform",
    "run_async",
    "run_sync",
    "wait_for",
]
