"""Pools that lost acknowledged changes: `segmented pool thaw`; with an order database `verify`, `rebuild`, `reopen`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    YesOption,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_view import AllOption, OneSkuArgument, as_json, each_pool, each_shard, one_of, total_rows
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, PoolNotFrozen, PoolNotGated, ThawGated
from segmented.models import Opened, PoolState, Thawed
from segmented.models.ids import counted, plural
from segmented.models.shards import SHARD_MARK
from segmented.process import tell
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate

EXIT_REFUSED: Final = 1

ShardOption = Annotated[int | None, typer.Option("--shard", metavar="N", help="Number of the shard of a sharded pool.")]

KeptQueueOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="Queue of the workers that take submitted orders  [default: as kept]"),
]
KeptStepOption = Annotated[
    str | None,
    typer.Option("--step", metavar="MODULE:FUNCTION", help="Step that these workers must have  [default: as kept]"),
]


def rebuild(
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    shard: ShardOption = None,
    selling: Annotated[
        bool, typer.Option("--selling", help="Also a pool that sells, because 'pool audit' found that it differs.")
    ] = False,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Let a frozen pool sell again, in a new epoch, with the units that its order database has not sold.

    Submitted orders and reservations that are left stay; the database refuses confirms of the old epoch. Safe to run
    twice: without --selling, a pool that sells is unchanged, and the next run finishes an interrupted one. A pool in a
    later epoch than its database is rebuilt although it sells. One whose keys are gone is opened again by `segmented
    pool reopen`.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        if selling:
            raise InvalidInput("--selling rebuilds one pool: name its SKU instead of --all")
        each_shard(url, lambda one, number: rebuild(one, shard=number, database=database, url=url), json_file)
        return
    with _gated("rebuild", sku, database, url, shard) as (pool, gate):
        from segmented.orders import rebuild as rebuild_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

        thawed = _or_unchanged(pool, lambda: rebuild_pool(pool, gate, selling=selling))
    _tell("rebuilt", thawed, json_file)


def reopen(  # noqa: PLR0913  # an option each
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    segments: Annotated[
        int | None, typer.Option(metavar="K", help="Number of segments  [default: as many as the database has rows]")
    ] = None,
    epoch: Annotated[
        int | None, typer.Option(metavar="N", help="Epoch, later than any before  [default: the next one]")
    ] = None,
    queue: KeptQueueOption = None,
    step: KeptStepOption = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Open a gated pool again whose keys are gone, in a new epoch, with the units that its database has not sold.

    Units that were only reserved are free again; the database refuses confirms of earlier epochs. Safe to run twice: an
    open pool is unchanged, and the next run finishes an interrupted one. The limit per customer, the profile, the queue
    and the step are those that the database has kept. With --all, every sale of the database that the server does not
    know, but for those in shards; asks for confirmation.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        names = _gone(database, url)
        if names and require_somebody("reopen --all", yes=yes):
            typer.echo("\n".join(map(shown, names)))
            if not typer.confirm(f"Open {counted(len(names), 'sale')} again?"):
                raise typer.Exit(EXIT_REFUSED)
        each_pool(names, lambda one: reopen(one, segments=segments, database=database, url=url), json_file)
        return
    with _gated("reopen", sku, database, url) as (pool, gate):
        from segmented.orders import reopen_gated  # noqa: PLC0415  # SQLAlchemy, for those who need it
        from segmented.orders.opening import next_epoch  # noqa: PLC0415  # as above

        segments = segments or max(1, len(gate.totals(sku).segments))
        epoch = next_epoch(pool, gate) if epoch is None else epoch
        answer = reopen_gated(pool, gate, segments=segments, epoch=epoch, queue=queue, step=step)
    state, is_new = answer.state, isinstance(answer, Opened)
    if not write_json(json_file, {"is_new": is_new} | as_json(state)):
        said = f"reopened in epoch {state.epoch}: {state.available} free"
        typer.echo(said if is_new else f"open already in epoch {state.epoch}: nothing is changed")


def verify(
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    shard: ShardOption = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Compare a gated pool with its order database, so that it sells on after a restart or failover of its server.

    Workers with the order database do so by themselves. A pool that lacks changes which the database has seen is
    frozen, and is to be rebuilt. Safe to run twice.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        each_shard(url, lambda one, number: verify(one, shard=number, database=database, url=url), json_file)
        return
    with _gated("verify", sku, database, url, shard) as (pool, gate):
        from segmented.orders import verify as verify_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

        verified = verify_pool(pool, gate)
    if not write_json(json_file, {"sku": sku, "is_changed": not verified.replay}):
        typer.echo("verified before on this server" if verified.replay else "verified: the pool sells on")


def thaw(
    sku: SkuArgument,
    *,
    sold: Annotated[
        int, typer.Option(metavar="N", help="Number of units sold, as your own records of customers' orders say.")
    ],
    stocked: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Units ever stocked, without those withdrawn, if a restock or withdrawal was lost too."
            "  [default: as the pool has it]",
        ),
    ] = None,
    shard: Annotated[
        int | None, typer.Option(metavar="N", help="Number of the frozen shard of a sharded pool.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Let a frozen pool without an order database sell again, in a new epoch, with the number of sold units you give.

    Its server lost changes, so it cannot know the number. Units that are still reserved stay so, all others are free.
    If too few are left for the reserved orders, the newest ones are cancelled. The ledger starts again and records the
    number. A pool that sells is unchanged. Asks for confirmation; without a terminal, --yes is required.
    """
    is_asked = require_somebody("thaw", yes=yes)
    with RedisStore.from_url(url) as store:
        pool = _one_of(find_pool(store, sku), shard)
        state = pool.state()
        if state.gated:
            raise InvalidInput(str(ThawGated(sku)))
        if is_asked and state.frozen is not None and not _is_wanted(state, sold, stocked):
            raise typer.Exit(EXIT_REFUSED)
        thawed = _or_unchanged(pool, lambda: pool.thaw(sold=sold, stocked=stocked))
    _tell("thawed", thawed, json_file)


