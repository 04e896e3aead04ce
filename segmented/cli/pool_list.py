"""`segmented pool list`: the pools of a server."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from segmented import protocol as op
from segmented.cli.output import DEFAULT_URL, JsonOption, UrlOption, print_table, shown, write_json
from segmented.errors import SegmentedError
from segmented.process import tell
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.models import PoolState


def list_pools(*, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """List the pools that were opened on a server, by sku, with their units and their state.

    A pool of an earlier release is listed once orders were submitted to it and a worker of this release has run.
    """
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
