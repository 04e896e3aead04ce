"""`segmented pool`: open a stock pool, look at it, change it while it sells, close it, and check its books."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segmented.cli import pool_books, pool_carts, pool_changes
from segmented.cli.output import (
    DEFAULT_URL,
    STDOUT,
    DatabaseOption,
    JsonOption,
    UrlOption,
    YesOption,
    is_said,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_shards import required_in_one_piece, required_ungated
from segmented.cli.pool_view import as_json, looks, show_once, total_rows, watch
from segmented.clock import SystemClock
from segmented.errors import InvalidInput
from segmented.exits import tell
from segmented.models import AlreadyOpen, PoolState, ShardedState
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1
WATCH_SECONDS_MIN: Final = 0.1
WATCH_SECONDS_MAX: Final = 86_400.0

pool = typer.Typer(no_args_is_help=True, help="Open, inspect, change and audit stock pools.")

SkuArgument = Annotated[str, typer.Argument(metavar="SKU", help="Stock keeping unit: name of the pool.")]


@pool.command("open")
def open_pool(  # noqa: PLR0913  # an option each
    context: typer.Context,
    sku: SkuArgument,
    *,
    stock: Annotated[int, typer.Option(metavar="N", help="Units to sell.")],
    segments: Annotated[int, typer.Option(metavar="K", help="Number of segments that the stock is split into.")],
    shards: Annotated[
        int,
        typer.Option(
            metavar="N", help="Number of shards, each in its own hash slot, for the masters of a cluster to share."
        ),
    ] = 1,
    limit_per_customer: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum units per customer; every order must then name its customer."),
    ] = None,
    gated: Annotated[
        bool, typer.Option("--gated", help="Let the order database given by --database decide every order.")
    ] = False,
    database: DatabaseOption = None,
    create_tables: Annotated[
        bool, typer.Option("--create-tables", help="Create missing tables in the order database.")
    ] = False,
    epoch: Annotated[
        int, typer.Option(metavar="N", help="Epoch of a pool that is opened again; higher than any before.")
    ] = 1,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Open a pool once. An open pool is unchanged; exit code 1 if it differs from the one asked for.

    A gated pool gets its rows in the order database first; what was interrupted, the same command finishes.
    """
    required_ungated(shards, gated=gated)
    if not gated and (create_tables or is_said(context, "database")):
        message = f"{'--create-tables' if create_tables else '--database'} is for a pool that is opened with --gated"
        raise InvalidInput(message)
    if gated and database is None:
        message = f"--gated needs --database URL: the order database that is to decide the orders of {sku!r}"
        raise InvalidInput(message)
    with RedisStore.from_url(url) as store:
        found = Pool(store, sku)
        if shards != 1:
            answer = ShardedPool(store, sku).open(
                stock=stock, segments=segments, shards=shards, epoch=epoch, customer_limit=limit_per_customer
            )
        elif gated and database is not None:
            required_in_one_piece(store, sku)  # before the order database gets rows
            from segmented.cli.pool_gate import Opening, open_both  # noqa: PLC0415  # SQLAlchemy, for who needs it

            asked = Opening(stock, segments, epoch, limit_per_customer, creates_tables=create_tables)
            answer = open_both(found, database, asked)
        else:
            answer = found.open(stock=stock, segments=segments, epoch=epoch, customer_limit=limit_per_customer)
    state = answer.state
    is_new = not isinstance(answer, AlreadyOpen)
    shard_count = len(state.shards) if isinstance(state, ShardedState) else 1
    numbers = (state.opened, state.segment_count, state.customer_limit, state.gated, state.epoch, shard_count)
    is_as_asked = numbers == (stock, segments, limit_per_customer, gated, epoch, shards)
    if json_file is not None:
        write_json(json_file, {"is_new": is_new, "is_as_asked": is_as_asked} | as_json(state))
    differs = "" if is_as_asked else ", with other numbers than these"
    said = f"opened{differs}" if is_new else f"open already{differs}: nothing is changed"
    if json_file != STDOUT:
        if is_as_asked:
            typer.echo(said)
        print_table(("", ""), total_rows(state))
    if not is_as_asked:
        tell(said)
        raise typer.Exit(EXIT_REFUSED)


@pool.command()
def show(
    sku: SkuArgument,
    *,
    is_live: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: interval between two readings.")] = 1.0,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="With --watch: duration after which to stop.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Show a pool's totals and the free units of its segments, all read in one step; or each shard in one step.

    More than 24 segments are shown as ranges; --json has each. With --watch in a pipe, one block a look; with --watch
    and --json -, one object a line.
    """
    for option, value, least in (("--every", every, WATCH_SECONDS_MIN), ("--for", seconds, 0.0)):
        if value is not None and not least <= value <= WATCH_SECONDS_MAX:
            message = f"{option} {value:g} must be between {least:g} and {WATCH_SECONDS_MAX:,.0f} s"
            raise InvalidInput(message)
    with RedisStore.from_url(url) as store:
        found = find_pool(store, sku)
        if is_live:
            watch(looks(found.state, every=every, seconds=seconds, clock=SystemClock()), json_file)
        else:
            show_once(found.state(), json_file)


pool.command()(pool_changes.restock)
pool.command()(pool_changes.withdraw)
pool.command()(pool_changes.resize)


@pool.command()
def close(
    sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """Stop taking new orders, permanently. Asks for confirmation; without a terminal, --yes is required.

    What is reserved can still be confirmed, cancelled, or lapse.
    """
    is_asked = require_somebody("close", yes=yes)
    with RedisStore.from_url(url) as store:
        found = find_pool(store, sku)
        if is_asked and not _is_wanted(found.state()):
            raise typer.Exit(EXIT_REFUSED)
        answer = found.close()
    said = "closed before: nothing is changed" if answer.replay else "closed"
    _tell(answer.state, {"is_changed": not answer.replay}, json_file, said)


pool.command()(pool_carts.carts)
pool.command("finish-carts")(pool_carts.finish_carts)
pool.command()(pool_books.audit)
pool.command()(pool_books.repair)
pool.command()(pool_books.export)


def _is_wanted(state: PoolState) -> bool:
    if state.is_closed:
        return True
    print_table(("", ""), total_rows(state))
    return typer.confirm(f"Close {shown(state.sku)} for good, with {state.available} units unsold?")


def _tell(state: PoolState, more: dict[str, Any], json_file: Path | None, sentence: str) -> None:
    if json_file is not None:
        write_json(json_file, more | as_json(state))
    if json_file != STDOUT:
        typer.echo(sentence)
