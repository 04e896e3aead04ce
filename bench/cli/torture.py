"""`segmented torture locks`: mutual exclusion under real contention, with holders that die or stand still."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.results import check_writable, write
from bench.torture.kinds import KINDS
from bench.torture.options import TortureOptions
from bench.torture.run import torture_locks
from bench.watch import watch_on

torture = typer.Typer(help="Break what can be broken, and check that the promises hold.")


@torture.callback()
def _group() -> None:
    """Break what can be broken, and check that the promises hold."""


@torture.command()
def locks(  # noqa: PLR0913  # an option each
    *,
    seconds: Annotated[float, typer.Option(help="How long holders are tormented.", metavar="S")] = 30.0,
    processes: Annotated[int, typer.Option(help="Processes that contend.", metavar="N")] = 8,
    threads: Annotated[int, typer.Option(help="Threads of each process.", metavar="N")] = 8,
    kind: Annotated[str, typer.Option(help=f"Kind of lock: {', '.join(KINDS)}.")] = "lock",
    url: Annotated[str | None, typer.Option(help="Redis or Valkey to use instead of an embedded one.")] = None,
    seed: Annotated[int, typer.Option(help="Draws who is tormented, when and how.", metavar="N")] = 1,
    cut_connections: Annotated[
        bool, typer.Option("--cut-connections", help="Also cut connections to the server now and then.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Keep the log of every access.", metavar="FILE")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.", metavar="FILE")] = None,
) -> None:
    """Contend for a few names, with holders that are killed, paused past their lease, or oversleep.

    A resource that checks fences logs every access. Exit code 0 only if accepted accesses never overlapped, leases
    never overlapped while they were trusted, tokens only grew, somebody always got in, and nothing is left behind.
    """
    options = TortureOptions(
        kind=kind,
        seconds=seconds,
        processes=processes,
        threads=threads,
        seed=seed,
        url=url,
        cut_connections=cut_connections,
        log=log,
    )
    check_writable(json)
    console = Console()
    results = torture_locks(options, watch_on(console))
    results.show(console)
    write(results, json)
    if not results.is_kept:
        raise typer.Exit(1)
