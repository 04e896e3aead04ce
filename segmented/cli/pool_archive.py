"""Commands that move data out of Redis: `segmented pool archive`, `verify-archive`, `delete` and `forget`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    YesOption,
    counting,
    require_somebody,
    shown,
    write_json,
)
from segmented.errors import InvalidInput
from segmented.files import check_kept
from segmented.models.ids import counted, plural
from segmented.process import tell
from segmented.stock import Pool, delete as delete_pool, find_pool
from segmented.stock.archiving import FileArchive, Progress, archive as archive_pool
from segmented.stock.archiving.checking import check_archive
from segmented.stores.redis import RedisStore

EXIT_REFUSED: Final = 1

FileOption = Annotated[
    Path,
    typer.Option("--to", metavar="FILE", help="File of the archive, JSON lines; compressed if its name ends with .gz."),
]


def archive(
    sku: SkuArgument,
    *,
    to: FileOption,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Write a closed pool to a file, check what was written, and remove the pool's keys.

    The pool must have nothing left to decide. The keys are removed in small steps, while other pools sell on. Run the
    same command again to finish an interrupted run. The rows of an order database stay.
    """
    check_kept(to, "--to")
    is_asked = require_somebody("archive", yes=yes)
    file = FileArchive(to)
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        if is_asked and not typer.confirm(f"Archive {shown(sku)} to {file.name}, and remove its keys?"):
            raise typer.Exit(EXIT_REFUSED)
        with progress() as on_progress:
            archived = archive_pool(pool, file, on_progress=on_progress)
    if write_json(json_file, {"is_changed": not archived.replay} | asdict(archived)):
        return
    said = "archived before: nothing is changed" if archived.replay else "archived, and its keys are removed"
    what = f"{counted(archived.orders, 'order')} in {counted(archived.lines, 'line')}"
    typer.echo(f"{said}: {what} at {shown(archived.target)}")
    typer.echo(f"digest {archived.digest}")
    if archived.gated:
        typer.echo("the order database keeps its rows: they say what was sold")


def verify_archive(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of the archive.", show_default=False)],
    *,
    json_file: JsonOption = None,
) -> None:
    """Check that an archive is complete and adds up, from its lines alone: counts, units, and the ledger's digests.

    Exit code 2, with the reason, if it is not.
    """
    found = FileArchive(file)
    if not found.exists():
        raise InvalidInput(f"there is no archive {found.name}")
    checked = check_archive(found.lines(), found.name)
    if not write_json(json_file, {"is_complete": True} | asdict(checked)):
        typer.echo(
            f"complete: {shown(checked.sku)} in epoch {checked.epoch}, {counted(checked.orders, 'order')}, "
            f"{counted(checked.confirmed, 'unit')} sold, {counted(checked.lines, 'line')}"
        )
        typer.echo(f"digest {checked.digest}")


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a bar on a terminal, otherwise a line when a step begins; both on standard error."""
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def tell(step: str, _done: int, total: int) -> None:
            if step not in seen:
                seen.add(step)
                about = f" about {counted(total, 'record')}" if total else ""
                typer.echo(f"{step}{about}", err=True)

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TextColumn  # noqa: PLC0415  # terminals only

    from segmented.cli.console import Console  # noqa: PLC0415  # terminals only

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("checking", total=None)
        yield lambda step, done, total: bars.update(bar, description=step, completed=done, total=total or None)


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
                f"Delete {shown(sku)} for good: {_said_counts(found.orders, found.entries)}?"
            ):
                raise typer.Exit(EXIT_REFUSED)
        with progress() as on_progress:
            done = delete_pool(pool, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    if write_json(json_file, {"is_changed": not (dry_run or done.replay)} | asdict(done)):
        return
    word = "would be deleted" if dry_run else "deleted"
    what = f"{_said_counts(done.orders, done.entries)}, {counted(done.confirmed, 'unit')} sold"
    typer.echo("removed before: nothing is changed" if done.replay else f"{word}: {what}")
    if done.reserved:
        typer.echo(f"{counted(done.reserved, 'unit', 'was')} still reserved")
    if done.gated:
        kept = f"'segmented pool reopen {sku}' opens the pool again from them"
        typer.echo(f"the order database keeps its rows of orders and of the relayed ledger: {kept}")


def _said_counts(orders: int, entries: int) -> str:
    return f"{counted(orders, 'order')}, {counted(entries, 'change')} of the ledger"


def forget(
    sku: SkuArgument,
    *,
    grace: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Time after an order's end in which the pool answers repeats."),
    ] = 86_400.0,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Drop the records of finished orders from a gated pool, while it sells. Its order database answers their repeats.

    The ledger must be relayed and trimmed behind these orders, which the relay's --trim-keep does. The first run for a
    pool waits 10 seconds, until every process that sells knows. Safe to run twice, and to interrupt.
    """
    if database is None:
        raise InvalidInput(f"forget needs --database URL: the order database that answers repeats of orders of {sku!r}")
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it
    from segmented.orders import forget as forget_orders  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with (
        RedisStore.from_url(url) as store,
        migrated_gate(database) as gate,
        counting("orders forgotten: {:,}") as on_page,
    ):
        pool = Pool(store, sku)
        report = forget_orders(pool, gate, grace=grace, on_page=on_page)
        if report.wait_seconds:
            tell(f"waiting {report.wait_seconds:.0f} s, until every process that sells knows that {shown(sku)} forgets")
            time.sleep(report.wait_seconds)
            report = forget_orders(pool, gate, grace=grace, on_page=on_page)
    if not write_json(json_file, asdict(report)):
        typer.echo(
            f"forgot {counted(report.orders, 'order')} with {counted(report.units, 'sold unit')}, up to change "
            f"{report.up_to}; {counted(report.left, 'record', 'is')} left"
        )
        cure = f"run 'segmented pool relay {sku}' with --trim-keep"
        for count, why in (
            (report.not_relayed, f"{plural(report.not_relayed, 'is')} not relayed: {cure}"),
            (report.not_trimmed, f"{plural(report.not_trimmed, 'is')} relayed but not trimmed: {cure}"),
            (report.in_grace, f"ended less than {grace:g} s ago: --grace sets this time"),
        ):
            if count:
                typer.echo(f"{count:,} of them {why}")
