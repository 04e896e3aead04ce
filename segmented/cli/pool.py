"""`segmented pool`: open a stock pool, show it, change it while it sells, close it, and audit it.

`segmented pool carts` lists unfinished carts; `finish-carts` finishes those that are due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segmented.cli import pool_books, pool_view, put_away
from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    YesOption,
    is_said,
    print_table,
    require_somebody,
    shown,
    span,
    write_json,
)
from segmented.cli.pool_view import as_json, gate_of, in_all, required_in_one_piece, show_once, total_rows
from segmented.errors import ChangeGated, InvalidInput, PoolDiffers
from segmented.files import STDOUT
from segmented.models import AlreadyOpen, CartSweep, Closed, Opened, PoolState, Restocked, TooFew, UnfinishedCart
from segmented.models.ids import plural
from segmented.process import tell
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stock.carts import LIST_MAX, SWEEP_LIMIT, Carts
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, Opening, PoolSettings, differences
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1
pool = typer.Typer(no_args_is_help=True, help="Open, inspect, change and audit stock pools.")
EXIT_UNFINISHED: Final = 1
HomeArgument = Annotated[
    str, typer.Argument(metavar="SKU", help="Home pool of the carts: the first of a cart's skus in sorted order.")
]

UnitsArgument = Annotated[int, typer.Argument(metavar="UNITS", help="Number of units.")]
IdOption = Annotated[
    str, typer.Option("--id", metavar="ID", help="Id of this change; a repeat with the same id has no further effect.")
]

QueueOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Queue of the workers that take submitted orders  [default: any]")
]
StepOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION", help="Step that these workers must have, as in SEGMENTED_STEP  [default: any]"
    ),
]


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
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Durability of orders: memory, replicated:N, fsync or database  [default: memory; gated: database]",
        ),
    ] = None,
    queue: QueueOption = None,
    step: StepOption = None,
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

    A gated pool gets its rows in the order database first. Run the same command again to finish an interrupted opening.
    """
    if not gated and (create_tables or is_said(context, "database")):
        message = f"{'--create-tables' if create_tables else '--database'} is for a pool that is opened with --gated"
        raise InvalidInput(message)
    if gated and database is None:
        raise InvalidInput(f"--gated needs --database URL: the order database that decides the orders of {sku!r}")
    options: dict[str, Any] = {"stock": stock, "segments": segments, "epoch": epoch, "profile": profile}
    options |= {"limit_per_customer": limit_per_customer, "queue": queue, "step": step}
    opening = Opening(**options, gated=gated, shards=shards)
    asked = PoolSettings(sku, ttl=DEFAULT_TTL, hold=DEFAULT_HOLD).open(opening)
    with RedisStore.from_url(url) as store:
        try:
            if gated and database is not None:
                from segmented.cli.pool_gate import open_both, open_shards  # noqa: PLC0415  # SQLAlchemy, for who needs it

                if shards != 1:
                    answer = open_shards(ShardedPool(store, sku), database, opening, creates_tables=create_tables)
                else:
                    required_in_one_piece(store, sku)  # before the order database gets rows
                    answer = open_both(Pool(store, sku), database, opening, creates_tables=create_tables)
            elif shards != 1:
                answer = ShardedPool(store, sku).open(shards=shards, **options)
            else:
                answer = _opened_ungated(Pool(store, sku), **options)
        except PoolDiffers:
            answer = AlreadyOpen(find_pool(store, sku).state())
    _tell_opened(answer, json_file, differences(answer.state, asked, opening))


def _opened_ungated(pool: Pool, **options: Any) -> Opened | AlreadyOpen:  # noqa: ANN401  # those of `Pool.open`
    try:
        return pool.open(**options)
    except ChangeGated as error:
        raise InvalidInput(f"pool {pool.sku!r} is gated: open it with --gated and --database URL") from error


def _tell_opened(answer: Opened | AlreadyOpen, json_file: Path | None, differing: list[str]) -> None:
    """Print the pool. Exits with code 1 if it is `differing` from the one asked for."""
    state, is_new, is_as_asked = answer.state, not isinstance(answer, AlreadyOpen), not differing
    write_json(json_file, {"is_new": is_new, "is_as_asked": is_as_asked} | as_json(state))
    differs = "" if is_as_asked else f", with {', '.join(differing)}"
    said = f"opened{differs}" if is_new else f"open already{differs}: nothing is changed"
    if json_file != STDOUT:
        if is_as_asked:
            typer.echo(said)
        print_table(("", ""), total_rows(state))
    if not is_as_asked:
        tell(said)
        raise typer.Exit(EXIT_REFUSED)


