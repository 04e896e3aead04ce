"""Old and personal data in orders: `segmented orders prune` and `erase`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from segmented.cli.output import (
    DEFAULT_URL,
    DatabaseOption,
    JsonOption,
    UrlOption,
    YesOption,
    counting,
    require_somebody,
    shown,
    write_json,
)
from segmented.cli.pool_archive import DryRunOption
from segmented.errors import InvalidInput
from segmented.models.ids import counted
from segmented.stock.archiving.file import lines_of, names_customer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.orders import Gate

EXIT_REFUSED: Final = 1
MEGABYTE: Final = 1_000_000


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
    if database is None:
        raise InvalidInput("prune needs --database URL: the order database whose old rows are deleted")
    is_asked = not dry_run and require_somebody("prune", yes=yes)
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it
    from segmented.orders import prune as prune_rows  # noqa: PLC0415  # SQLAlchemy, for those who need it

    before = before.replace(tzinfo=UTC)
    with (
        RedisStore.from_url(url) as store,
        migrated_gate(database) as gate,
        counting("orders: {:,}, ledger entries: {:,}") as on_page,
    ):
        if is_asked and not typer.confirm(f"Delete the orders and ledger entries from before {before:%Y-%m-%d %H:%M}?"):
            raise typer.Exit(EXIT_REFUSED)
        sizes = gate.pruning.sizes()
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

    with RedisStore.from_url(url) as store, _gate_of(database) as gate:
        if is_asked and not typer.confirm(f"Take the customer {shown(customer)} out of all orders for good?"):
            raise typer.Exit(EXIT_REFUSED)
        done = erase_customer(store, customer, gate=gate, dry_run=dry_run)
    files = archive or ()
    kept = [str(file) for file in files if any(names_customer(line, customer) for line in lines_of(file))]
    found = {"is_changed": not dry_run and bool(done.records or done.rows)} | asdict(done) | {"archives": kept}
    if not write_json(json_file, found):
        where = (
            counted(done.records, "record")
            if database is None
            else (f"{counted(done.records, 'record')} of pools and {counted(done.rows, 'row')} of the order database")
        )
        ledgers = (
            f"; {counted(done.ledgers, 'ledger', 'names')} the customer"
            if dry_run
            else (f"; {counted(done.ledgers, 'ledger', 'was')} trimmed")
        )
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
def _gate_of(database: str | None) -> Iterator[Gate | None]:
    if database is None:
        yield None
        return
    from segmented.cli.pool_gate import migrated_gate  # noqa: PLC0415  # SQLAlchemy, for those who need it

    with migrated_gate(database) as gate:
        yield gate
