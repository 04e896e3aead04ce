"""`segmented pool list` and `doctor`: the pools of a server, and what is wrong with one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import typer

from segmented import protocol as op
from segmented.cli.output import DEFAULT_URL, JsonOption, UrlOption, print_table, shown, write_json
from segmented.cli.pool_all import AllOption, OneSkuArgument, each_pool, one_of, pools_of
from segmented.errors import SegmentedError
from segmented.models.ids import SKU_BYTES_MAX, checked_id
from segmented.plans import run_sync
from segmented.process import tell
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore
from segmented.watch.doctor import diagnose
from segmented.watch.reading import reading_plan

if TYPE_CHECKING:
    from segmented.models import PoolState

EXIT_FOUND: Final = 1


def list_pools(*, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """List the pools that were opened on a server, by sku, with their units and their state."""
    with RedisStore.from_url(url) as store:
        found = {sku: _state(store, sku) for sku in store.execute(op.ListPools())}
    if not write_json(json_file, {"pools": [_as_json(sku, state) for sku, state in found.items()]}):
        if not found:
            tell("no pool was opened on this server")
        heads = ("sku", "available", "reserved", "confirmed", "state")
        print_table(heads, [_row(sku, state) for sku, state in found.items()])


def _state(store: RedisStore, sku: str) -> PoolState | str:
    try:
        return find_pool(store, sku).state()
    except SegmentedError as error:
        return type(error).__name__


def _row(sku: str, state: PoolState | str) -> tuple[str, ...]:
    if isinstance(state, str):
        return (shown(sku), "-", "-", "-", state)
    condition = f"{state.condition}, gated" if state.gated else state.condition
    return (shown(sku), str(state.available), str(state.reserved), str(state.confirmed), condition)


def _as_json(sku: str, state: PoolState | str) -> dict[str, Any]:
    if isinstance(state, str):
        return {"sku": sku, "state": None, "error": state}
    return {"sku": sku, "state": {name: value for name, value in asdict(state).items() if name != "shards"}}


def doctor(
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Say what keeps a pool from selling, most urgent first, and the command to run next. Changes nothing.

    Exit code 1 if something is wrong; being closed or sold out is not. One short reading: `audit` compares every order.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        each_pool(pools_of(url), lambda one: doctor(one, url=url), json_file)
        return
    sku = checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
    with RedisStore.from_url(url) as store:
        reading = run_sync(reading_plan(sku), store)
    findings = diagnose(reading)
    if not write_json(json_file, {"sku": sku, "findings": [asdict(one) for one in findings]}):
        if findings:
            print_table(("found", "next"), [(shown(one.problem), one.command) for one in findings])
        elif reading.state is not None:
            free = f"{reading.state.available:,} of {reading.state.stocked:,} units free"
            typer.echo(f"nothing is wrong: {free}, {sum(reading.held)} of {len(reading.held)} segments held")
    if any(one.is_fault for one in findings):
        raise typer.Exit(EXIT_FOUND)
