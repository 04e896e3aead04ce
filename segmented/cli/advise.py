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
from segmented.advise.workload import CLIENT_TIME, ROUND_TRIP, SERVER_TIME, SPREAD_MAX
from segmented.cli.output import DEFAULT_URL, JsonOption, UrlOption, is_terminal, print_table, write_json
from segmented.errors import InvalidInput
from segmented.files import STDOUT
from segmented.models.ids import counted
from segmented.stores.redis import RedisStore

UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
DURATION: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?) ?(?P<unit>us|ms|s|min)")
PEAK: Final = re.compile(r"(?P<rate>[0-9]{1,9}(?:\.[0-9]{1,9})?)/(?P<length>.+)")
RANGE: Final = re.compile(r"(?P<least>[0-9]{1,12})(?:-(?P<most>[0-9]{1,12}))?")
QUESTION: Final = "How long is the slow work of one order under its lock, such as 20ms"
SPREAD_HOLDS_MIN: Final = 20
"""Past holds from which on their spread is used."""
ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL: Final = 128
ALIKE_SHARE: Final = 0.99
"""Share of the higher rate from which on a range is printed as one number."""
BAR: Final = 10
"""Characters of the longest bar."""
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
PeakOption = Annotated[
    str | None,
    typer.Option(
        metavar="N/TIME",
        help="Burst at the start: orders per second and its length, such as 2000/5s; needs --arrivals.",
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        metavar="B", help="Orders that one hold serves, with one slow step.  [default: 1, or as --hold-of found]"
    ),
]
ClientTimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help=f"CPU time of a worker's process for one order. [default: {duration(CLIENT_TIME)}]"
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        metavar="P",
        help="Python processes that the workers are in, one core each; with --hosts, those of each host.  "
        "[default: enough; with --hosts, 1]",
    ),
]
HostsOption = Annotated[
    int | None,
    typer.Option(
        metavar="H",
        help="Number of hosts of the workers: simulates the cores of all processes and masters.  [default: none, "
        "formulas are used]",
    ),
]
SpreadOption = Annotated[
    float | None,
    typer.Option(
        "--hold-spread",
        metavar="N",
        help="Standard deviation of the holds divided by their mean: 0 if all are equal.  [default: unknown, as 1]",
    ),
]
OverlapOption = Annotated[
    bool | None,
    typer.Option(
        "--may-overlap/--must-not-overlap",
        help="Whether two orders may do the slow work at the same time; then no lock is needed.",
    ),
]
GoalOption = Annotated[
    str | None,
    typer.Option("--p99", metavar="TIME", help="Goal: 99 % of the orders wait at most this long."),
]
ArrivalsOption = Annotated[
    float | None,
    typer.Option(metavar="N", help="Arrival rate, orders per second. [default: saturated]"),
]
MeasureOption = Annotated[
    bool,
    typer.Option("--measure", help="Measure round trip, server time and client time with a short run against --url."),
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
    peak: PeakOption = None,
    batch: BatchOption = None,
    client_time: ClientTimeOption = None,
    processes: ProcessesOption = None,
    hosts: HostsOption = None,
    hold_spread: SpreadOption = None,
    may_overlap: OverlapOption = None,
    p99: GoalOption = None,
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
    hold_s, may_overlap = _hold_and_overlap(hold, hold_of, may_overlap=may_overlap)
    height, length = (None, None) if peak is None else _peak(peak)
    # Before any measurement: wrong input is reported without a server.
    told = Workload(
        hold=hold_s,
        workers=workers,
        stock=stock,
        quantity=_quantity(quantity),
        servers=servers,
        round_trip=ROUND_TRIP if round_trip is None else _duration(round_trip, "--round-trip"),
        server_time=SERVER_TIME if server_time is None else _duration(server_time, "--server-time"),
        row_rate=row_rate,
        database_rate=database_rate,
        arrivals=arrivals,
        peak=height,
        peak_seconds=length,
        batch=1 if batch is None else batch,
        client_time=CLIENT_TIME if client_time is None else _duration(client_time, "--client-time"),
        processes=processes,
        hosts=hosts,
        hold_spread=hold_spread,
        may_overlap=may_overlap,
        p99=None if p99 is None else _duration(p99, "--p99"),
    )
    found = _measured_at(url, seconds) if is_measured else None
    if found is not None:
        told = _as_measured(found, told, (round_trip, server_time, client_time))
    past = None if hold_of is None else _past_at(url, hold_of)
    if past is not None:
        told = _as_in(past, told, is_batch_known=batch is not None)
    advice = advised(told)
    if json_file is not None:
        facts = {"measured": found and asdict(found), "past": past and asdict(past)}
        write_json(json_file, {"workload": asdict(told)} | facts | asdict(advice))
    if json_file != STDOUT:
        _print_advice(advice, told, found, past)


def _hold_and_overlap(hold: str | None, hold_of: str | None, *, may_overlap: bool | None) -> tuple[float, bool | None]:
    """Return the hold, 0 if a ledger is to tell it, and whether it may overlap; ask on a terminal if no hold is given.

    Raises InvalidInput.
    """
    if hold is not None and hold_of is not None:
        message = "give --hold or --hold-of, not both"
        raise InvalidInput(message)
    if hold_of is not None:
        return 0.0, may_overlap
    if hold is None:
        if not is_terminal():
            message = "advise needs --hold, such as 20ms, without a terminal"
            raise InvalidInput(message)
        if may_overlap is None:
            may_overlap = typer.confirm("May two orders do the slow work at the same time", default=False)
        hold = typer.prompt(QUESTION)
    return _duration(hold, "--hold"), may_overlap


def _as_measured(found: Measured, told: Workload, given: tuple[str | None, str | None, str | None]) -> Workload:
    """Return the workload with the measured times, but for those that were given as options."""
    round_trip, server_time, client_time = given
    return replace(
        told,
        round_trip=told.round_trip if round_trip else found.round_trip,
        server_time=told.server_time if server_time or found.server_time is None else found.server_time,
        client_time=told.client_time if client_time else found.client_time,
    )


def _past_at(url: str, sku: str) -> PastHold:
    with RedisStore.from_url(url) as store:
        return past_hold(store, sku)


def _as_in(past: PastHold, told: Workload, *, is_batch_known: bool) -> Workload:
    """Return the workload with the hold of a past sale, and its spread and batch if those were not given."""
    batch = told.batch if is_batch_known else max(1, round(past.orders / past.holds))
    spread = told.hold_spread
    if spread is None and past.holds >= SPREAD_HOLDS_MIN:
        spread = min(past.spread, SPREAD_MAX)
    told = replace(told, hold_spread=spread, batch=batch)
    return replace(told, hold=max(0.0, past.locked - told.locked))


class _Ended(BaseException):
    """A signal asks this process to end."""


def _measured_at(url: str, seconds: float) -> Measured:
    """Measure; if a signal ends the process meanwhile, remove the pool first."""
    check_seconds(seconds)
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


def _duration(written: str, option: str) -> float:
    found = DURATION.fullmatch(written.strip())
    if found is None:
        message = f"{option} {written!r} is not a time such as 20ms, 1.5s or 300us"
        raise InvalidInput(message)
    return float(found["number"]) * UNITS[found["unit"]]


def _peak(written: str) -> tuple[float, float]:
    found = PEAK.fullmatch(written.strip())
    if found is None:
        message = f"--peak {written!r} is not a rate and a length, such as 2000/5s"
        raise InvalidInput(message)
    return float(found["rate"]), _duration(found["length"], "--peak")


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
    low, high = advice.expected.orders_per_second_low, advice.orders_per_second
    rates = f"{high:,.0f}" if low > ALIKE_SHARE * high else f"{low:,.0f} to {high:,.0f}"
    pace = f"Expect {rates} orders/s, and a stock that lasts"
    _say(f"{pace} {duration(advice.expected.sale_seconds)}; {_waiting(advice)}.")
    typer.echo()
    for reason in advice.reasons:
        _say(f"- {reason}")
    if past is not None:
        served = (
            counted(past.orders, "order")
            if past.holds == past.orders
            else f"{counted(past.orders, 'order')} in {counted(past.holds, 'hold')}"
        )
        lasted = f"{duration(past.locked)} each, as a mean; their spread is {past.spread:.2g}"
        _say(f"- In that pool {served} held a segment for {lasted}.")
    if found is not None:
        _say(f"- {_measurement(found)}")
    elif workload.round_trip == ROUND_TRIP:
        _say(f"- The round trip of {duration(ROUND_TRIP)} is an assumption; --measure finds it for your server.")
    typer.echo()
    rows = [_row(each, mark=each == advice.expected) for each in advice.alternatives]
    rows.append(_row(advice.lock_free, mark=not advice.is_locked))
    if not is_terminal():
        print_table(HEADS, rows)
        return
    shown = [*advice.alternatives, advice.lock_free]
    most = max(each.orders_per_second for each in shown)
    bars = ["█" * max(1, round(BAR * each.orders_per_second / most)) for each in shown]
    print_table((*HEADS, "orders/s"), [(*row, bar) for row, bar in zip(rows, bars, strict=True)])


def _waiting(advice: Advice) -> str:
    if not advice.wait_mean:
        return "nobody waits for a segment"
    if not advice.wait_p95:
        return "nineteen orders in twenty do not wait"
    return f"an order waits {duration(advice.wait_mean)}, one in twenty longer than {duration(advice.wait_p95)}"


def _measurement(found: Measured) -> str:
    taken = f"Measured with {counted(found.orders, 'order')}: a call takes {duration(found.round_trip)}"
    client = f"{duration(found.client_time)} of the client's core"
    if found.server_time is None:
        return f"{taken}, an order {client}; the server's own time could not be read."
    return f"{taken}, an order {duration(found.server_time)} of the server's thread and {client}."


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
