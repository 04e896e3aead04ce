"""A pool's state as rows and as JSON. Rows combine many segments into ranges; JSON has each one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import typer

from segmented.cli.output import Row, print_table, shown, span, write_json
from segmented.cli.pool_shards import SHARD_HEADS, shard_rows, shards_json
from segmented.models import PoolState, ShardedState

ROWS_MAX: Final = 24
"""Maximum number of segment rows; more segments are combined into ranges."""

EXIT_UNREADABLE: Final = 1

SEGMENT_HEADS: Final = ("segment", "units")
FOLDED_HEADS: Final = ("segments", "units", "least", "most", "empty")


def total_rows(state: PoolState) -> list[Row]:
    """Return the totals, one per row."""
    rows: list[Row] = [
        ("sku", shown(state.sku)),
        ("state", state.condition),
        ("stocked", str(state.stocked)),
        ("available", str(state.available)),
        ("reserved", str(state.reserved)),
        ("confirmed", str(state.confirmed)),
        ("orders", str(state.order_count)),
        ("segments", str(state.segment_count)),
        ("limit per customer", "none" if state.limit_per_customer is None else str(state.limit_per_customer)),
        ("decided by", "an order database" if state.gated else "the pool"),
        ("profile", shown(state.profile)),
        ("epoch", str(state.epoch)),
        ("last change", str(state.sequence)),
    ]
    if isinstance(state, ShardedState):
        rows[-1] = ("changes", str(state.sequence))
        rows.insert(7, ("shards", str(len(state.shards))))
        rows.insert(4, ("on the way", str(state.away)))
    named = (("queue of its workers", state.queue), ("step of its workers", state.step))
    rows += [(what, shown(name)) for what, name in named if name is not None]
    rows += relayed_rows(state)
    if state.forgotten:
        rows.append(("forgotten orders", str(state.forgotten)))
    moved = [("restocked", state.restocked), ("withdrawn", state.withdrawn)]
    rows[3:3] = [(word, str(units)) for word, units in moved if units]
    return rows


def relayed_rows(state: PoolState) -> list[Row]:
    """Return up to which change a database has the ledger, and its lag; nothing for a pool that is not relayed."""
    shards = state.shards if isinstance(state, ShardedState) else (state,)
    rows: list[Row] = []
    for number, shard in enumerate(shards):
        if shard.relayed is not None:
            behind = max(0, shard.sequence - shard.relayed[1])
            lag = f"{behind} behind, {span(shard.relay_age_ms / 1_000)}" if behind else "nothing behind"
            place = f" of shard {number}" if len(shards) > 1 else ""
            rows.append((f"relayed{place}", f"{shard.relayed[0]}-{shard.relayed[1]}, {lag}"))
    return rows


def segment_rows(
    stock: tuple[int, ...], *, rows_max: int = ROWS_MAX, is_folded: bool | None = None
) -> tuple[Row, list[Row]]:
    """Return heads and rows: a row for each segment, or for each range of them if there are more than `rows_max`."""
    if not (len(stock) > rows_max if is_folded is None else is_folded):
        return SEGMENT_HEADS, [(str(segment), str(units)) for segment, units in enumerate(stock)]
    size = -(-len(stock) // rows_max)
    ranges = [(first, stock[first : first + size]) for first in range(0, len(stock), size)]
    return FOLDED_HEADS, [
        (f"{first}-{first + len(part) - 1}", str(sum(part)), str(min(part)), str(max(part)), str(part.count(0)))
        for first, part in ranges
    ]


def as_json(state: PoolState) -> dict[str, Any]:
    """Return all numbers, including each segment's."""
    found = asdict(state) | {name: getattr(state, name) for name in ("condition", "stocked", "is_sold_out")}
    return found | shards_json(state) if isinstance(state, ShardedState) else found


def show_once(state: PoolState, json_file: Path | None) -> None:
    """Print the state, or write it to a file."""
    if not write_json(json_file, as_json(state)):
        print_state(state)
    if state.unreadable:
        typer.echo(unreadable(state), err=True)
        raise typer.Exit(EXIT_UNREADABLE)


def unreadable(state: PoolState) -> str:
    """Return a sentence that names the numbers overwritten with non-integers, or nothing."""
    if not state.unreadable:
        return ""
    names = ", ".join(shown(name) for name in state.unreadable)
    return f"not whole numbers, so counted as 0: {names}; see segmented pool audit {shown(state.sku)}"


def print_state(state: PoolState) -> None:
    """Print totals and segments: tables on a terminal, otherwise blocks of lines separated by an empty one."""
    for number, (heads, rows) in enumerate(_blocks(state)):
        if number:
            typer.echo()
        print_table(heads, rows)


def _blocks(state: PoolState) -> list[tuple[Row, list[Row]]]:
    totals: tuple[Row, list[Row]] = ("", ""), total_rows(state)
    if not isinstance(state, ShardedState):
        return [totals, segment_rows(state.stock)]
    is_folded = state.segment_count > ROWS_MAX
    rows_max = max(1, ROWS_MAX // len(state.shards))
    parts = [segment_rows(shard.stock, rows_max=rows_max, is_folded=is_folded) for shard in state.shards]
    rows = [(str(number), *row) for number, (_, own) in enumerate(parts) for row in own]
    return [totals, (SHARD_HEADS, shard_rows(state)), (("shard", *parts[0][0]), rows)]
