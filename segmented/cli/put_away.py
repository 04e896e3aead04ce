"""Commands that move data out of Redis and delete what is old: of `segmented pool` and `segmented orders`.

`pool relay` copies a ledger to the order database, `trim` bounds it, `forget` drops records of finished orders;
`archive`, `verify-archive` and `delete` are for closed pools. `orders prune` and `erase` deal with old data.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

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
    signals,
    span,
    write_json,
)
from segmented.errors import DatabaseUnavailable, InvalidInput, StoreUnavailable
from segmented.files import STDOUT, check_kept
from segmented.models.ids import counted, plural
from segmented.process import tell
from segmented.stock import Pool, ShardedPool, delete as delete_pool, find_pool
from segmented.stock.archive_checks import check_archive
from segmented.stock.archiving import FileArchive, Progress, archive as archive_pool, lines_of, names_customer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.orders import Gate, RelayReport, ShardRelay

EXIT_REFUSED: Final = 1
ROUND_SECONDS: Final = 10.0
"""Maximum time of one round of --follow, after which it is reported."""
RELAYED: Final = "relayed"
EVERY_MIN: Final = 0.1
EVERY_MAX: Final = 86_400.0
MEGABYTE: Final = 1_000_000

FileOption = Annotated[
    Path,
    typer.Option("--to", metavar="FILE", help="File of the archive, JSON lines; compressed if its name ends with .gz."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, and change nothing.")]
KeepOption = Annotated[
    int | None,
    typer.Option("--trim-keep", metavar="N", min=0, help="Ledger entries to keep; older relayed ones are deleted."),
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
    needed = f"forget needs --database URL: the order database that answers repeats of orders of {sku!r}"
    with (
        _gate(database, needed) as gate,
        RedisStore.from_url(url) as store,
        counting("orders forgotten: {:,}") as on_page,
    ):
        from segmented.orders import forget as forget_orders  # noqa: PLC0415  # SQLAlchemy, for those who need it

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


def relay(
    sku: SkuArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: interval between rounds.")] = 1.0,
    trim_keep: KeepOption = None,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Copy a pool's ledger to the order database: the changes that it lacks, each once. Safe while the pool sells.

    For gated pools and others. From the first run on, the ledger is trimmed only behind what was copied. Any number of
    runs may overlap, and the next one continues an interrupted one. With --follow and --json -, prints one object per
    line.
    """
    if not EVERY_MIN <= every <= EVERY_MAX:
        raise InvalidInput(f"--every {every:g} must be between {EVERY_MIN:g} and {EVERY_MAX:,.0f} s")
    needed = f"relay needs --database URL: the order database that gets the ledger of {sku!r}"
    with _gate(database, needed) as gate, RedisStore.from_url(url) as store:
        from segmented.orders import relay as relay_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

        pool = find_pool(store, sku)
        if not follow:
            _tell(relay_pool(pool, gate, trim_keep=trim_keep), json_file)
            return
        _follow(pool, gate, every=every, trim_keep=trim_keep, json_file=json_file)


