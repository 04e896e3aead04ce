"""`segmented pool`: open a stock pool, look at it, change it while it sells, close it, and check its books."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from segmented.cli import pool_books
from segmented.cli.output import (
    DEFAULT_URL,
    STDOUT,
    JsonOption,
    UrlOption,
    YesOption,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_view import as_json, looks, show_once, total_rows, watch
from segmented.clock import SystemClock
from segmented.errors import InvalidInput
from segmented.models import AlreadyOpen, Closed, PoolState, Restocked, TooFew
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1
WATCH_SECONDS_MIN: Final = 0.1
WATCH_SECONDS_MAX: Final = 86_400.0

pool = typer.Typer(
    no_args_is_help=True, help="Open a stock pool, look at it, change it while it sells, and check its books."
)

SkuArgument = Annotated[str, typer.Argument(metavar="SKU", help="What is sold, as the program names it.")]
UnitsArgument = Annotated[int, typer.Argument(metavar="UNITS", help="How many units.")]
IdOption = Annotated[
    str,
    typer.Option("--id", metavar="ID", help="Names this change: run again with the same id, nothing is done twice."),
]


@pool.command("open")
def open_pool(
    sku: SkuArgument,
    *,
    stock: Annotated[int, typer.Option(metavar="N", help="Units to sell.")],
    segments: Annotated[int, typer.Option(metavar="K", help="Segments that the stock is split into.")],
    limit_per_customer: Annotated[
        int | None, typer.Option(metavar="N", help="Units that one customer may have; every order then names one.")
    ] = None,
    gated: Annotated[
        bool, typer.Option("--gated", help="An order database decides every order: open its Gate too.")
    ] = False,
    epoch: Annotated[
        int, typer.Option(metavar="N", help="Higher than any before, for a pool that is opened anew.")
    ] = 1,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Open a pool, once. A pool that is open stays as it is; exit code 1 if it is not the one asked for."""
    with RedisStore.from_url(url) as store:
        answer = Pool(store, sku).open(
            stock=stock, segments=segments, gated=gated, epoch=epoch, customer_limit=limit_per_customer
        )
    state = answer.state
    is_new = not isinstance(answer, AlreadyOpen)
    found = (state.opened, state.segment_count, state.customer_limit, state.gated, state.epoch)
    is_as_asked = found == (stock, segments, limit_per_customer, gated, epoch)
    if json_file is not None:
        write_json(json_file, {"is_new": is_new, "is_as_asked": is_as_asked} | as_json(state))
    if json_file != STDOUT:
        differs = "" if is_as_asked else ", with other numbers than these"
        typer.echo("opened" if is_new else f"open already{differs}: nothing is changed")
        print_table(("", ""), total_rows(state))
    if not is_as_asked:
        raise typer.Exit(EXIT_REFUSED)


@pool.command()
def show(
    sku: SkuArgument,
    *,
    is_live: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --watch: between two looks.")] = 1.0,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="With --watch: end by itself after so long.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Show a pool's totals and the free units of its segments, all read in one step.

    More than 24 segments are shown as ranges; --json has each. With --watch in a pipe, one block a look; with --watch
    and --json -, one object a line.
    """
    for option, value, least in (("--every", every, WATCH_SECONDS_MIN), ("--for", seconds, 0.0)):
        if value is not None and not least <= value <= WATCH_SECONDS_MAX:
            message = f"{option} {value:g} must be between {least:g} and {WATCH_SECONDS_MAX:,.0f} s"
            raise InvalidInput(message)
    with RedisStore.from_url(url) as store:
        found = Pool(store, sku)
        if is_live:
            watch(looks(found.state, every=every, seconds=seconds, clock=SystemClock()), json_file)
        else:
            show_once(found.state(), json_file)


@pool.command()
def restock(
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Put units in while the sale runs, once for each id. A closed pool refuses, with exit code 1."""
    with RedisStore.from_url(url) as store:
        answer = Pool(store, sku).restock(units, restock_id=change_id)
    _tell_change("restocked", answer, units, json_file)


@pool.command()
def withdraw(
    sku: SkuArgument,
    units: UnitsArgument,
    *,
    change_id: IdOption,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Take free units out while the sale runs, all or none, once for each id. Exit code 1 if fewer are free."""
    with RedisStore.from_url(url) as store:
        answer = Pool(store, sku).withdraw(units, withdraw_id=change_id)
    _tell_change("withdrawn", answer, units, json_file)


@pool.command()
def resize(
    sku: SkuArgument,
    segments: Annotated[int, typer.Argument(metavar="SEGMENTS", help="How many segments from now on.")],
    *,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Change the number of segments while the sale runs, without a pause; free units are split evenly.

    Whoever holds a segment that goes away finishes undisturbed.
    """
    with RedisStore.from_url(url) as store:
        answer = Pool(store, sku).resize(segments)
    count = answer.state.segment_count
    _tell(answer.state, {"is_changed": not answer.replay}, json_file, _resized(count, was_so=answer.replay))


@pool.command()
def close(
    sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """Take no new orders any more, for good. Asks first; --yes is needed where nobody can be asked.

    What is reserved can still be confirmed, cancelled, or lapse.
    """
    is_asked = require_somebody("close", yes=yes)
    with RedisStore.from_url(url) as store:
        found = Pool(store, sku)
        if is_asked and not _is_wanted(found.state()):
            raise typer.Exit(EXIT_REFUSED)
        answer = found.close()
    said = "closed before: nothing is changed" if answer.replay else "closed"
    _tell(answer.state, {"is_changed": not answer.replay}, json_file, said)


pool.command()(pool_books.audit)
pool.command()(pool_books.repair)
pool.command()(pool_books.export)


def _is_wanted(state: PoolState) -> bool:
    if state.is_closed:
        return True
    print_table(("", ""), total_rows(state))
    return typer.confirm(f"Close {shown(state.sku)} for good, with {state.available} units unsold?")


def _resized(count: int, *, was_so: bool) -> str:
    many = f"{count} segment{'s' if count != 1 else ''}"
    return f"{many} before: nothing is changed" if was_so else f"{many} now"


def _tell(state: PoolState, more: dict[str, Any], json_file: Path | None, sentence: str) -> None:
    if json_file is not None:
        write_json(json_file, more | as_json(state))
    if json_file != STDOUT:
        typer.echo(sentence)


def _tell_change(word: str, answer: Restocked | TooFew | Closed, units: int, json_file: Path | None) -> None:
    if isinstance(answer, Restocked):
        found: dict[str, Any] = {"answer": word} | asdict(answer)
        now = "nothing is changed now" if answer.replay else f"{answer.available} are free now"
        said = f"{word}{' before under this id' if answer.replay else ''}: {answer.units} units, {now}"
    elif isinstance(answer, TooFew):
        found = {"answer": "too_few"} | asdict(answer)
        said = f"only {answer.available} units are free, not {units}: nothing is changed"
    else:
        found = {"answer": "closed", "change_id": answer.order_id, "units": units}
        said = "the pool is closed: nothing is changed"
    if json_file is not None:
        write_json(json_file, found)
    if json_file != STDOUT:
        typer.echo(said)
    if not isinstance(answer, Restocked):
        raise typer.Exit(EXIT_REFUSED)
