"""Work on the pools that are due: each periodic task asks the index, and looks at no other pool.

A process that found nothing due does not ask again before the first pool will be, or for two seconds: what a process
notes meanwhile is due later than that, or waits so long.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from segmented import protocol as op
from segmented.celery.assignments import refuse
from segmented.celery.connections import connections
from segmented.celery.current import settings
from segmented.errors import AssignedElsewhere, PoolMissing, SegmentedError, ShardVanished

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.keys import Duty
    from segmented.stores.redis import RedisStore

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)
ADOPTED_SECONDS: Final = 3_600.0
ELSEWHERE_SECONDS: Final = 5.0
PAGE: Final = 1_000
IDLE_SECONDS_MAX: Final = 2.0
adopted_until: Final[list[float]] = []
"""Until when this process takes no further pools from the settings and from an earlier release."""
_elsewhere: Final[dict[str, float]] = {}
"""Pools that other workers take care of, and until when that is taken for granted."""
idle_until: Final[dict[Duty, float]] = {}
"""Until when this process need not ask again what is due."""


def is_idle(duty: Duty) -> bool:
    """Return whether nothing was due a short time ago, and nothing that was known then is due now."""
    return time.monotonic() < idle_until.get(duty, 0.0)


def work_on_due(
    duty: Duty, every: float, work: Callable[[str], tuple[ResultT | None, int | None]], *, goes_on: Callable[[], bool]
) -> dict[str, ResultT]:
    """Work on each pool that is due; returns what was done, by pool. `work` returns that, and ms to the next time.

    One that is due still, or fails, is tried again `every` seconds later, and stops no other.
    """
    store, done, offset = connections().store, dict[str, ResultT](), 0
    every_ms = max(1, int(every * 1_000))
    _adopt()
    while page := _listed(store, duty, offset):
        for name, seen in page:
            if not goes_on():
                return done
            found, after_ms = _worked_on(duty, name, every_ms, work)
            if found:
                done[name] = found
            if after_ms == "elsewhere":
                offset += 1
            else:
                store.execute(op.MovePool(duty, name, seen, after_ms, every_ms))
        if len(page) < PAGE:
            break
    return done


def _listed(store: RedisStore, duty: Duty, offset: int) -> tuple[tuple[str, str], ...]:
    found = store.execute(op.ListDuePools(duty, offset, PAGE))
    if found.first_in_ms is not None:
        idle_until[duty] = time.monotonic() + min(found.first_in_ms / 1_000, IDLE_SECONDS_MAX)
    return found.pools


def _worked_on(
    duty: Duty, name: str, every_ms: int, work: Callable[[str], tuple[ResultT | None, int | None]]
) -> tuple[ResultT | None, int | Literal["gone", "elsewhere"] | None]:
    if _elsewhere.get(name, 0.0) > time.monotonic():
        return None, "elsewhere"
    try:
        found, after_ms = work(name)
    except (PoolMissing, ShardVanished):
        return None, "gone"
    except AssignedElsewhere as error:
        refuse(error)
        _elsewhere[name] = time.monotonic() + ELSEWHERE_SECONDS
        return None, "elsewhere"
    except SegmentedError as error:
        log.warning("%s of pool %r failed: %s", duty, name, error)
    except Exception:
        log.exception("%s of pool %r failed", duty, name)
    else:
        return found, after_ms if after_ms is None or after_ms > 0 else every_ms
    return None, every_ms


def _adopt() -> None:
    """Enter the pools of the settings, once an hour."""
    now = time.monotonic()
    if adopted_until and now < adopted_until[0]:
        return
    adopted_until[:] = [now + ADOPTED_SECONDS]
    store = connections().store
    for sku in settings().skus:
        store.execute(op.NotePool(sku))
