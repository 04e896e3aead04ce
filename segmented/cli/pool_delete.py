"""`segmented pool delete`: remove a pool that nobody needs any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    JsonOption,
    SkuArgument,
    UrlOption,
    YesOption,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_archive import progress
from segmented.models.ids import counted
from segmented.stock import delete as delete_pool, find_pool
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, and change nothing.")]


def delete(
    sku: SkuArgument,
    *,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Delete it although it is open, frozen, or has orders that are not decided."),
    ] = False,
    dry_run: DryRunOption = False,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Remove a closed pool's keys in small steps, and its entries in the workers' index. `archive` keeps a copy.

    A pool that is open, or has something left to decide, is refused without --unfinished. Run the same command again to
    finish an interrupted run. The rows of an order database, relayed ledgers and archives stay.
    """
    is_asked = not dry_run and require_somebody("delete", yes=yes)
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        if is_asked:
            found = delete_pool(pool, unfinished=unfinished, dry_run=True)
            if not found.replay and not typer.confirm(
                f"Delete {shown(sku)} for good: {_said(found.orders, found.entries)}?"
            ):
                raise typer.Exit(EXIT_REFUSED)
        with progress() as on_progress:
            done = delete_pool(pool, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    if write_json(json_file, {"is_changed": not (dry_run or done.replay)} | asdict(done)):
        return
    word = "would be deleted" if dry_run else "deleted"
    what = f"{_said(done.orders, done.entries)}, {counted(done.confirmed, 'unit')} sold"
    typer.echo("removed before: nothing is changed" if done.replay else f"{word}: {what}")
    if done.reserved:
        typer.echo(f"{counted(done.reserved, 'unit', 'was')} still reserved")
    if done.gated:
        kept = f"'segmented pool reopen {sku}' opens the pool again from them"
        typer.echo(f"the order database keeps its rows of orders and of the relayed ledger: {kept}")


def _said(orders: int, entries: int) -> str:
    return f"{counted(orders, 'order')}, {counted(entries, 'change')} of the ledger"
