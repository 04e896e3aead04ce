"""`segmented pool orders`: who got what, for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Annotated, Any, Final

import typer

from segmented.cli.export_files import FormatOption, ToOption, write_rows
from segmented.cli.output import DEFAULT_URL, SkuArgument, UrlOption
from segmented.files import STDOUT, whole_file
from segmented.models import OrderRecord, OrderState
from segmented.models.ids import plural
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

LEFT_OUT: Final = "holder_id"
"""A worker's complete id proves ownership."""
COLUMNS: Final = tuple(field.name for field in fields(OrderRecord) if field.name != LEFT_OUT)


def orders(
    sku: SkuArgument,
    *,
    state: Annotated[
        OrderState | None, typer.Option("--state", help="State of the orders to export  [default: all]")
    ] = None,
    to: ToOption = STDOUT,
    form: FormatOption = "jsonl",
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Export a pool's orders, each once: id, state, units, customer. Safe while the pool sells.

    In no particular order. The file is complete or not written. Orders whose records were forgotten are only in the
    order database.
    """
    with RedisStore.from_url(url) as store, whole_file(to) as file:
        pool = find_pool(store, sku)
        more = ("shard",) if isinstance(pool, ShardedPool) else ()
        count = write_rows(file, form, _rows(pool, state), (*more, *COLUMNS))
    if to != STDOUT:
        typer.echo(f"{count} {plural(count, 'order')} written")


def _rows(pool: Pool | ShardedPool, state: OrderState | None) -> Iterator[dict[str, Any]]:
    for number, shard in enumerate(pool.shards) if isinstance(pool, ShardedPool) else ((None, pool),):
        place = {} if number is None else {"shard": number}
        for record in shard.orders(state=state):
            row = asdict(record)
            del row[LEFT_OUT]
            yield place | row
