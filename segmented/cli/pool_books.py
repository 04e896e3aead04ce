"""The books of a pool: `segmented pool audit`, `repair` and `export`."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TextIO

import typer

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
from segmented.cli.pool_view import as_json
from segmented.errors import InvalidInput
from segmented.ledger_lines import parts_text
from segmented.models import LedgerEntry
from segmented.stock import AuditReport, Pool, Repair
from segmented.stores.redis import RedisStore

EXIT_DRIFT: Final = 1
EXIT_REFUSED: Final = 1
COLUMNS: Final = tuple(field.name for field in fields(LedgerEntry))

SkuArgument = Annotated[str, typer.Argument(metavar="SKU", help="What is sold, as the program names it.")]


def audit(sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, json_file: JsonOption = None) -> None:
    """Fold a pool's ledger and compare it with every number, also while the pool sells.

    Prints each drift, and the order it concerns. Exit code 0 when all is explained, 1 when anything is not.
    """
    with RedisStore.from_url(url) as store:
        report = Pool(store, sku).audit()
    if json_file is not None:
        write_json(json_file, _report_json(report))
    if json_file != STDOUT:
        _print_report(report)
    if not report.is_clean:
        raise typer.Exit(EXIT_DRIFT)


def repair(
    sku: SkuArgument, *, url: UrlOption = DEFAULT_URL, yes: YesOption = False, json_file: JsonOption = None
) -> None:
    """Audit a pool, show what would put it right, and do that. Asks first; --yes is needed where nobody can be asked.

    Each repair is an entry of the ledger, like any other change. What is wrong in the ledger itself cannot be mended.
    Exit code 1 if anything is left, or the answer was no.
    """
    is_asked = require_somebody("repair", yes=yes)
    with RedisStore.from_url(url) as store:
        pool = Pool(store, sku)
        report = pool.audit()
        if is_asked and not report.is_clean:
            planned = pool.repair(report, yes=False).repairs
            _print_repairs(planned, otherwise="planned")
            if not typer.confirm(f"Go through {len(planned)} repair(s)?"):
                raise typer.Exit(EXIT_REFUSED)
        done = pool.repair(report, yes=True)
    if json_file is not None:
        found = {"done_count": done.done_count, "repairs": [asdict(each) for each in done.repairs]}
        write_json(json_file, found | {"after": _report_json(done.after)})
    if json_file != STDOUT:
        _print_repairs(done.repairs, otherwise="left")
        _print_report(done.after)
    if not done.is_clean:
        raise typer.Exit(EXIT_DRIFT)


def export(
    sku: SkuArgument,
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where to; - is standard output.")] = STDOUT,
    form: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="An object a line, or columns with a head.")
    ] = "jsonl",
    after: Annotated[
        int, typer.Option(metavar="N", min=0, help="Only changes after this one, as the last export ended.")
    ] = 0,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Write a pool's ledger, oldest change first, also while the pool sells. A file is written whole or not at all."""
    with RedisStore.from_url(url) as store, _opened(to) as file:
        entries = Pool(store, sku).read_ledger(after=after)
        count = _write_csv(file, entries) if form == "csv" else _write_lines(file, entries)
    if to != STDOUT:
        typer.echo(f"{count} entries written")


def _report_json(report: AuditReport) -> dict[str, Any]:
    return {
        "is_clean": report.is_clean,
        "drift_count": report.drift_count,
        "by_kind": dict(report.by_kind),
        "oversold": report.oversold,
        "refused_wrongly": report.refused_wrongly,
        "drift": [asdict(each) for each in report.drift],
        "unread": list(report.unread),
        "state": as_json(report.state),
    }


def _print_report(report: AuditReport) -> None:
    for each in report.drift:
        typer.echo(shown(str(each)))
    if report.drift_count > len(report.drift):
        typer.echo(f"and {report.drift_count - len(report.drift)} more")
    for why in report.unread:
        typer.echo(shown(f"not judged: {why}"))
    state = report.state
    rows = [
        ("stocked", str(state.stocked)),
        ("available", str(state.available)),
        ("reserved", str(state.reserved)),
        ("confirmed", str(state.confirmed)),
        ("oversold", str(report.oversold)),
        ("refused wrongly", str(report.refused_wrongly)),
        *((kind, str(count)) for kind, count in sorted(report.by_kind.items())),
        ("audit", f"{'clean' if report.is_clean else 'not clean'}, as of change {state.sequence}"),
    ]
    print_table(("", ""), rows)


def _write_lines(file: TextIO, entries: Iterable[LedgerEntry]) -> int:
    count = 0
    for count, entry in enumerate(entries, start=1):  # noqa: B007  # the last number is the count
        file.write(json.dumps(asdict(entry)) + "\n")
    return count


def _write_csv(file: TextIO, entries: Iterable[LedgerEntry]) -> int:
    written = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    written.writeheader()
    count = 0
    for count, entry in enumerate(entries, start=1):  # noqa: B007  # the last number is the count
        parts = parts_text(entry.parts, segment=None, quantity=0)
        written.writerow({column: getattr(entry, column) for column in COLUMNS} | {"parts": parts})
    return count


@contextmanager
def _opened(to: Path) -> Iterator[TextIO]:
    """Open the file beside its place, and put it there when it is whole."""
    if to == STDOUT:
        yield sys.stdout
        return
    part = to.with_name(f"{to.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(to)
    except OSError as error:
        message = f"{to} cannot be written: {error.strerror}"
        raise InvalidInput(message) from error
    finally:
        part.unlink(missing_ok=True)


def _print_repairs(repairs: Iterable[Repair], *, otherwise: str) -> None:
    rows = [
        ("mended" if each.is_done else otherwise, each.kind, shown(each.order_id or "-"), shown(each.detail))
        for each in repairs
    ]
    if rows:
        print_table(("", "drift", "order", "what"), rows)
