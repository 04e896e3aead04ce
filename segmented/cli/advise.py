"""`segmented advise`: whether to segment a stock, into how many segments, and the expected throughput."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Annotated, Final

import typer

from segmented.advise import ROUND_TRIP, Advice, Measured, Workload, advise as advised, duration, measure
from segmented.cli.output import DEFAULT_URL, JsonOption, UrlOption, print_table, write_json
from segmented.errors import InvalidInput
from segmented.models.ids import counted
from segmented.stores.redis import RedisStore

UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?P<unit>us|ms|s|min)")
RANGE: Final = re.compile(r"(?P<least>[0-9]{1,12})(?:-(?P<most>[0-9]{1,12}))?")
NO_TIME: Final = "the server's own time could not be read"
HEADS: Final = ("segments", "orders/s", "wait", "95 % wait up to", "stock lasts", "limit")


def advise(  # noqa: PLR0913  # an option each
    *,
    hold: Annotated[
        str, typer.Option(metavar="TIME", help="Slow work of an order under its lock, such as 20ms; 0ms for none.")
    ],
    workers: Annotated[int, typer.Option(metavar="W", help="Concurrent workers across all processes.")],
    stock: Annotated[int, typer.Option(metavar="N", help="Units to sell.")],
    quantity: Annotated[str, typer.Option(metavar="N-M", help="Smallest and largest order, in units.")] = "1",
    servers: Annotated[int, typer.Option(metavar="S", help="Number of Redis masters that share the pool.")] = 1,
    arrivals: Annotated[float | None, typer.Option(metavar="N", help="Orders per second. [default: saturated]")] = None,
    may_overlap: Annotated[
        bool | None,
        typer.Option("--may-overlap/--must-not-overlap", help="Whether two orders may do the slow work at once."),
    ] = None,
    round_trip: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Redis round trip. [default: {duration(ROUND_TRIP)}, assumed]")
    ] = None,
    row_rate: Annotated[float | None, typer.Option(metavar="N", help="Commits per second on a database row.")] = None,
    is_measured: Annotated[bool, typer.Option("--measure", help="Measure call and server time at --url.")] = False,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Advise whether to segment a stock, into how many segments, and predict throughput and waiting time.

    The result is calculated for a rush in which all workers are busy, or for the rate in --arrivals. --measure opens a
    pool of its own, sells from it for two seconds, and removes it.
    """
    # Before any measurement: wrong input is reported without a server.
    workload = Workload(
        hold=_duration(hold, "--hold"),
        workers=workers,
        stock=stock,
        quantity=_quantity(quantity),
        servers=servers,
        arrivals=arrivals,
        may_overlap=may_overlap,
        round_trip=ROUND_TRIP if round_trip is None else _duration(round_trip, "--round-trip"),
        row_rate=row_rate,
    )
    found = None
    if is_measured:
        with RedisStore.from_url(url) as store:
            found = measure(store)
        if round_trip is None:
            workload = replace(workload, round_trip=found.round_trip)
        workload = replace(workload, server_time=found.server_time or workload.server_time)
    advice = advised(workload)
    if not write_json(json_file, {"workload": asdict(workload), "measured": found and asdict(found)} | asdict(advice)):
        _print_advice(advice, workload, found)


def _duration(written: str, option: str) -> float:
    found = DURATION.fullmatch(written.strip())
    if found is None:
        raise InvalidInput(f"{option} {written!r} is not a time such as 20ms, 1.5s or 300us")
    return float(found["number"]) * UNITS[found["unit"]]


def _quantity(written: str) -> tuple[int, int]:
    found = RANGE.fullmatch(written.strip())
    if found is None:
        raise InvalidInput(f"--quantity {written!r} is not a number of units, or a range such as 1-5")
    return int(found["least"]), int(found["most"] or found["least"])


def _print_advice(advice: Advice, workload: Workload, found: Measured | None) -> None:
    headline = "No: one segment, " + ("with its lock." if advice.is_locked else "without its lock.")
    if advice.segments > 1:
        headline = f"Yes: split the stock into {advice.segments} segments"
        headline += "." if advice.is_locked else ", for their rows in the database; without locks."
    expected = advice.expected
    bounds = (f"{rate:,.0f}" for rate in (expected.orders_per_second_low, expected.orders_per_second))
    rates = " to ".join(dict.fromkeys(bounds))
    waiting = f"an order waits {duration(expected.wait_mean)}, one in twenty longer than {duration(expected.wait_p95)}"
    waiting = waiting if expected.wait_p95 else "hardly any order waits"
    typer.echo(headline)
    typer.echo(f"Expect {rates} orders/s, and a stock that lasts {duration(expected.sale_seconds)}; {waiting}.")
    typer.echo()
    for reason in advice.reasons:
        typer.echo(f"- {reason}")
    if found is not None:
        time = f"an order takes {duration(found.server_time)} of the server's thread" if found.server_time else NO_TIME
        orders = counted(found.orders, "order")
        typer.echo(f"- Measured with {orders}: a call takes {duration(found.round_trip)}; {time}.")
    elif workload.round_trip == ROUND_TRIP:
        typer.echo(f"- The round trip of {duration(ROUND_TRIP)} is an assumption; --measure finds it for your server.")
    typer.echo()
    rows: list[tuple[str, ...]] = []
    for each in (*advice.alternatives, advice.lock_free):
        mark = " *" if each == expected else ""
        name = f"{each.segments if each.is_locked else 'no lock'}{mark}"
        times = (duration(time) for time in (each.wait_mean, each.wait_p95, each.sale_seconds))
        rows.append((name, f"{each.orders_per_second:,.0f}", *times, each.limited_by))
    print_table(HEADS, rows)
