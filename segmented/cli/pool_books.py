"""The books of a pool and of its order database: `segmented pool audit`, `repair`, `export` and `orders`.

For pools that lost acknowledged changes: `thaw`; with an order database `verify`, `rebuild` and `reopen`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TextIO

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    SkuArgument,
    UrlOption,
    YesOption,
    is_said,
    output_file,
    print_table,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_view import (
    AllOption,
    OneSkuArgument,
    as_json,
    away_line,
    drift_lines,
    each_pool,
    each_shard,
    gate_of,
    ledgers,
    one_of,
    place,
    placed,
    pools_of,
    total_rows,
)
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, PoolNotFrozen, PoolNotGated, ThawGated
from segmented.files import STDOUT, whole_file
from segmented.ledger_lines import parts_text
from segmented.models import LedgerEntry, Opened, OrderRecord, OrderState, PoolState, Thawed
from segmented.models.ids import counted, plural
from segmented.models.shards import SHARD_MARK
from segmented.process import tell
from segmented.stock import AuditReport, Pool, Repair, ShardedAuditReport, ShardedPool, find_pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.orders import BothReport, Gate

    Placed = tuple[int | None, BothReport]
    """The number of a shard, None for a pool in one piece; and the report."""


EXIT_DRIFT: Final = 1
EXIT_REFUSED: Final = 1
COLUMNS: Final = tuple(field.name for field in fields(LedgerEntry))
LEFT_OUT: Final = "holder_id"
"""A worker's complete id proves ownership."""
ORDER_COLUMNS: Final = tuple(field.name for field in fields(OrderRecord) if field.name != LEFT_OUT)
ShardOption = Annotated[int | None, typer.Option("--shard", metavar="N", help="Number of the shard of a sharded pool.")]
KeptQueueOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help="Queue of the workers that take submitted orders  [default: as kept]"),
]
KeptStepOption = Annotated[
    str | None,
    typer.Option("--step", metavar="MODULE:FUNCTION", help="Step that these workers must have  [default: as kept]"),
]


