"""One reading of a pool: its units, its held segments, its holds and its outbox, as values and as JSON.

`diagnose` finds in it what keeps the pool from selling, and the command to run next.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import PoolArchived, PoolMissing, SegmentedError, StoreUnavailable
from segmented.models import PoolState, ShardedState
from segmented.models.ids import counted, visible
from segmented.models.pools import PoolActivity
from segmented.plans import Batch, perform
from segmented.plans.effects import Now
from segmented.stock.sharded.opening import shards_plan, summed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.plans import Plan

SOON_MS: Final = 10_000
"""A hold that ends within this time ends soon."""
READ_SECONDS: Final = 5.0
POOLS_MAX: Final = 100
"""Pools that are read at once; more have to be named in parts."""
NOT_OPEN: Final = "not open"
SIMILAR_OF_MAX: Final = 1_000
"""Pools among which similar names are looked for."""


@dataclass(frozen=True, slots=True)
class PoolReading:
    """A pool as it was at one moment. Each shard of a sharded pool is read atomically, not all of them."""

    sku: str
    at: float
    """Local monotonic seconds."""
    state: PoolState | None = None
    """None if the pool could not be read: `note` says why."""
    activities: tuple[PoolActivity, ...] = ()
    """One for each shard."""
    note: str = ""
    """Why the pool was not read; empty if it was."""
    similar: tuple[str, ...] = ()
    """Pools of the server with similar names, if this one is not open."""

    refused: dict[str, int] | None = None
    """Orders that the processes which report now have refused, by reason; None: none reports."""

    @property
    def held(self) -> tuple[bool, ...]:
        """Whether each segment's lock is held, in the order of the state's `stock`."""
        return tuple(held for one in self.activities for held in one.held)


@dataclass(frozen=True, slots=True)
class Readings:
    """Pools at one moment, and the workers that report."""

    pools: tuple[PoolReading, ...]
    workers: tuple[op.ProcessReport, ...]
    """Sorted by process."""


def reading_plan(sku: str) -> Plan[PoolReading]:
    """Read one pool. A pool that is not open, or is damaged, is a reading with a note; raises StoreUnavailable."""
    at = yield from perform(Now())
    try:
        directory = yield from shards_plan(sku)
        names = [sku] if directory is None else list(directory.shards)
        asked = [each for name in names for each in (op.ReadPool(name), op.ReadActivity(name, SOON_MS))]
        answers = yield from perform(Batch(tuple(asked), at + READ_SECONDS))
        for answer in answers:
            if isinstance(answer, SegmentedError):
                raise answer
    except StoreUnavailable:
        raise
    except PoolArchived:
        return PoolReading(sku, at, note="archived")
    except PoolMissing:
        return PoolReading(sku, at, note=NOT_OPEN)
    except SegmentedError as error:
        return PoolReading(sku, at, note=str(error))
    states = [answer for answer in answers if isinstance(answer, PoolState)]
    activities = tuple(answer for answer in answers if isinstance(answer, PoolActivity))
    return PoolReading(sku, at, states[0] if directory is None else summed(directory, states), activities)


def readings_plan(skus: Sequence[str], similar: dict[str, tuple[str, ...]]) -> Plan[Readings]:
    """Read pools, one after the other. `similar` remembers the names that are like those of pools that are not open."""
    found: dict[str, PoolReading] = {}
    reports = yield from perform(op.ReadReports())
    for sku in skus:
        reading = yield from reading_plan(sku)
        if reading.note == NOT_OPEN:
            if sku not in similar:
                similar[sku] = yield from similar_plan(sku)
            reading = replace(reading, similar=similar[sku])
        refused: Counter[str] = Counter()
        for one in reports:
            refused.update(one.refused.get(sku, {}))
        found[sku] = replace(reading, refused=dict(refused.most_common()) if reports else None)
    return Readings(tuple(found.values()), tuple(one for one in reports if one.is_worker))


def similar_plan(sku: str) -> Plan[tuple[str, ...]]:
    """List up to three pools of the server with a similar name."""
    known = {name.casefold(): name for name in (yield from perform(op.ListPools()))[:SIMILAR_OF_MAX] if name != sku}
    return tuple(known[name] for name in get_close_matches(sku.casefold(), known))


def waiting_line(reading: PoolReading) -> str:
    """Return a sentence about a pool that is not open, and the pools whose names are similar."""
    names = ", ".join(visible(name) for name in reading.similar)
    return f"{NOT_OPEN}: waiting for it; " + (f"did you mean {names}?" if names else "no pool here has a similar name")


def pace(before: PoolReading | None, now: PoolReading) -> dict[str, float] | None:
    """Return new orders and confirmed units, per second since the reading `before`; None without two readings."""
    if before is None or before.state is None or now.state is None or now.at <= before.at:
        return None
    seconds = now.at - before.at
    return {
        "orders": round((now.state.order_count - before.state.order_count) / seconds, 1),
        "units": round((now.state.confirmed - before.state.confirmed) / seconds, 1),
    }


def worker_json(one: op.ProcessReport) -> dict[str, Any]:
    """Return what a worker reports; `taken_ago_ms` is null if it has taken no message."""
    return {"process": one.process, "doing": list(one.doing), "taken": one.taken, "taken_ago_ms": one.taken_ago_ms}


def workers_line(workers: Sequence[op.ProcessReport]) -> str:
    """Return a line about all workers: how many, how many work now, and when one took a message last."""
    if not workers:
        return "none reports (SEGMENTED_EVENTS=watch)"
    busy = sum(bool(one.doing) for one in workers)
    ages = [one.taken_ago_ms for one in workers if one.taken_ago_ms is not None]
    last = f"last message {min(ages) / 1_000:,.0f} s ago" if ages else "no message yet"
    return f"{len(workers)} alive, {busy} busy, {last}"


def as_json(now: PoolReading, before: PoolReading | None = None) -> dict[str, Any]:
    """Return the numbers of a reading; its rates are null without a reading `before`."""
    state = now.state
    if state is None:
        similar = {"similar": list(now.similar)} if now.note == NOT_OPEN else {}
        return {"sku": now.sku, "condition": now.note, "is_readable": False, **similar}
    outbox = {
        "orders": sum(one.outbox for one in now.activities),
        "due": sum(one.outbox_due for one in now.activities),
        "due_since_ms": max(one.outbox_age_ms for one in now.activities),
        "dead": sum(one.dead for one in now.activities),
    }
    return {
        "sku": now.sku,
        "condition": state.condition,
        "is_readable": True,
        "stocked": state.stocked,
        "available": state.available,
        "reserved": state.reserved,
        "confirmed": state.confirmed,
        "orders": state.order_count,
        "segments": list(state.stock),
        "held": [segment for segment, is_held in enumerate(now.held) if is_held],
        "processes_waiting": sum(one.waiting for one in now.activities),
        "holds_overdue": sum(one.overdue for one in now.activities),
        "holds_due_soon": sum(one.due_soon for one in now.activities),
        "outbox": outbox,
        "per_second": pace(before, now),
        "refused": now.refused,
    }


def known_plan() -> Plan[list[str]]:
    """List the pools to watch if none is named: those that were opened on the server, up to `POOLS_MAX`."""
    return list((yield from perform(op.ListPools())))[:POOLS_MAX]


OVERDUE_OUTBOX_MS: Final = 30_000
"""A submitted order that has been due for longer than this is not taken by any worker."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and the command to run next."""

    problem: str
    command: str
    is_fault: bool = True
    """False for the usual end of a sale."""


