"""`segmented advise`: whether to segment a stock, into how many segments, and the expected throughput."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import asdict, replace
from types import FrameType
from typing import Annotated, Final

import typer

from segmented.advise import (
    Advice,
    Measured,
    PastHold,
    Prediction,
    Workload,
    advise as advised,
    measure as measured,
    past_hold,
)
from segmented.advise.advice import duration
from segmented.advise.measured import SECONDS, check_seconds
from segmented.advise.workload import ROUND_TRIP, SERVER_TIME
from segmented.cli.output import DEFAULT_URL, STDOUT, JsonOption, UrlOption, is_terminal, print_table, write_json
from segmented.errors import InvalidInput
from segmented.stores.redis import RedisStore

UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?P<unit>us|ms|s|min)")
RANGE: Final = re.compile(r"(?P<least>[0-9]{1,12})(?:-(?P<most>[0-9]{1,12}))?")
ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL: Final = 128
HEADS: Final = ("segments", "orders/s", "wait", "95 % wait up to", "stock lasts", "limit")

HoldOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Duration of an order's slow work under its lock, such as 20ms or 1.5s; 0ms for none."
    ),
]
HoldOfOption = Annotated[
    str | None,
    typer.Option(metavar="SKU", help="Measure the hold from the past orders of this pool on --url."),
]
WorkersOption = Annotated[int, typer.Option(metavar="W", help="Concurrent workers across all processes.")]
StockOption = Annotated[int, typer.Option(metavar="N", help="Units to sell.")]
QuantityOption = Annotated[str, typer.Option(metavar="N-M", help="Smallest and largest order, in units.")]
ServersOption = Annotated[int, typer.Option(metavar="S", help="Number of Redis masters that share the pool.")]
RoundTripOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help=f"Round trip of one call to the pool. [default: {duration(ROUND_TRIP)}, an assumption]"
    ),
]
ServerTimeOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help=f"Server CPU time for one order. [default: {duration(SERVER_TIME)}]"),
]
RowRateOption = Annotated[
    float | None,
    typer.Option(
        metavar="N", help="Commits per second that one row of the order database allows; there is one row per segment."
    ),
]
DatabaseRateOption = Annotated[
    float | None, typer.Option(metavar="N", help="Commits per second that the whole order database allows.")
]
ArrivalsOption = Annotated[
    float | None,
    typer.Option(metavar="N", help="Arrival rate, orders per second. [default: saturated]"),
]
MeasureOption = Annotated[
    bool, typer.Option("--measure", help="Measure round trip and server time with a short run against --url.")
]
SecondsOption = Annotated[float, typer.Option("--for", metavar="SECONDS", help="With --measure: duration of the run.")]


def advise(  # noqa: PLR0913  # an option each
    *,
    hold: HoldOption = None,
    hold_of: HoldOfOption = None,
    workers: WorkersOption,
    stock: StockOption,
    quantity: QuantityOption = "1",
    servers: ServersOption = 1,
    round_trip: RoundTripOption = None,
    server_time: ServerTimeOption = None,
    row_rate: RowRateOption = None,
    database_rate: DatabaseRateOption = None,
    arrivals: ArrivalsOption = None,
    is_measured: MeasureOption = False,
    seconds: SecondsOption = SECONDS,
    url: UrlOption = DEFAULT_URL,
    json_file: JsonOption = None,
) -> None:
    """Advise whether to segment a stock, into how many segments, and predict throughput and waiting time.

    The result is calculated for a rush in which all workers are busy, or for the rate in --arrivals. Asks for --hold if
    neither --hold nor --hold-of is given. --measure opens a pool of its own, sells from it for two seconds, and removes
    it.
    """
    if hold is not None and hold_of is not None:
        message = "give --hold or --hold-of, not both"
        raise InvalidInput(message)
    # Before any measurement: wrong input is reported without a server.
    told = Workload(
        hold=0.0 if hold_of is not None else _duration(_asked_for() if hold is None else hold, "--hold"),
        workers=workers,
        stock=stock,
        quantity=_quantity(quantity),
        servers=servers,
        round_trip=ROUND_TRIP if round_trip is None else _duration(round_trip, "--round-trip"),
        server_time=SERVER_TIME if server_time is None else _duration(server_time, "--server-time"),
        row_rate=row_rate,
        database_rate=database_rate,
        arrivals=arrivals,
    )
    found: Measured | None = None
    if is_measured:
        check_seconds(seconds)
        found = _measured_at(url, seconds)
        told = replace(
            told,
            round_trip=found.round_trip if round_trip is None else told.round_trip,
            server_time=told.server_time if server_time or found.server_time is None else found.server_time,
        )
    past: PastHold | None = None
    if hold_of is not None:
        with RedisStore.from_url(url) as store:
            past = past_hold(store, hold_of)
        told = replace(told, hold=past.hold(round_trip=told.round_trip))
    advice = advised(told)
    if json_file is not None:
        facts = {"measured": None if found is None else asdict(found), "past": None if past is None else asdict(past)}
        write_json(json_file, {"workload": asdict(told)} | facts | asdict(advice))
    if json_file != STDOUT:
        _print_advice(advice, told, found, past)


class _Ended(BaseException):
    """A signal asks this process to end."""


def _measured_at(url: str, seconds: float) -> Measured:
    """Measure; if a signal ends the process meanwhile, remove the pool first."""
    for number in ENDS:
        if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` ignores a hang-up
            signal.signal(number, _end_once)
    try:
        with RedisStore.from_url(url) as store:
            return measured(store, seconds=seconds)
    except _Ended as end:
        typer.echo("segmented: interrupted", err=True)
        raise typer.Exit(EXIT_BY_SIGNAL + end.args[0]) from None
    finally:
        for number in ENDS:
            if signal.getsignal(number) is _end_once:
                signal.signal(number, signal.SIG_DFL)


def _end_once(number: int, _frame: FrameType | None) -> None:
    """End the measurement; a second signal must not cut the removal short."""
    for other in (signal.SIGINT, *ENDS):
        signal.signal(other, signal.SIG_IGN)
    raise _Ended(number)


def _asked_for() -> str:
    if not is_terminal():
        message = "advise needs --hold, such as 20ms, without a terminal"
        raise InvalidInput(message)
    answer: str = typer.prompt("How long is the slow work of one order under its lock, such as 20ms")
    return answer


def _duration(written: str, option: str) -> float:
    found = DURATION.fullmatch(written.strip())
    if found is None:
        message = f"{option} {written!r} is not a time such as 20ms, 1.5s or 300us"
        raise InvalidInput(message)
    return float(found["number"]) * UNITS[found["unit"]]


def _quantity(written: str) -> tuple[int, int]:
    found = RANGE.fullmatch(written.strip())
    if found is None:
        message = f"--quantity {written!r} is not a number of units, or a range such as 1-5"
        raise InvalidInput(message)
    return int(found["least"]), int(found["most"] or found["least"])


def _print_advice(advice: Advice, workload: Workload, found: Measured | None, past: PastHold | None) -> None:
    if advice.segment:
        headline = f"Yes: split the stock into {advice.segments} segments"
        headline += "." if advice.is_locked else ", for their rows in the database; without locks."
    else:
        headline = "No: one segment, " + ("with its lock." if advice.is_locked else "without its lock.")
    _say(headline)
    pace = f"Expect {advice.orders_per_second:,.0f} orders/s, and a stock that lasts"
    _say(f"{pace} {duration(advice.expected.sale_seconds)}; {_waiting(advice)}.")
    typer.echo()
    for reason in advice.reasons:
        _say(f"- {reason}")
    if past is not None:
        _say(f"- In that pool {past.orders:,} orders held a segment for {duration(past.locked)} each, as a mean.")
    if found is not None:
        _say(f"- {_measurement(found)}")
    elif workload.round_trip == ROUND_TRIP:
        _say(f"- The round trip of {duration(ROUND_TRIP)} is an assumption; --measure finds it for your server.")
    typer.echo()
    rows = [_row(each, mark=each == advice.expected) for each in advice.alternatives]
    print_table(HEADS, [*rows, _row(advice.lock_free, mark=not advice.is_locked)])


def _waiting(advice: Advice) -> str:
    if not advice.wait_mean:
        return "nobody waits for a segment"
    if not advice.wait_p95:
        return "nineteen orders in twenty do not wait"
    return f"an order waits {duration(advice.wait_mean)}, one in twenty longer than {duration(advice.wait_p95)}"


def _measurement(found: Measured) -> str:
    taken = f"Measured with {found.orders:,} orders: a call takes {duration(found.round_trip)}"
    if found.server_time is None:
        return f"{taken}; the server's own time could not be read."
    return f"{taken}, an order {duration(found.server_time)} of the server's thread."


def _row(prediction: Prediction, *, mark: bool) -> tuple[str, ...]:
    name = str(prediction.segments) if prediction.is_locked else "no lock"
    return (
        f"{name} *" if mark else name,
        f"{prediction.orders_per_second:,.0f}",
        duration(prediction.wait_mean),
        duration(prediction.wait_p95),
        duration(prediction.sale_seconds),
        prediction.limited_by,
    )


def _say(sentence: str) -> None:
    """Print a sentence, wrapped on a terminal and as one line in a pipe."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  # only a terminal needs rich, which takes long to import

        Console().print(sentence, markup=False, highlight=False)
    else:
        typer.echo(sentence)
