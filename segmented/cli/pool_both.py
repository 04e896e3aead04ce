"""The audit of a gated pool against its order database, for `segmented pool audit --database`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from segmented.cli.output import print_table, shown
from segmented.cli.pool_shards import required_no_database
from segmented.errors import InvalidInput
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.cli.pool_gate import GatedPool
    from segmented.orders import BothReport
    from segmented.stock import Pool


@contextmanager
def order_database(pool: Pool | ShardedPool, database: str | None, *, is_said: bool) -> Iterator[GatedPool | None]:
    """Connect to the pool's order database, if one is given and the pool has one.

    Raises InvalidInput if the database cannot be used, or the command names one for a pool that has none.
    """
    if is_said and isinstance(pool, ShardedPool) and pool.shards[0].is_gated():
        message = (
            f"pool {pool.sku!r} is in shards: leave --database out, and compare each shard with its database in a "
            "program, audit_both(pool.shards[0], gate)"
        )
        raise InvalidInput(message)
    if database is None or isinstance(pool, ShardedPool) or not pool.is_gated():
        required_no_database(pool, is_said=is_said)
        yield None
        return
    from segmented.cli.pool_gate import gated_pool  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with gated_pool(pool, database) as gated:
        yield gated


def both_json(report: BothReport) -> dict[str, Any]:
    """Return the whole report."""
    found = asdict(report)
    for change in found["unfinished"]:
        change["created_at"] = change["created_at"].isoformat()
    return {"is_clean": report.is_clean} | found


def print_both(report: BothReport) -> None:
    """Print each difference, then the sums."""
    typer.echo()
    for each in report.differences:
        typer.echo(shown(str(each)))
    if report.difference_count > len(report.differences):
        typer.echo(f"and {report.difference_count - len(report.differences)} more")
    for change in report.unfinished:
        typer.echo(f"unfinished: {change.units} units {change.kind} under the id {shown(change.change_id)}")
    judgment = "clean" if report.is_clean else "not clean"
    rows = [
        ("stocked in the database", str(report.quota)),
        ("sold in the database", str(report.sold)),
        *([("of them in earlier epochs, unknown to the pool", str(report.earlier))] if report.earlier else []),
        ("unsettled orders", str(report.unsettled)),
        *((kind, str(count)) for kind, count in sorted(report.by_kind.items())),
        ("both sides", f"{judgment}, {report.pool_count} and {report.database_count} orders compared"),
    ]
    print_table(("", ""), rows)