def trim(
    sku: SkuArgument,
    *,
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="Ledger entries to keep at least.")],
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Delete old entries of a pool's ledger, after writing a checkpoint of its numbers. Safe to run twice.

    Refused for entries of a relayed ledger that no database has yet. Audit first: of deleted entries only sums remain.
    """
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
        done = [shard.trim_ledger(keep=keep) for shard in shards]
    found = [
        {"shard": number, "first_sequence": one.first_sequence, "sequence": one.sequence}
        for number, one in enumerate(done)
    ]
    if not write_json(json_file, {"sku": sku, "shards": found}):
        for number, one in enumerate(done):
            said = f"the ledger begins with {one.first_sequence}; its last entry is {one.sequence}"
            typer.echo(_place(number, len(done)) + said)


def _follow(
    pool: Pool | ShardedPool, gate: Gate, *, every: float, trim_keep: int | None, json_file: Path | None
) -> None:
    """Relay until a signal; report a server that does not answer once, and go on when it does again."""
    from segmented.orders import relay as relay_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

    said = ""
    with signals(signal.SIGINT, signal.SIGTERM) as heard:
        while True:
            try:
                report = relay_pool(pool, gate, timeout=ROUND_SECONDS, trim_keep=trim_keep)
            except (DatabaseUnavailable, StoreUnavailable) as error:
                if said != str(error):
                    said = str(error)
                    tell(said)
            else:
                if report.copied or said != RELAYED:
                    said = RELAYED
                    _tell(report, json_file, is_line=True)
            if heard(every):
                return


def _tell(report: RelayReport, json_file: Path | None, *, is_line: bool = False) -> None:
    if json_file == STDOUT and is_line:
        typer.echo(json.dumps(_as_json(report)))
    elif json_file is not None:
        write_json(json_file, _as_json(report))
    if json_file != STDOUT:
        for one in report.shards:
            typer.echo(f"{_place(one.shard, len(report.shards))}{_relayed(one)}")
    sys.stdout.flush()


def _as_json(report: RelayReport) -> dict[str, Any]:
    sums = {"copied": report.copied, "entries_behind": report.entries_behind, "seconds_behind": report.seconds_behind}
    return {"sku": report.sku} | sums | {"shards": [asdict(one) for one in report.shards]}


def _place(shard: int, count: int) -> str:
    return f"shard {shard}: " if count > 1 else ""


def _relayed(one: ShardRelay) -> str:
    epoch, sequence = one.relayed
    many = f"{one.entries_behind} {plural(one.entries_behind, 'entry')}"
    behind = f"{many} and {span(one.seconds_behind)} behind" if one.entries_behind else "nothing behind"
    marked = f", {one.marked} marked as lost" if one.marked else ""
    begins = "" if one.first_sequence is None else f"; the ledger begins with {one.first_sequence}"
    changes = f"{one.copied} {plural(one.copied, 'change')}"
    return f"relayed up to {epoch}-{sequence}: {changes} copied{marked}, {behind}{begins}"


def prune(
    *,
    before: Annotated[
        datetime,
        typer.Option(
            metavar="DATE", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M"], help="Rows from before this date go, UTC."
        ),
    ],
    gone: Annotated[
        bool, typer.Option("--gone", help="Also orders of pools that the stock server does not know.")
    ] = False,
    dry_run: DryRunOption = False,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Delete old rows of the order database: orders that no pool needs any more, and relayed ledger entries.

    Orders of a pool that is there go once it has no record of them, which `pool forget` does; those of an archived or
    deleted pool all go. Deletes 1,000 rows in a transaction, while pools sell. Run the same command again to finish an
    interrupted run. The sold units stay as a sum, so that audits stay clean.
    """
    is_asked = not dry_run and require_somebody("prune", yes=yes)
    before = before.replace(tzinfo=UTC)
    with (
        _gate(database, "prune needs --database URL: the order database whose old rows are deleted") as gate,
        RedisStore.from_url(url) as store,
        counting("orders: {:,}, ledger entries: {:,}") as on_page,
    ):
        from segmented.orders.pruning import PruneRows, prune as prune_rows  # noqa: PLC0415  # SQLAlchemy, as above

        if is_asked and not typer.confirm(f"Delete the orders and ledger entries from before {before:%Y-%m-%d %H:%M}?"):
            raise typer.Exit(EXIT_REFUSED)
        sizes = PruneRows(gate).sizes()
        done = prune_rows(store, gate, before, gone=gone, dry_run=dry_run, on_page=on_page)
    content = asdict(done) | {"before": before.isoformat(), "sizes_before": sizes}
    if write_json(json_file, {"is_changed": not dry_run and bool(done.orders or done.entries)} | content):
        return
    what = f"{counted(done.orders, 'order')} and {counted(done.entries, 'ledger entry')}"
    typer.echo(f"{'would be deleted' if dry_run else 'deleted'}: {what} from before {before:%Y-%m-%d %H:%M}")
    for name, size in done.sizes.items():
        typer.echo(f"{name}: {size / MEGABYTE:,.1f} MB")
    if done.unknown:
        names = ", ".join(map(shown, done.unknown[:3])) + (" ..." if len(done.unknown) > 3 else "")  # noqa: PLR2004  # enough to see
        kept = f"orders of {counted(len(done.unknown), 'pool')} stay, which the stock server does not know: {names}"
        typer.echo(f"{kept}; --gone deletes them, too", err=True)


def erase(
    *,
    customer: Annotated[str, typer.Option(metavar="ID", help="Customer whose id is taken out.")],
    archive: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Archive to look into, which is not changed; repeatable.")
    ] = None,
    dry_run: DryRunOption = False,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    yes: YesOption = False,
    json_file: JsonOption = None,
) -> None:
    """Take a customer's id out of all pools of a server, and out of the order database and its relayed ledgers.

    Orders stay, without their customer, and audits stay clean. The ledger of a pool that names the customer is trimmed
    up to now. An order that is not decided keeps its customer: exit code 1, run it again later. An archive is never
    changed: each --archive that names the customer is listed, with exit code 1. Run the same command again to finish an
    interrupted run.
    """
    is_asked = not dry_run and require_somebody("erase", yes=yes)
    from segmented.orders import erase_customer  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with RedisStore.from_url(url) as store, nullcontext() if database is None else _gate(database) as gate:
        if is_asked and not typer.confirm(f"Take the customer {shown(customer)} out of all orders for good?"):
            raise typer.Exit(EXIT_REFUSED)
        done = erase_customer(store, customer, gate=gate, dry_run=dry_run)
    files = archive or ()
    kept = [str(file) for file in files if any(names_customer(line, customer) for line in lines_of(file))]
    found = {"is_changed": not dry_run and bool(done.records or done.rows)} | asdict(done) | {"archives": kept}
    if not write_json(json_file, found):
        where = counted(done.records, "record")
        if database is not None:
            where += f" of pools and {counted(done.rows, 'row')} of the order database"
        ledgers = f"; {counted(done.ledgers, 'ledger', 'was')} trimmed"
        if dry_run:
            ledgers = f"; {counted(done.ledgers, 'ledger', 'names')} the customer"
        typer.echo(f"{'would be erased from' if dry_run else 'erased from'} {where}{ledgers if done.ledgers else ''}")
    if done.undecided:
        what = counted(done.undecided, "order", "is")
        typer.echo(f"{what} not decided and keeps the customer: erase again once it is", err=True)
    for name in kept:
        typer.echo(f"{shown(name)} names the customer: an archive is not changed, so delete it once you may", err=True)
    if not (done.records or done.rows or done.ledgers or done.undecided or kept):
        typer.echo(f"nothing names the customer {shown(customer)}: check the id, unless it was erased before", err=True)
    if done.undecided or kept:
        raise typer.Exit(EXIT_REFUSED)


@contextmanager
def _gate(database: str | None, needed: str = "") -> Iterator[Gate]:
    if database is None:
        raise InvalidInput(needed)
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with migrated_gate(database) as gate:
        yield gate