def diagnose(reading: PoolReading) -> list[Finding]:
    """Return what keeps the pool from selling, the most urgent first; nothing if it sells."""
    state, sku = reading.state, quote(visible(reading.sku))
    if state is not None:
        return [*_lost(state, sku), *_left_behind(reading, state, sku), *_ended(state, sku)]
    opening = f"segmented pool open {sku} --stock N --segments K"
    if reading.note == NOT_OPEN:
        return [
            Finding("it is not open", opening),
            Finding("if it sold with an order database before", f"segmented pool reopen {sku} --database URL"),
        ]
    if reading.note == "archived":
        return [Finding("it was archived, and takes no more orders", f"{opening} --epoch EPOCH", is_fault=False)]
    return [Finding(f"it cannot be read: {reading.note}", f"segmented pool audit {sku}")]


def _lost(state: PoolState, sku: str) -> Iterator[Finding]:
    audit = f"segmented pool audit {sku}"
    if state.frozen is not None:
        cure = f"pool rebuild {sku} --database URL" if state.gated else f"pool thaw {sku}"
        yield Finding(f"it lost changes and answers no order: {state.condition}", f"segmented {cure}")
    if state.unreadable:
        yield Finding(f"another program overwrote {', '.join(state.unreadable)}", audit)
    units = state.available + state.reserved + state.confirmed
    if units != state.stocked and not isinstance(state, ShardedState):  # units may be on the way between shards
        yield Finding(f"its units add up to {units:,}, but {state.stocked:,} were stocked", audit)
    if sum(state.stock) != state.available:
        yield Finding(f"its segments have {sum(state.stock):,} free units, its total is {state.available:,}", audit)


def _left_behind(reading: PoolReading, state: PoolState, sku: str) -> Iterator[Finding]:
    dead = sum(one.dead for one in reading.activities)
    if dead:
        yield Finding(f"workers gave up {counted(dead, 'order')}", "segmented orders list")
    late_ms = max(one.outbox_age_ms for one in reading.activities)
    if late_ms > OVERDUE_OUTBOX_MS:
        named = {"queue": state.queue, "step": state.step}
        names = {key: visible(value) for key, value in named.items() if value is not None}
        fleet = " and".join(f" {key} {name}" for key, name in names.items())
        fleet = f" with{fleet}" if fleet else ""
        problem = f"no worker{fleet} takes its submitted orders: the first has been due for {late_ms / 1000:,.0f} s"
        variables = "".join(f"SEGMENTED_{key.upper()}={quote(name)} " for key, name in names.items())
        yield Finding(problem, f"{variables}celery -A segmented.celery.app worker -B")
    overdue = sum(one.overdue for one in reading.activities)
    if overdue:
        database = " --database URL" if state.gated else ""
        yield Finding(f"{counted(overdue, 'hold')} ended without a sweep", f"segmented pool expire {sku}{database}")
    waiting = sum(one.waiting for one in reading.activities)
    if waiting and all(reading.held):
        are = "process waits" if waiting == 1 else "processes wait"
        yield Finding(f"all {len(reading.held)} segments are held, and {waiting} {are}", f"segmented lock show {sku}")


def _ended(state: PoolState, sku: str) -> Iterator[Finding]:
    if state.is_closed:
        command = f"segmented pool archive {sku} --to FILE"
        yield Finding("it is closed, and takes no more orders", command, is_fault=False)
    elif state.frozen is None and state.is_sold_out:
        more = f", {state.reserved:,} on hold may come back" if state.reserved else ""
        yield Finding(f"it is sold out{more}", f"segmented pool restock {sku} UNITS --id ID", is_fault=False)