def show(sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """Show a pool's totals and the free units of its segments, read in one step, or in one step per shard.

    More than 24 segments are shown as ranges; --json has each. `segmented watch` shows a pool while it sells.
    """
    with RedisStore.from_url(url) as store:
        show_once(find_pool(store, sku).state(), json_file)


def close(
    sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """Stop taking new orders, permanently. Asks for confirmation; without a terminal, --yes is required.

    Reservations can still be confirmed or cancelled, and still expire.
    """
    is_asked = require_somebody("close", yes=yes)
    with RedisStore.from_url(url) as store:
        found = find_pool(store, sku)
        if is_asked and not _is_wanted(found.state()):
            raise typer.Exit(EXIT_REFUSED)
        answer = found.close()
    said = "closed before: nothing is changed" if answer.replay else "closed"
    _tell(json_file, {"is_changed": not answer.replay} | as_json(answer.state), said)


def _is_wanted(state: PoolState) -> bool:
    if state.is_closed:
        return True
    print_table(("", ""), total_rows(state))
    units = f"{state.available} {plural(state.available, 'unit')}"
    return typer.confirm(f"Close {shown(state.sku)} for good, with {units} unsold?")


def restock(
    context: typer.Context,
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Add units while the sale runs, once per id. Exit code 1 if the pool is closed.

    For a gated pool, the order database gets them first. A run with the same id finishes an interrupted one.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "restock", context, database) as found:
        answer = in_all(found, found.restock(units, restock_id=change_id))
    _tell_change("restocked", answer, units, json_file)


def withdraw(
    context: typer.Context,
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Remove free units while the sale runs, all or none, once per id. Exit code 1 if fewer are free.

    For a gated pool, the order database removes them last. A run with the same id finishes an interrupted one.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "withdraw", context, database) as found:
        answer = in_all(found, found.withdraw(units, withdraw_id=change_id))
    _tell_change("withdrawn", answer, units, json_file)


def refund(  # noqa: PLR0913  # options of one command, each by name
    context: typer.Context,
    sku: SkuArgument,
    order_id: Annotated[str, typer.Argument(metavar="ORDER", help="Id of the sold order.")],
    *,
    return_id: Annotated[
        str, typer.Option("--return-id", metavar="ID", help="Id of this return; a repeat has no further effect.")
    ],
    units: Annotated[int | None, typer.Option(help="Units to give back  [default: all that the order has]")] = None,
    customer: Annotated[
        str | None, typer.Option(metavar="ID", help="Customer of the order, in a pool in shards with a limit.")
    ] = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Give units of a sold order back: they are free again, and so is its customer's limit. Once per return id.

    For a gated pool, the order database gives them back first. The money is yours to return.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "refund", context, database) as found:
        of_it = {"customer_id": customer} if isinstance(found, ShardedPool) else {}
        if units is None:
            record = found.order(order_id, **of_it)
            if record is None:
                message = f"the pool has no record of order {order_id!r}: give the number of --units to return"
                raise InvalidInput(message)
            units = record.quantity or record.asked
        answer = found.return_units(order_id, units, return_id=return_id, **of_it)
    returned = f"{answer.units} {plural(answer.units, 'unit')} of order {answer.order_id!r}"
    said = f"returned before under this id: {returned}, nothing is changed now"
    if not answer.replay:
        said = f"returned: {returned}, which keeps {answer.quantity}"
    _tell(json_file, {"answer": "returned"} | asdict(answer), said)


def resize(
    context: typer.Context,
    sku: SkuArgument,
    segments: Annotated[int, typer.Argument(metavar="SEGMENTS", help="New number of segments.")],
    *,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Change the number of segments while the sale runs, without downtime; free units are split evenly.

    The holder of a removed segment finishes undisturbed. For a gated pool, the order database gets the rows of new
    segments first.
    """
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "resize", context, database) as found:
        answer = found.resize(segments)
    many = f"{answer.state.segment_count} {plural(answer.state.segment_count, 'segment')}"
    said = f"{many} before: nothing is changed" if answer.replay else f"{many} now"
    _tell(json_file, {"is_changed": not answer.replay} | as_json(answer.state), said)


def expire(
    context: typer.Context,
    sku: SkuArgument,
    *,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Give back the units of expired holds, as workers do. For a gated pool, its order database decides each order."""
    with RedisStore.from_url(url) as store, _changeable(find_pool(store, sku), "expire", context, database) as found:
        ended = found.expire()
    states = Counter(one.state for one in ended)
    each = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    said = f"{len(ended)} {plural(len(ended), 'order')} with an expired hold: {each or 'nothing is changed'}"
    _tell(json_file, {"sku": sku, "orders": [asdict(one) for one in ended]}, said)


def assign(
    sku: SkuArgument,
    *,
    queue: QueueOption = None,
    step: StepOption = None,
    any_queue: Annotated[bool, typer.Option("--any-queue", help="Let workers of any queue take them.")] = False,
    any_step: Annotated[
        bool, typer.Option("--any-step", help="Let workers with any step, or none, take them.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Name the queue and the step of the workers that take submitted orders from now on. Say both.

    Nobody else takes, sweeps or confirms these orders: until such workers run, they wait. Orders that a worker has
    begun before are finished by it.
    """
    for option, name, is_any in (("queue", queue, any_queue), ("step", step, any_step)):
        if (name is not None) == is_any:
            message = f"give either --{option} NAME or --any-{option}: the command sets both queue and step of {sku!r}"
            raise InvalidInput(message)
    with RedisStore.from_url(url) as store:
        answer = find_pool(store, sku).assign(queue=queue, step=step)
    now = f"queue {shown(queue or 'any')}, step {shown(step or 'any')}"
    said = f"{now} before: nothing is changed" if answer.replay else f"{now} now"
    _tell(json_file, {"is_changed": not answer.replay} | as_json(answer.state), said)


@contextmanager
def _changeable(
    pool: Pool | ShardedPool, verb: str, context: typer.Context, database: str | None
) -> Iterator[Pool | ShardedPool]:
    """Return the pool to change, with its order database if it has one. Raises InvalidInput, PoolMissing."""
    needed = f"{verb} it with --database URL, because its order database must be changed too"
    with gate_of(pool, database, is_said=is_said(context, "database"), needed=needed) as gate:
        yield pool if gate is None else type(pool)(pool.store, pool.sku, gate=gate)


def _tell(file: Path | None, content: dict[str, Any], said: str) -> None:
    if not _write(file, content, said):
        typer.echo(said)


def _write(file: Path | None, content: dict[str, Any], said: str) -> bool:
    """Write an answer; if that fails, the error also says what was done. Return whether it went to standard output."""
    try:
        return write_json(file, content)
    except InvalidInput as error:
        raise InvalidInput(f"{error}; {said}") from error


def _tell_change(word: str, answer: Restocked | TooFew | Closed, units: int, json_file: Path | None) -> None:
    if isinstance(answer, Restocked):
        found: dict[str, Any] = {"answer": word} | asdict(answer)
        free = f"{answer.available} {plural(answer.available, 'is')} free now"
        now = "nothing is changed now" if answer.replay else free
        before = " before under this id" if answer.replay else ""
        said = f"{word}{before}: {answer.units} {plural(answer.units, 'unit')}, {now}"
    elif isinstance(answer, TooFew):
        found = {"answer": "too_few"} | asdict(answer)
        said = f"only {answer.available} {plural(answer.available, 'unit', 'is')} free, not {units}: nothing is changed"
    else:
        found = {"answer": "closed", "change_id": answer.order_id, "units": units}
        said = "the pool is closed: nothing is changed"
    is_told = _write(json_file, found, said)
    if not isinstance(answer, Restocked):
        tell(said)
        raise typer.Exit(EXIT_REFUSED)
    if not is_told:
        typer.echo(said)


def carts(
    sku: HomeArgument,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=LIST_MAX, help="Maximum number to list.")] = LIST_MAX,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """List a home's unfinished carts, longest overdue first: id, state, due time, lines.

    A due cart keeps its units until finish-carts finishes it; the others are being bought now.
    """
    with RedisStore.from_url(url) as store:
        found = Carts(store).unfinished(sku, limit=limit)
    counts = {"count": found.count, "due_count": found.due_count}
    if write_json(json_file, {"sku": sku} | counts | {"carts": [_as_json(one) for one in found.carts]}):
        return
    print_table(("cart", "state", "due", "lines"), [_row(one) for one in found.carts])
    if found.count > limit:
        typer.echo(f"there are {found.count}, {found.due_count} of them due: raise --limit to see more", err=True)


def finish_carts(
    context: typer.Context,
    sku: HomeArgument,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number to finish.")] = SWEEP_LIMIT,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Finish a home's overdue carts: their hold expired, or the process deciding them died. Safe to run twice.

    Any number of runs may overlap. Exit code 1 if a cart cannot be finished now; the next run tries again. For a gated
    pool, the order database decides first.
    """
    is_named = is_said(context, "database")
    needed = "finish its carts with --database URL, because its order database decides"
    with (
        RedisStore.from_url(url) as store,
        gate_of(Pool(store, sku), database, is_said=is_named, needed=needed) as gate,
    ):
        sweep = Carts(store, gate=gate).finish(sku, limit=limit)
    failed = [{"cart_id": cart_id, "error": str(error)} for cart_id, error in sweep.failed]
    if not write_json(json_file, {"finished": [asdict(one) for one in sweep.finished], "failed": failed}):
        typer.echo(_said(sweep))
        if len(sweep.finished) + len(sweep.failed) >= limit:
            typer.echo(f"the limit of {limit} is reached: there may be more")
    for cart_id, error in sweep.failed:
        typer.echo(f"cart {shown(cart_id)} is not finished: {error}", err=True)
    if sweep.failed:
        raise typer.Exit(EXIT_UNFINISHED)


def _said(sweep: CartSweep) -> str:
    if not sweep.finished:
        return "nothing is finished: no cart was due" if not sweep.failed else "nothing is finished"
    counts = Counter(one.state for one in sweep.finished)
    total = len(sweep.finished)
    parts = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return f"finished {total} {plural(total, 'cart')}: {parts}"


def _row(one: UnfinishedCart) -> tuple[str, ...]:
    cart = one.record.cart
    lasts = span(abs(one.due_in_ms) / 1000)
    lines = ", ".join(f"{quantity} {shown(sku)}" for sku, quantity in cart.lines)
    return shown(cart.cart_id), one.record.state, f"{lasts} ago" if one.is_due else f"in {lasts}", lines


def _as_json(one: UnfinishedCart) -> dict[str, Any]:
    cart = one.record.cart
    return {
        "cart_id": cart.cart_id,
        "state": one.record.state,
        "is_due": one.is_due,
        "due_in_ms": one.due_in_ms,
        "order_id": cart.order_id,
        "customer_id": cart.customer_id,
        "lines": [{"sku": sku, "quantity": quantity} for sku, quantity in cart.lines],
    }


GROUPS: Final[dict[str, dict[str, Callable[..., None]]]] = {
    "Sell": {"open": open_pool, "assign": assign, "close": close},
    "Look": {
        "list": pool_view.list_pools,
        "show": show,
        "doctor": pool_view.doctor,
        "audit": pool_books.audit,
        "orders": pool_books.orders,
        "carts": carts,
    },
    "Change": {
        "restock": restock,
        "withdraw": withdraw,
        "refund": refund,
        "resize": resize,
        "expire": expire,
        "finish-carts": finish_carts,
    },
    "Recover": {
        "repair": pool_books.repair,
        "verify": pool_books.verify,
        "rebuild": pool_books.rebuild,
        "reopen": pool_books.reopen,
        "thaw": pool_books.thaw,
    },
    "Put away": {
        "export": pool_books.export,
        "relay": put_away.relay,
        "trim": put_away.trim,
        "forget": put_away.forget,
        "archive": put_away.archive,
        "verify-archive": put_away.verify_archive,
        "delete": put_away.delete,
    },
}
"""The commands by what a user wants to do, in the order of the help."""

for _panel, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        pool.command(_name, rich_help_panel=_panel)(_command)
