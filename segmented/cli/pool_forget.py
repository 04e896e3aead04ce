"""Finished orders of an open pool: `segmented pool forget` drops their records once the database answers for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from segmented.cli.output import DEFAULT_URL, DatabaseOption, JsonOption, SkuArgument, UrlOption, shown, write_json
from segmented.errors import InvalidInput
from segmented.models.ids import counted, plural
from segmented.process import tell
from segmented.stock import Pool
from segmented.stores.redis import RedisStore


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

    with RedisStore.from_url(url) as store, migrated_gate(database) as gate, _progress() as on_page:
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


@contextmanager
def _progress() -> Iterator[Callable[[int], None] | None]:
    """Count the dropped records on a terminal, on standard error."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress as Bars, TextColumn  # noqa: PLC0415  # terminals only

    from segmented.cli.console import Console  # noqa: PLC0415  # terminals only

    with Bars(TextColumn("orders forgotten: {task.completed:,}"), console=Console(stderr=True), transient=True) as bars:
        line = bars.add_task("", total=None)
        yield lambda done: bars.update(line, completed=done)
