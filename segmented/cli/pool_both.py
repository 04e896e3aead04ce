"""The audit of a gated pool against its order database, for `segmented pool audit --database`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from segmented.cli.output import print_table, shown
from segmented.cli.pool_shards import required_no_database
from segmented.models.ids import plural
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.cli.pool_gate import AuditedShards, GatedPool
    from segmented.orders import BothReport
    from segmented.stock import Pool

    Placed = tuple[int | None, BothReport]
    """The number of a shard, None for a pool in one piece; and the report."""


@contextmanager
def order_database(
    pool: Pool | ShardedPool, database: str | None, *, is_said: bool
) -> Iterator[GatedPool | AuditedShards | None]:
    """Connect to the pool's order database, if one is given and the pool has one.

    Raises InvalidInput if the database cannot be used, or the command names one for a pool that has none.
    """
    is_gated = pool.shards[0].is_gated() if isinstance(pool, ShardedPool) else pool.is_gated()
    if database is None or not is_gated:
        required_no_database(pool, is_said=is_said)
        yield None
        return
    from segmented.cli.pool_gate import audited  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with audited(pool, database) as gated:
        yield gated


def both_json(reports: Sequence[Placed]) -> dict[str, Any]:
    """Return the whole report; of a pool in shards, that of each shard, its number first."""
    found = [_as_json(report) if number is None else {"shard": number} | _as_json(report) for number, report in reports]
    return found[0] if reports[0][0] is None else {"is_clean": all(each["is_clean"] for each in found), "shards": found}


def _as_json(report: BothReport) -> dict[str, Any]:
    found = asdict(report)
    for change in found["unfinished"]:
        change["created_at"] = change["created_at"].isoformat()
    return {"is_clean": report.is_clean} | found


def print_both(reports: Sequence[Placed]) -> None:
    """Print each difference, then the sums, shard by shard."""
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
