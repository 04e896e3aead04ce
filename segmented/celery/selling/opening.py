"""Opening: the gate's rows first, then the pools; or nothing at all when what is there is another sale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput
from segmented.orders.opening import open_gated, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.models import PoolState
    from segmented.orders import Gate
    from segmented.stock import Pool


def read_states(pools: Mapping[str, Pool], *, stock: int, segment_count: int) -> dict[str, PoolState | None]:
    """Read the pools that are open. Raises InvalidInput for one that is another sale."""
    states = {sku: state_of(pool) for sku, pool in pools.items()}
    for state in states.values():
        if state is not None:
            _check_pool(state, stock, segment_count)
    return states


def open_sale(
    pools: Mapping[str, Pool], states: Mapping[str, PoolState | None], gate: Gate, *, stock: int, segment_count: int
) -> None:
    """Open a pool a sku with its rows in the database, unless they are open. Raises InvalidInput, with nothing opened.

    Rows first: a pool that exists has its judge. A run that dies between the two is finished by the next one.
    """
    gate.create()
    for sku, state in states.items():
        _check_rows(sku, state, gate, stock, segment_count)
    for pool in pools.values():
        _check_pool(open_gated(pool, gate, stock=stock, segments=segment_count).state, stock, segment_count)


def _check_pool(state: PoolState, stock: int, segment_count: int) -> None:
    if (state.opened, state.segment_count) != (stock, segment_count):
        message = (
            f"pool {state.sku!r} is open with stock {state.opened} in {state.segment_count} segments, "
            f"not with stock {stock} in {segment_count} segments"
        )
        raise InvalidInput(message)
    if not state.gated:
        message = f"pool {state.sku!r} was opened without an order database, so its orders cannot be sold with one"
        raise InvalidInput(message)


def _check_rows(sku: str, state: PoolState | None, gate: Gate, stock: int, segment_count: int) -> None:
    totals = gate.totals(sku)
    if not totals.segments:
        if state is not None:
            lacks = "the order database has no rows for it: name the database it was opened with"
            message = f"pool {sku!r} is open, but {lacks}"
            raise InvalidInput(message)
        return
    if state is None and (totals.sold or gate.stocking.opened_epoch(sku) is not None):
        message = (
            f"the order database knows pool {sku!r} as open, with {totals.sold} units sold, but the stock's server has "
            "no such pool: name the server it was opened on"
        )
        raise InvalidInput(message)
    # Beside a pool the rows may be more: of segments that went away, and of a restock that is not finished.
    is_same = (totals.quota, len(totals.segments)) == (stock, segment_count)
    is_enough = state is not None and totals.quota >= state.stocked and len(totals.segments) >= segment_count
    if not (is_same or is_enough):
        message = (
            f"the order database has rows for {sku!r} with stock {totals.quota} in {len(totals.segments)} segments, "
            f"not with stock {stock} in {segment_count} segments"
        )
        raise InvalidInput(message)