def _gone(database: str | None, url: str) -> list[str]:
    """List the sales of an order database that the stock server does not know, without shards."""
    if database is None:
        raise InvalidInput("reopen needs --database URL: the order database that has the sales")
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it

    names: list[str] = []
    with RedisStore.from_url(url) as store, migrated_gate(database) as gate:
        for name in gate.sales():
            if SHARD_MARK in name:
                tell(f"{shown(name)} is a shard: open its pool again by hand")
                continue
            try:
                find_pool(store, name).state()
            except PoolArchived:
                continue
            except PoolMissing:
                names.append(name)
    return names


@contextmanager
def _gated(
    command: str, sku: str, database: str | None, url: str, shard: int | None = None
) -> Iterator[tuple[Pool, Gate]]:
    """Connect to a pool, or a shard, and its order database. A pool for which the command is wrong is bad input."""
    if database is None:
        raise InvalidInput(f"{command} needs --database URL: the order database that decides the orders of {sku!r}")
    from segmented.cli.pool_gate import order_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with RedisStore.from_url(url) as store:
        pool = _named(command, store, sku, shard)
        with order_gate(database) as gate:
            try:
                if command != "reopen" and not pool.is_gated():
                    raise PoolNotGated(sku)  # noqa: TRY301  # handled as the library's own
                yield pool, gate
            except PoolNotGated as error:
                how = f"'segmented pool thaw {sku}' lets it sell again once it is frozen"
                message = f"pool {sku!r} was opened without an order database, which {command} needs: {how}"
                raise InvalidInput(message) from error
            except PoolMissing as error:
                if isinstance(error, PoolArchived):
                    raise
                raise InvalidInput(str(error)) from error  # it names the command that opens the pool


def _or_unchanged(pool: Pool, mend: Callable[[], Thawed]) -> Thawed:
    """Let a pool sell again; one that sells is unchanged, as after a run before."""
    try:
        return mend()
    except PoolNotFrozen:
        return Thawed(pool.state(), replay=True)


def _named(command: str, store: RedisStore, sku: str, shard: int | None) -> Pool:
    """Return the pool, or its shard; a pool whose keys are gone is not asked for its shards."""
    return Pool(store, sku) if command == "reopen" else _one_of(find_pool(store, sku), shard)


def _one_of(pool: Pool | ShardedPool, shard: int | None) -> Pool:
    if isinstance(pool, Pool):
        if shard is not None:
            raise InvalidInput(f"pool {pool.sku!r} is not sharded: leave --shard out")
        return pool
    if shard is None or not 0 <= shard < len(pool.shards):
        message = f"pool {pool.sku!r} is sharded: give --shard 0 to {len(pool.shards) - 1}, the one that is frozen"
        raise InvalidInput(message)
    return pool.shards[shard]


def _is_wanted(state: PoolState, sold: int, stocked: int | None) -> bool:
    print_table(("", ""), total_rows(state))
    left = (state.stocked if stocked is None else stocked) - sold
    units = f"{sold} {plural(sold, 'unit')}"
    return typer.confirm(f"Sell {shown(state.sku)} again, with {units} sold and {left} free or reserved?")


def _tell(word: str, thawed: Thawed, json_file: Path | None) -> None:
    told = {"is_changed": not thawed.replay, "cancelled_count": thawed.cancelled_count}
    if write_json(json_file, told | as_json(thawed.state)):
        return
    state = thawed.state
    numbers = f"{state.confirmed} sold, {state.reserved} reserved, {state.available} free"
    sells = f"sells in epoch {state.epoch}: nothing is changed"
    typer.echo(sells if thawed.replay else f"{word} in epoch {state.epoch}: {numbers}")
    if thawed.cancelled_count:
        count = thawed.cancelled_count
        orders, which = f"{count} {plural(count, 'reserved order', 'was')}", plural(count, "the newest one")
        typer.echo(f"{orders} cancelled, {which}: the units are sold")