def audit(
    context: typer.Context,
    sku: OneSkuArgument = None,
    *,
    all_pools: AllOption = False,
    database: DatabaseOption = None,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Recompute a pool from its ledger and compare every number. Safe while the pool sells.

    With the order database of a gated pool, also compare every order and the sums of both sides. Prints each drift and
    difference, and the order it concerns. Exit code 0 if every number is explained, otherwise 1.
    """
    sku = one_of(sku, all_pools=all_pools)
    if all_pools:
        each_pool(pools_of(url), lambda one: _audit(one, database, url, None, is_named=False), json_file)
        return
    _audit(sku, database, url, json_file, is_named=is_said(context, "database"))


def _audit(sku: str, database: str | None, url: str, json_file: Path | None, *, is_named: bool) -> None:
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        with gate_of(pool, database, is_said=is_named) as gate:
            report = pool.audit()
            compared = None if gate is None else _compared(pool, gate)
    if not write_json(
        json_file, _report_json(report) | ({} if compared is None else {"database": _both_json(compared)})
    ):
        _print_report(report)
        if compared is not None:
            _print_both(compared)
    if not report.is_clean or (compared is not None and not all(one.is_clean for _, one in compared)):
        raise typer.Exit(EXIT_DRIFT)


def repair(
    sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """Audit a pool, show the repairs that it needs, and apply them. Asks for confirmation unless --yes.

    Each repair is a ledger entry, like any other change. Errors in the ledger itself cannot be repaired. In a sharded
    pool, units in transit are delivered. Exit code 1 if a problem remains, or the answer was no.
    """
    is_asked = require_somebody("repair", yes=yes)
    with RedisStore.from_url(url) as store:
        pool = find_pool(store, sku)
        is_sharded = isinstance(pool, ShardedPool)
        report: Any = pool.audit()
        away = report.away if is_sharded else 0
        if is_asked and (away or not report.is_clean):
            planned = placed(pool.repair(report, yes=False))
            _print_repairs(planned, otherwise="planned", is_sharded=is_sharded)
            for line in away_line(away):
                typer.echo(line)
            wanted = [f"go through {len(planned)} repair(s)"] * bool(planned or not away)
            wanted += ["bring these units in"] * bool(away)
            if not typer.confirm(f"{', and '.join(wanted).capitalize()}?"):
                raise typer.Exit(EXIT_REFUSED)
        mended = pool.repair(report, yes=True)
    done, after = placed(mended), mended.after
    brought_in = max(0, away - after.away) if isinstance(after, ShardedAuditReport) else 0
    more = {"brought_in": brought_in} if is_sharded else {}
    repairs = [({"shard": number} if is_sharded else {}) | asdict(each) for number, each in done]
    found = {"done_count": mended.done_count} | more | {"repairs": repairs, "after": _report_json(after)}
    if not write_json(json_file, found):
        _print_repairs(done, otherwise="left", is_sharded=is_sharded)
        for line in away_line(brought_in):
            typer.echo(f"brought in: {line}")
        _print_report(after)
    if not after.is_clean:
        raise typer.Exit(EXIT_DRIFT)


def export(
    sku: SkuArgument,
    *,
    to: ToOption = STDOUT,
    form: FormatOption = "jsonl",
    after: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Export only changes after this sequence number, where the last export ended."
        ),
    ] = 0,
    shard: Annotated[
        int | None,
        typer.Option(metavar="N", help="Export only this shard's changes; --after then counts that shard's."),
    ] = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Export a pool's ledger, oldest change first. Safe while the pool sells. The file is complete or not written.

    A sharded pool is exported shard by shard, with a field for the shard.
    """
    with RedisStore.from_url(url) as store, whole_file(to) as file:
        is_sharded, entries = ledgers(find_pool(store, sku), shard, after)
        more = ("shard",) if is_sharded else ()
        rows = (dict.fromkeys(more, place) | asdict(entry) for place, entry in entries)
        count = write_rows(file, form, rows, (*more, *COLUMNS))
    if to != STDOUT:
        typer.echo(f"{count} {plural(count, 'entry')} written")


def frozen_lines(state: PoolState) -> Iterator[str]:
    """Say of a frozen pool, or of each frozen shard, what was seen and what is left."""
    for one in getattr(state, "shards", (state,)):
        if one.frozen is not None:
            epoch, sequence = one.frozen
            is_ahead = one.frozen >= (one.epoch, one.sequence)
            if one.frozen == (one.epoch, one.sequence):
                what = "one of its keys is gone, or its order database knows of more"
                yield f"frozen: {shown(one.sku)} is at change {sequence} of epoch {epoch}, and {what}"
                continue
            yield (
                f"frozen: {shown(one.sku)} is at change {one.sequence} of epoch {one.epoch}, and "
                f"{'' if is_ahead else 'another '}change {sequence} of epoch {epoch} was acknowledged: "
                f"{'what is between them' if is_ahead else 'it'} is lost"
            )


def _report_json(report: AuditReport | ShardedAuditReport) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if isinstance(report, ShardedAuditReport):
        shards = [{"shard": number} | _report_json(own) for number, own in enumerate(report.shards)]
        more = {"away": report.away, "transfers": [asdict(each) for each in report.transfers], "shards": shards}
    return more | {
        "is_clean": report.is_clean,
        "drift_count": report.drift_count,
        "by_kind": dict(report.by_kind),
        "oversold": report.oversold,
        "refused_wrongly": report.refused_wrongly,
        "drift": [asdict(each) for each in report.drift],
        "unread": list(report.unread),
        "state": as_json(report.state),
    }


def _print_report(report: AuditReport | ShardedAuditReport) -> None:
    state, as_of, on_the_way = report.state, f"as of change {report.state.sequence}", list[tuple[str, str]]()
    if isinstance(report, ShardedAuditReport):
        for line in drift_lines(report):
            typer.echo(shown(line))
        as_of, on_the_way = f"in {len(report.shards)} shards", [("on the way", str(report.away))]
    else:
        for each in report.drift:
            typer.echo(shown(str(each)))
        if report.drift_count > len(report.drift):
            typer.echo(f"and {report.drift_count - len(report.drift)} more")
    for line in frozen_lines(state):
        typer.echo(line)
    for why in report.unread:
        typer.echo(shown(f"not judged: {why}"))
    rows = [
        ("stocked", str(state.stocked)),
        ("available", str(state.available)),
        *on_the_way,
        ("reserved", str(state.reserved)),
        ("confirmed", str(state.confirmed)),
        ("oversold", str(report.oversold)),
        ("refused wrongly", str(report.refused_wrongly)),
        *((kind, str(count)) for kind, count in sorted(report.by_kind.items())),
        ("audit", f"{'clean' if report.is_clean else 'not clean'}, {as_of}"),
    ]
    print_table(("", ""), rows)


def _print_repairs(repairs: Iterable[tuple[int | None, Repair]], *, otherwise: str, is_sharded: bool) -> None:
    heads = ("", "shard", "drift", "order", "what") if is_sharded else ("", "drift", "order", "what")
    rows = [
        (
            "mended" if each.is_done else otherwise,
            *([place(number)] if is_sharded else []),
            each.kind,
            shown(each.order_id or "-"),
            shown(each.detail),
        )
        for number, each in repairs
    ]
    if rows:
        print_table(heads, rows)


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
        count = write_rows(file, form, _rows(pool, state), (*more, *ORDER_COLUMNS))
    if to != STDOUT:
        typer.echo(f"{count} {plural(count, 'order')} written")


def _rows(pool: Pool | ShardedPool, state: OrderState | None) -> Iterator[dict[str, Any]]:
    for number, shard in enumerate(pool.shards) if isinstance(pool, ShardedPool) else ((None, pool),):
        place = {} if number is None else {"shard": number}
        for record in shard.orders(state=state):
            row = asdict(record)
            del row[LEFT_OUT]
            yield place | row


def _compared(pool: Pool | ShardedPool, gate: Gate) -> list[Placed]:
    """Compare both sides of a pool, or of each shard."""
    from segmented.orders import audit_both  # noqa: PLC0415  # SQLAlchemy, for those who need it

    if isinstance(pool, ShardedPool):
        return [(number, audit_both(shard.plain, gate)) for number, shard in enumerate(pool.shards)]
    return [(None, audit_both(pool, gate))]


def _both_json(reports: Sequence[Placed]) -> dict[str, Any]:
    found = [_as_json(report) if number is None else {"shard": number} | _as_json(report) for number, report in reports]
    return found[0] if reports[0][0] is None else {"is_clean": all(each["is_clean"] for each in found), "shards": found}


def _as_json(report: BothReport) -> dict[str, Any]:
    found = asdict(report)
    for change in found["unfinished"]:
        change["created_at"] = change["created_at"].isoformat()
    return {"is_clean": report.is_clean} | found


def _print_both(reports: Sequence[Placed]) -> None:
    for number, report in reports:
        _print_one(report, "" if number is None else f"shard {number}: ")


def _print_one(report: BothReport, place: str) -> None:
    typer.echo()
    for each in report.differences:
        typer.echo(place + shown(str(each)))
    if report.difference_count > len(report.differences):
        typer.echo(f"{place}and {report.difference_count - len(report.differences)} more")
    for change in report.unfinished:
        units = f"{change.units} {plural(change.units, 'unit')}"
        typer.echo(f"{place}unfinished: {units} {change.kind} under the id {shown(change.change_id)}")
    judgment = "clean" if report.is_clean else "not clean"
    orders = f"{report.pool_count} and {report.database_count} {plural(report.database_count, 'order')}"
    rows = [
        ("stocked in the database", str(report.quota)),
        ("sold in the database", str(report.sold)),
        *([("of them in earlier epochs, unknown to the pool", str(report.earlier))] if report.earlier else []),
        ("unsettled orders", str(report.unsettled)),
        *((kind, str(count)) for kind, count in sorted(report.by_kind.items())),
        (f"{place}both sides", f"{judgment}, {orders} compared"),
    ]
    print_table(("", ""), rows)


ToOption = Annotated[
    Path, typer.Option("--to", metavar="FILE", parser=output_file, help="Output file; - is standard output.")
]
FormatOption = Annotated[
    Literal["jsonl", "csv"], typer.Option("--format", help="Format: one JSON object per line, or CSV with a header.")
]


def write_rows(file: TextIO, form: str, rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> int:
    """Write the rows, one at a time, and return how many there were. In CSV the parts of an order are one text."""
    count, table = 0, csv.DictWriter(file, columns, lineterminator="\n")
    if form == "csv":
        table.writeheader()
    for count, row in enumerate(rows, start=1):  # noqa: B007  # the last number is the count
        if form == "csv":
            table.writerow(row | {"parts": parts_text(row["parts"], segment=None, quantity=0)})
        else:
            file.write(json.dumps(row) + "\n")
    return count


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
        # A pool whose keys are gone is not asked for its shards.
        pool = Pool(store, sku) if command == "reopen" else _one_of(find_pool(store, sku), shard)
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
