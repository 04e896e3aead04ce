"""`segmented torture`: real processes that die, servers that forget, and promises that must hold."""

from pathlib import Path
from typing import Annotated, Final

import typer

from bench.commands import JsonOption, finish
from bench.results import check_writable, display_on
from segmented import files
from segmented.cli.console import console_beside
from segmented.errors import InvalidInput
from tests.torture.durability.cells import QUICK_TRIALS, DurabilityOptions
from tests.torture.durability.page import render
from tests.torture.durability.run import torture_durability
from tests.torture.locks.options import DEFAULT_FAULTS, KINDS, TortureOptions
from tests.torture.locks.run import torture_locks
from tests.torture.orders.mixed import MixOptions, torture_mixed
from tests.torture.orders.options import QUICK_SHARE, OrdersOptions
from tests.torture.orders.run import torture_orders
from tests.torture.segments import SegmentsOptions, torture_segments

AT_ACCEPTANCE: Final = "at acceptance"
torture = typer.Typer(no_args_is_help=True, help="Inject faults, and check that the guarantees hold.")


@torture.callback()
def _group() -> None:
    """Inject faults, and check that the guarantees hold."""


@torture.command()
def locks(  # noqa: PLR0913  # an option each
    *,
    seconds: Annotated[float, typer.Option(help="Duration of the fault injection.", metavar="S")] = 30.0,
    processes: Annotated[int, typer.Option(help="Number of contending processes.", metavar="N")] = 8,
    threads: Annotated[int, typer.Option(help="Threads per process.", metavar="N")] = 8,
    kind: Annotated[str, typer.Option(help=f"Kind of lock: {', '.join(KINDS)}.")] = "lock",
    url: Annotated[str | None, typer.Option(help="Redis or Valkey to use instead of an embedded one.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the faults.", metavar="N")] = 1,
    faults: Annotated[
        str,
        typer.Option(
            help="Faults to inject, separated by commas, or all: kill (a process), pause (a process), "
            "cut (connections), cancel (asyncio tasks; as many as threads), restart (the embedded server).",
            metavar="LIST",
        ),
    ] = DEFAULT_FAULTS,
    log: Annotated[
        Path | None, typer.Option(help="Keep the log of every access to the resource.", metavar="FILE")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Contend for a few names, with holders that are killed, paused past their lease, or hold longer than it.

    A resource that checks fencing tokens logs every access. Exit code 0 only if accepted accesses never overlapped,
    leases never overlapped while they were trusted, tokens only grew, entries never stalled, cancelled tasks ended,
    and nothing is left behind.
    """
    options = TortureOptions(
        kind=kind,
        seconds=seconds,
        processes=processes,
        threads=threads,
        seed=seed,
        url=url,
        faults=faults,
        log=log,
    )
    check_writable(json)
    files.check_kept(log, "--log")
    console = console_beside(json)
    results = torture_locks(options, display_on(console))
    finish(results, console, json)


@torture.command()
def orders(  # noqa: PLR0913  # an option each
    *,
    orders: Annotated[int, typer.Option(help="Number of orders to submit.", metavar="N")] = 20_000,
    kills: Annotated[int, typer.Option(help="Number of workers to kill during the run.", metavar="N")] = 40,
    decides: Annotated[
        str, typer.Option(help='Place where stock is decided: "at acceptance", or "in the worker".', metavar="WHERE")
    ] = AT_ACCEPTANCE,
    effect: Annotated[
        str, typer.Option(help="Store where orders take effect: redis, or postgresql as well.", metavar="WHERE")
    ] = "redis",
    workers: Annotated[int, typer.Option(help="Number of worker processes.", metavar="N")] = 2,
    seed: Annotated[int, typer.Option(help="Random seed of the orders and the kills.", metavar="N")] = 1,
    mix: Annotated[
        bool,
        typer.Option(
            "--mix", help="Pay, decline, change, return and abandon orders too, in two fleets with PostgreSQL."
        ),
    ] = False,
    broker: Annotated[str, typer.Option(help="Broker of --mix: redis or rabbitmq.", metavar="NAME")] = "redis",
    quick: Annotated[bool, typer.Option("--quick", help="Run a tenth of the orders and kills.")] = False,
    json: JsonOption = None,
) -> None:
    """Submit orders to Celery workers, kill busy workers with SIGKILL, and check what happened to every order.

    A log outside Redis has the answers to the submitter; it is compared with the pool's ledger and the order database.
    Exit code 0 only if no order was lost, doubled, oversold or refused wrongly. The long profile: --orders 1000000
    --kills 1000.
    """
    own = (
        {"--decides": decides != AT_ACCEPTANCE, "--effect": effect != "redis"}
        if mix
        else {"--broker": broker != "redis"}
    )
    for option in (name for name, is_given in own.items() if is_given):
        message = f"{option} is an option {'without' if mix else 'of'} --mix"
        raise InvalidInput(message)
    if mix:
        share = QUICK_SHARE if quick else 1
        mixed = MixOptions(orders=orders // share, kills=kills // share, broker=broker, workers=workers, seed=seed)
        check_writable(json)
        console = console_beside(json)
        finish(torture_mixed(mixed, display_on(console)), console, json)
        return
    options = OrdersOptions(
        orders=orders,
        kills=kills,
        decides=decides,
        effect=effect,
        workers=workers,
        seed=seed,
        is_quick=quick,
    )
    check_writable(json)
    console = console_beside(json)
    results = torture_orders(options, display_on(console))
    finish(results, console, json)


@torture.command()
def durability(
    *,
    trials: Annotated[int, typer.Option(help="Trials per cell.", metavar="N")] = 30,
    cell: Annotated[
        str,
        typer.Option(
            help='Cells to run, as a pattern such as "database-*/*" or "everysec/power-loss".', metavar="PATTERN"
        ),
    ] = "*",
    seed: Annotated[int, typer.Option(help="Random seed of the moments of the faults.", metavar="N")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help=f"Run at most {QUICK_TRIALS} trials per cell.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the tables as Markdown to this file; - is standard output.", metavar="FILE"),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Sell under crashes, power failures, failovers and old backups, and count the acknowledged orders that are lost.

    Each cell is a set-up of the stock's server with one fault. Exit code 0 only if every loss was noticed by a process
    that had seen the lost orders, and if nothing was lost or sold twice where an order database decides.
    """
    options = DurabilityOptions(trials=trials, cell=cell, seed=seed, is_quick=quick)
    check_writable(json)
    if page is not None:
        files.check_writable(page, "--page")
        files.check_apart({"--json": json, "--page": page})
    console = console_beside(json, page)
    results = torture_durability(options, display_on(console))
    if page is not None:
        files.write_whole(page, "\n".join(render(results.as_json())))
    finish(results, console, json)


@torture.command()
def segments(
    *,
    seconds: Annotated[float, typer.Option(help="Duration of the fault injection.", metavar="S")] = 60.0,
    processes: Annotated[int, typer.Option(help="Number of buying processes.", metavar="N")] = 8,
    threads: Annotated[int, typer.Option(help="Threads per process.", metavar="N")] = 4,
    segments: Annotated[int, typer.Option(help="Segments of the pool.", metavar="K")] = 4,
    seed: Annotated[int, typer.Option(help="Random seed of the faults.", metavar="N")] = 1,
    json: JsonOption = None,
) -> None:
    """Measure how long a free segment stays unused beside a waiting buyer, while others are killed and paused.

    A sampler reads the raw keys of the pool. Exit code 0 if the pool's audit is clean; the time is a figure.
    """
    options = SegmentsOptions(seconds=seconds, processes=processes, threads=threads, segments=segments, seed=seed)
    check_writable(json)
    console = console_beside(json)
    results = torture_segments(options, display_on(console))
    finish(results, console, json)
