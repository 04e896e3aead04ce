"""`segmented sell`: sell a file of orders through Celery workers.

Ctrl-C and similar signals raise one exception in the main thread, once, so that everything stops in order.
"""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from segmented.celery import selling
from segmented.celery.selling.order_formats import FIELDS, NAMES, SIZE_MAX, Reading
from segmented.celery.selling.orders_file import DEFAULT_SKU, Fate, OrdersFile, read_orders
from segmented.cli.console import console_beside
from segmented.cli.output import ELSEWHERE, JsonOption, address, data_folder, output_file, print_table, write_json
from segmented.clock import SystemClock
from segmented.errors import InvalidInput
from segmented.masking import masked
from segmented.models import QUANTITY_MAX
from segmented.models.ids import counted, visible
from segmented.process import tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

for _package in ("celery", "pydantic_settings", "sqlalchemy"):  # of a sale; the help says if one is missing
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

EXIT_BROKEN_PROMISE = 1
OrdersArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ORDERS.csv",
        help=(
            "CSV or Excel file of orders, may be gzipped: columns order_id, quantity, and optionally customer_id and "
            "sku, or the export of a shop."
        ),
    ),
]
StockOption = Annotated[
    int | None, typer.Option(metavar="N", help="Units to sell per sku. [required, but for --check]")
]
SegmentsOption = Annotated[
    int | None, typer.Option(metavar="K", help="Number of segments per sku. [required, but for --check]")
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Show line by line what would be sold, start no server and sell nothing.")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help=f"Format of the file: {', '.join(NAMES)}. [default: known by its header]"
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN,...", help=f"Columns of the fields {', '.join(FIELDS)}."),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN=VALUE", help="Lines to sell, or COLUMN!=VALUE; repeatable, and each must hold."),
]
SkuOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"The only sku to sell; or the sku of a file without a sku column. [default: all, or {DEFAULT_SKU}]",
    ),
]
QuantityOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=QUANTITY_MAX, help="Units of each row, instead of a column.")
]
SumOption = Annotated[bool, typer.Option("--sum-lines", help="Sum the lines of an order.")]
SplitOption = Annotated[
    bool, typer.Option("--split-skus", help="Sell each sku of an order for itself, so that an order may get a part.")
]
RefundsOption = Annotated[
    bool, typer.Option("--skip-refunds", help="Leave out refunds, cancelled orders and negative quantities.")
]
UnpaidOption = Annotated[
    Literal["skip", "sell"] | None,
    typer.Option(help="What to do with lines whose status says that they are not paid. [default: refuse the file]"),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Delimiter of the columns. [default: the one of , ; tab | that splits most]"),
]
EncodingOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Encoding of the text. [default: by its mark, or utf-8]")
]
SheetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Sheet of an Excel file. [default: its only one]")
]
SizeOption = Annotated[
    int, typer.Option("--size-max", metavar="MIB", min=1, help="Refuse a larger file, measured unpacked.")
]
WorkersOption = Annotated[int, typer.Option(metavar="W", help="Number of worker processes.")]
UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        parser=address,
        help=f"URL of the Redis or Valkey server for the stock; {ELSEWHERE} [default: an embedded Valkey]",
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        parser=address,
        help=f"Order database, postgresql://, mysql:// or sqlite:///path; {ELSEWHERE} "
        "[default: an embedded PostgreSQL]",
    ),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        parser=address,
        help=f"Celery's broker; {ELSEWHERE} [default: the stock's server, next database number]",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", parser=data_folder, help="Keep the embedded servers' data in this folder, for a second run."
    ),
]
RepublishOption = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Publish an order again if it is still undecided after this many seconds."),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=output_file,
        help="Write one CSV line per order: outcome, segment, fencing token; - is standard output.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file that --results names.")]
NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL: Final = 128


def sell(  # noqa: PLR0913  # an option each
    file: OrdersArgument,
    *,
    stock: StockOption = None,
    segments: SegmentsOption = None,
    check: CheckOption = False,
    format_name: FormatOption = None,
    columns: MapOption = None,
    where: WhereOption = None,
    sku: SkuOption = None,
    quantity: QuantityOption = None,
    sum_lines: SumOption = False,
    split_skus: SplitOption = False,
    skip_refunds: RefundsOption = False,
    unpaid: UnpaidOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    sheet: SheetOption = None,
    size_max: SizeOption = SIZE_MAX,
    workers: WorkersOption = 2,
    url: UrlOption = None,
    database: DatabaseOption = None,
    broker: BrokerOption = None,
    data: DataOption = None,
    republish_after: RepublishOption = 10.0,
    results: ResultsOption = None,
    force: ForceOption = False,
    json_file: JsonOption = None,
) -> None:
    """Sell the orders of a file through Celery workers, which take the units under the lock of one segment.

    Starts the workers, and the servers that are not given. A second run of the same file against the same servers
    finishes what the first one left, and decides no order twice. Ends with an audit; exit code 0 only if nothing was
    oversold, no order was refused wrongly, every order is decided, and Redis and the database agree.
    """
    reading = Reading(
        format=format_name,
        map=tuple(columns or ()),
        where=tuple(where or ()),
        sku=sku,
        quantity=quantity,
        sum_lines=sum_lines,
        split_skus=split_skus,
        skip_refunds=skip_refunds,
        unpaid=unpaid,
        delimiter=delimiter,
        encoding=encoding,
        sheet=sheet,
        size_max=size_max,
    )
    if check:
        _check(file, reading)
        return
    choices = selling.Choices(
        file=file,
        stock=_required(stock, "--stock N"),
        segment_count=_required(segments, "--segments K"),
        reading=reading,
        worker_count=workers,
        url=url,
        database=database,
        broker=broker,
        data=data,
        results=results,
        force=force,
        json=json_file,
        republish_after=republish_after,
    )
    if not _sell_and_report(choices):
        raise typer.Exit(EXIT_BROKEN_PROMISE)


