"""Diagnose a pool from one reading: each problem, and the command to run next."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final

from segmented.models import ShardedState
from segmented.models.ids import counted, visible
from segmented.watch.reading import NOT_OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import PoolState
    from segmented.watch.reading import PoolReading

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
