"""`segmented watch` and `segmented exporter`: a sale while it runs, on the terminal, on a page, and as metrics."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from segmented.cli.output import DEFAULT_URL, ELSEWHERE, UrlOption, address, signals
from segmented.clock import SystemClock, WallClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models.ids import SKU_BYTES_MAX, checked_id
from segmented.plans import run_sync
from segmented.process import tell
from segmented.stores.redis import RedisStore
from segmented.watch.reading import (
    NOT_OPEN,
    OVERDUE_OUTBOX_MS,
    POOLS_MAX,
    PoolReading,
    Readings,
    as_json,
    known_plan,
    readings_plan,
    waiting_line,
    worker_json,
)

EVERY_MIN: Final = 0.1
EVERY_MAX: Final = 3_600.0

SkusArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SKU]...", help="Pools to watch. [default: all that were opened, up to 100]"),
]
EveryOption = Annotated[
    float, typer.Option(metavar="SECONDS", min=EVERY_MIN, max=EVERY_MAX, help="Interval between two readings.")
]
HostOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on. Beyond loopback, a password is made and printed.")
]
PasswordOption = Annotated[
    str | None,
    typer.Option(
        metavar="PASSWORD",
        parser=address,
        help=f"Password to ask for; {ELSEWHERE}  [default: none on loopback, else a new one]",
    ),
]
PORT_MAX: Final = 65_535
WEB_PORT: Final = 8_630
EXPORTER_PORT: Final = 9_464


def watch(
    skus: SkusArgument = None,
    *,
    every: EveryOption = 1.0,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0.0, help="Duration after which to stop.")
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Serve a page with the same numbers instead.")] = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=PORT_MAX, help="With --web: 0 is a free one.")] = (
        WEB_PORT
    ),
    password: PasswordOption = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Watch pools while they sell, until Ctrl-C: units, locks, rate, refusals, waiting, holds, outbox and workers.

    Changes nothing. In a pipe, it prints one JSON object per reading and line. A server that is away is said, and
    watched again when it is back.
    """
    named = _checked(skus)
    if web:
        from segmented.watch.server import Serving, serve  # noqa: PLC0415  # Starlette and uvicorn, for those who need them

        serve(Serving(url=url, skus=named, every=every, host=host, port=port, has_page=True, password=password))
        return
    with RedisStore.from_url(url) as store, _output() as show, signals(signal.SIGINT, signal.SIGTERM) as heard:
        similar: dict[str, tuple[str, ...]] = {}
        clock = SystemClock()
        began = clock.now()
        while True:
            looked = clock.now()
            try:
                show(run_sync(readings_plan(named or run_sync(known_plan(), store), similar), store))
            except StoreUnavailable as error:
                show(error)
            rest = max(0.0, every - (clock.now() - looked))
            if (seconds is not None and clock.now() + rest > began + seconds) or heard(rest):
                return


def exporter(
    skus: SkusArgument = None,
    *,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=EVERY_MIN, max=EVERY_MAX, help="Age up to which a reading is given again."),
    ] = 1.0,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=PORT_MAX, help="Port; 0 is a free one.")] = (
        EXPORTER_PORT
    ),
    stalled_after: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.0, help="/readyz is 503 once a submitted order has been due that long."),
    ] = OVERDUE_OUTBOX_MS / 1_000,
    password: PasswordOption = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Export pools as Prometheus metrics at /metrics, with /healthz and /readyz, until Ctrl-C or SIGTERM.

    Reads the stock server at a scrape, in bounded steps, and changes nothing.
    """
    from segmented.watch.server import Serving, serve  # noqa: PLC0415  # as in `watch`

    named = _checked(skus)
    of_pools = Serving(
        url=url,
        skus=named,
        every=every,
        host=host,
        port=port,
        has_page=False,
        stalled_after=stalled_after,
        password=password,
    )
    serve(of_pools)


def _checked(skus: Sequence[str] | None) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(checked_id(sku, "sku", bytes_max=SKU_BYTES_MAX) for sku in skus or ()))
    if len(named) > POOLS_MAX:
        raise InvalidInput(f"{len(named)} pools cannot be watched at once: name up to {POOLS_MAX}")
    return named


@contextmanager
def _output() -> Iterator[Callable[[Readings | StoreUnavailable], None]]:
    before: dict[str, PoolReading] = {}
    if not sys.stdout.isatty():
        yield lambda found: _print_line(found, before)
        return
    from rich.live import Live  # noqa: PLC0415  # only a terminal needs rich, which takes long to import

    from segmented.cli.console import Console  # noqa: PLC0415  # only a terminal needs rich, which takes long to import
    from segmented.watch.screen import screen  # noqa: PLC0415  # only a terminal needs rich, which takes long to import

    console = Console()
    is_plain = "utf" not in console.encoding.lower()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        last = [Readings((), ())]

        def draw(found: Readings | StoreUnavailable) -> None:
            now, note = (last[0], str(found)) if isinstance(found, StoreUnavailable) else (found, "")
            width, height = console.size
            drawn = screen(now, before, width=width, height=height, note=note, is_plain=is_plain)
            live.update(drawn, refresh=True)
            if not note:
                last[0] = now
                before.update({one.sku: one for one in now.pools})

        yield draw


def _print_line(found: Readings | StoreUnavailable, before: dict[str, PoolReading]) -> None:
    if isinstance(found, StoreUnavailable):
        tell(str(found))
        return
    line: dict[str, Any] = {
        "at": datetime.fromtimestamp(WallClock().now(), UTC).isoformat(timespec="milliseconds"),
        "pools": [as_json(one, before.get(one.sku)) for one in found.pools],
        "workers": [worker_json(one) for one in found.workers],
    }
    for one in found.pools:
        if one.note == NOT_OPEN and one.sku not in before:
            tell(f"pool {one.sku!r} is {waiting_line(one)}")
    before.update({one.sku: one for one in found.pools})
    typer.echo(json.dumps(line))
    sys.stdout.flush()