def _required(number: int | None, option: str) -> int:
    """Return a number that only a sale needs. Raises InvalidInput if the option was not given."""
    if number is None:
        raise InvalidInput(f"{option} is missing: it is needed for a sale, not for --check")
    return number


def _sell_and_report(choices: selling.Choices) -> bool:
    """Sell, print the report, and return whether the promise held and the results were written."""
    choices.check()
    report, is_written = _sell(choices)
    console = console_beside(choices.results, choices.json)
    console.print(report.as_table())
    for line in report.notes():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return report.promise_held and is_written


def _check(file: Path, reading: Reading) -> None:
    """Print what would become of each line. Raises InvalidInput after that if the file cannot be sold."""
    fates: list[Fate] = []
    try:
        orders = read_orders(file, reading, tell=fates.append)
    finally:
        rows = [(str(one.line), one.order_id, one.sku, one.quantity, one.fate) for one in fates]
        if rows:
            print_table(
                ("line", "order", "sku", "quantity", "what becomes of it"), [tuple(map(visible, row)) for row in rows]
            )
    _note_oddities(orders)
    units = Counter[str]()
    for one in orders.orders.values():
        units[one.sku] += one.order.quantity
    by_sku = ", ".join(f"{sku} {count:,}" for sku, count in units.items())
    total = counted(sum(units.values()), "unit")
    typer.echo(f"would sell {counted(len(orders.orders), 'order')} of {total}, by sku: {visible(by_sku)}", err=True)


def _sell(choices: selling.Choices) -> tuple[selling.SaleReport, bool]:
    """Return the report, and whether the files that were asked for are written."""
    clock = SystemClock()
    since = clock.now()
    orders = read_orders(choices.file, choices.reading)
    _note_oddities(orders)
    sale: selling.Sale | None = None
    try:
        with stoppable(), selling.sale_servers(choices) as running:
            sale = selling.Sale(choices, orders, running, console_beside(choices.results, choices.json), clock)
            report = sale.run(since=since, before_opening=partial(_note_half_kept, choices))
            # Before the servers stop: the sales are written to the file whatever happens next.
            unwritten = _unwritten(choices, sale, report)
    except Stopped as stop:
        tell(_stopped(choices, sale))
        raise typer.Exit(stop.exit_code) from None
    for sentence in unwritten:
        tell(sentence)
    return report, not unwritten


def _unwritten(choices: selling.Choices, sale: selling.Sale, report: selling.SaleReport) -> list[str]:
    """Write the files that were asked for; return why one could not be written, since the orders are sold by then."""
    sentences: list[str] = []
    as_csv = partial(selling.write_results, choices.results, sale.book)
    for write in (as_csv, partial(write_json, choices.json, report.as_json())):
        try:
            write()
        except InvalidInput as error:
            sentences.append(str(error))
    return sentences


def _note_half_kept(choices: selling.Choices) -> None:
    if choices.is_kept or (choices.url is None and choices.database is None):
        return
    missing, kept = ("--database", "--url") if choices.database is None else ("--url", "--database")
    typer.echo(
        f"{missing} is not given, so that half of the sale ends with this command: no later run can go on with what it "
        f"leaves on this {kept}; give both, or --data DIR instead of both, to keep the sale",
        err=True,
    )


def _note_oddities(orders: OrdersFile) -> None:
    for note in orders.notes:
        typer.echo(f"{orders.path}: {visible(note)}", err=True)
    if orders.ignored_columns:
        typer.echo(f"{orders.path}: columns not used: {visible(', '.join(orders.ignored_columns))}", err=True)
    if orders.repeated:
        lines = counted(orders.repeated, "line", "repeats")
        typer.echo(f"{orders.path}: {lines} an order of an earlier line; each counts once", err=True)


def _stopped(choices: selling.Choices, sale: selling.Sale | None) -> str:
    if sale is None:
        return "stopped before the sale began"
    decided = f"stopped with {len(sale.book.outcomes):,} of {counted(len(sale.book.orders), 'order')} decided"
    if choices.is_kept:
        return f"{decided}; the same command finishes the sale"
    if choices.url is None and choices.database is None:
        return f"{decided}; the servers were temporary, so nothing of it is left (--data DIR keeps it)"
    kept, lost, option = "order database", "pool", "--database"
    if choices.url is not None:
        kept, lost, option = f"pool on {masked(choices.url)}", "order database", "--url"
    lasts = f"the {kept} keeps its part of the sale, but the {lost} was temporary"
    return f"{decided}; {lasts}, so a second run on this {option} will be refused"


class Stopped(BaseException):
    """A signal asks this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = EXIT_BY_SIGNAL + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped at the first of these signals, and ignore the others after it.

    A hang-up that `nohup` ignores stays ignored.
    """
    heard = [number for number in NUMBERS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop_once) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_once(number: int, _frame: FrameType | None) -> None:
    for other in NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)
