"""The lines of `results.jsonl`: one session, then one line a run, then how it ended. The schema has a version.

All figures, tables and verdicts are derived from these lines only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from bench.engine.cell import Cell, Frozen
from segmented.errors import InvalidInput
from segmented.files import MIB, bounded_lines, open_plain

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = "segmented-bench/1"
SIZE_MAX: Final = 256
"""Maximum MiB of a results file, which has a few KB a run."""
LINE_MAX: Final = 4 * MIB
Schema = Literal["segmented-bench/1"]


class Percentiles(Frozen):
    """Milliseconds, from one HdrHistogram of three digits; percentiles with fewer than ten samples beyond are null."""

    n: int
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    """Null below 10,000 samples."""
    p9999: float | None
    """Null below 100,000 samples."""
    max: float | None
    mean: float | None
    cv: float | None
    """Standard deviation / mean."""
    encoded: str
    """The histogram itself, as HdrHistogram encodes it: microseconds."""


class Times(Frozen):
    """Durations. `service` and `response` include failed orders, with the time they took to fail."""

    service: Percentiles
    """From sending to the answer."""
    response: Percentiles | None
    """From the intended time to the answer: what a user experiences. Null in a closed loop.

    Orders that were shed in the window have no answer: they count at the histogram's highest value, ten minutes.
    """
    wait: Percentiles
    """From the request until the critical section could begin; sold orders."""
    hold: Percentiles
    """From then until the lock, if any, was free again; once per call, however many orders it served."""
    lateness: Percentiles | None
    """From the intended time to sending: the lateness of the generator."""
    shed: int = 0
    """Number of shed orders in `response`; no other histogram has them."""


class Counts(Frozen):
    """Orders of the whole sale, warm-up and drain included, by outcome."""

    planned: int
    """Open loop: arrivals of the schedule. Closed loop: those sent."""
    sent: int
    sold: int
    sold_out: int
    failed: int
    """Ended in an error, gave up waiting, or never ended."""
    shed: int
    """Arrived while the maximum number was under way; never sent. They count as failures."""
    cancelled: int = 0
    """Sold orders that the case cancelled later."""
    first_failure: str | None = None


class Checker(Frozen):
    """The result of the check of servers and buyers' records after the sale, in units."""

    stock: int
    """Opened, and restocked during the sale."""
    sold: int
    """Without those cancelled later."""
    sold_in_sql: int | None
    oversold: int
    refused_wrongly: int
    """Orders refused while units were free during the whole request, by the ledger or by the buyers' times."""
    stranded: int
    """Units that no buyer can get: free after a "sold out" answer, neither free nor sold, or sold to an order whose
    buyer got another answer."""
    duplicates: int
    """Orders with more than one effect."""
    lost: int
    """Orders acknowledged as sold that are not sold on the servers."""
    audit: str


class Work(Frozen):
    """The cost of a sold order, by the server's own counts.

    Closed loop: from the warm-up on, for three quarters of the planned seconds, before the stock is gone, since
    refusals cost as much as orders. Open loop, or a stock fixed by the plan: the whole sale, with its refusals.
    """

    commands: float
    """Commands processed by the server, those inside scripts included."""
    round_trips: float
    """Reads of the server's event loop: round trips, if no two requests shared one."""
    attempts: float
    """Attempts to acquire a lock."""
    server_us: float
    """Microseconds of the server's CPU: commands, network and all."""
    bytes: float
    """In and out of the server."""


class Cpu(Frozen):
    """Cores used in the window."""

    generator: float
    redis: float
    database: float | None
    machine: float
    others: float
    steal: float


class Series(Frozen):
    """The sale over time, from its first order, warm-up and drain included. Bins of `bin_s` seconds."""

    bin_s: float
    offered: list[int]
    """Orders by time of sending (open loop: intended time, shed ones included)."""
    sold: list[int]
    """Orders by time of the answer, like the next two."""
    sold_out: list[int]
    failed: list[int]
    p50_ms: list[float | None]
    """Latency of the orders answered in the bin, from their intended time; null for fewer than 10."""
    max_ms: list[float | None]
    """The longest of them; null if none was answered."""
    window: tuple[float, float]
    """Begin and end of the measured part, in seconds."""
    segment_sold: list[int]
    """Orders by segment; empty if there are no segments."""
    left_at: list[float]
    """Times of the readings of units by segment, in seconds."""
    left: list[list[int]]
    """Free units, by reading and segment."""
    sold_at_refusal: int | None = None
    """Orders sold until the first refusal; null if nobody was refused."""
    shed: list[int] = Field(default_factory=list)
    """Shed orders, by intended time; empty in a closed loop."""


class Fairness(Frozen):
    """How evenly buyers were served in the window (closed loop only)."""

    jain: float
    """Jain's index, (sum x)^2 / (n sum x^2) over the orders of each buyer: 1 if even, 1/n if one buyer got all."""
    longest_wait_ms: float
    by_buyer: list[int]
    """Orders sold, by buyer."""


class Run(Frozen):
    """One run of one cell."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["run"] = "run"
    run: int
    """Its position in the session."""
    round: int
    """Each cell runs once per round, in random order."""
    cell: Cell
    cell_id: str
    arm: Literal["A", "B"] = "A"
    """A cell that runs twice per round, as A and B, gives the noise floor."""
    sweeps: tuple[str, ...]
    """The sweeps of the plan that include the cell."""
    seed: int
    started_at: str
    """UTC."""
    orders_per_s: float | None
    """Orders that hold stock, answered in the window; null for a void run."""
    sold_out_per_s: float
    failed_per_s: float
    void: tuple[str, ...]
    """Why it has no throughput, one sentence each."""
    notes: tuple[str, ...] = ()
    """Remarks on its figures, one sentence each: an open loop beyond saturation."""
    is_control: bool
    warm_up_s: float
    window_s: float
    drain_s: float
    lanes: int
    """Calls that can be in the critical section at once; the bound is lanes x batch / hold."""
    saturated: tuple[str, ...]
    """Which of generator, redis, servers, machine was saturated, so that the figure is its limit. Drawn hollow.

    `servers`: Redis, the database and the proxy of a network delay together, if they share cores.
    """
    counts: Counts
    checker: Checker
    skus: tuple[Checker, ...] = ()
    """The same for each sku, the most popular first; empty if there is one."""
    times: Times
    work: Work
    cpu: Cpu
    series: Series
    fairness: Fairness | None
    recorder_share: float
    """The recorder's share of the generator's CPU time in the window, as it measured itself."""
    history: str | None
    """File of all calls, relative to the results; null if none was kept."""
    history_sha256: str | None
    guarantees: dict[str, str | bool]
    server: dict[str, str]
    """Version and relevant settings of this run's server."""
    server_cores: int | None = None
    """Cores that all servers share; null if nothing is pinned."""
    offered_percent: float | None = None
    """Open loop: load in percent of the measured capacity; null if the plan names a rate."""

    @property
    def pace(self) -> float | None:
        """Orders sold per second, warm-up included, for void runs too. None if none was sold."""
        took = self.warm_up_s + self.window_s
        return self.counts.sold / took if self.counts.sold and took > 0 else None


class SessionLine(Frozen):
    """The first line: the plan and the conditions."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["session"] = "session"
    plan: dict[str, Any]
    """The whole plan."""
    plan_sha256: str
    plan_commit: str | None
    """The commit that last changed the plan's file; null if it has uncommitted changes, or is in no repository."""
    is_quick: bool
    sweeps: tuple[str, ...] = ()
    """The sweeps that were asked for; empty: all of the plan."""
    left_out: tuple[str, ...]
    """Measurements that this profile leaves out, one sentence each."""
    started_at: str
    environment: dict[str, Any]

    def condition(self, path: str) -> object:
        """Return the environment's value at a dotted path, or None."""
        found: Any = self.environment
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        return found


class EndLine(Frozen):
    """The last line; missing if the session was killed."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["end"] = "end"
    finished_at: str
    runs_planned: int
    runs_done: int
    stopped_by: str | None
    """Why it ended early, as an interrupt or a dead server; null if all runs were done."""


class ResultFile(Frozen):
    """A whole file, read and validated."""

    session: SessionLine
    runs: tuple[Run, ...]
    end: EndLine | None
    """The last line; an end line followed by runs belongs to a session that was continued."""

    @property
    def why_not_whole(self) -> str | None:
        """Missing runs of the session; None if it has all planned runs."""
        if self.end is None:
            there = "1 run is" if len(self.runs) == 1 else f"{len(self.runs)} runs are"
            return f"its last line is missing, as after a kill; {there} there"
        if self.end.runs_planned != len(self.runs):
            why = f": {self.end.stopped_by}" if self.end.stopped_by else ""
            return f"{len(self.runs)} of {self.end.runs_planned} planned runs are there{why}"
        return None


def as_line(line: SessionLine | Run | EndLine) -> str:
    """Return the line of the file, with its newline."""
    return line.model_dump_json(by_alias=True) + "\n"


def read_results(file: Path) -> ResultFile:
    """Read a results file. Raises InvalidInput that names the line and the error.

    A truncated last line, as a kill may leave it, is skipped.
    """
    try:
        with open_plain(file) as raw:
            bounded = bounded_lines(raw, file, size_max=SIZE_MAX, line_max=LINE_MAX, of=SCHEMA)
            text = b"".join(line for _, line in bounded).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"{file} is not a result file of {SCHEMA}: it is not text ({error.reason} at byte {error.start})"
        raise InvalidInput(message) from error
    whole, _, cut = text.rpartition("\n")
    lines = [(number, line) for number, line in enumerate(whole.split("\n"), start=1) if line.strip()]
    found = [_parsed(file, number, line) for number, line in lines]
    if not found or not isinstance(found[0], SessionLine):
        raise InvalidInput(f"{file} is not a result file of {SCHEMA}: its first line is not that of a session")
    last = found[-1]
    runs = _runs(file, [(number, one) for (number, _), one in zip(lines, found, strict=True)][1:])
    return ResultFile(session=found[0], runs=runs, end=last if isinstance(last, EndLine) and not cut else None)


def _runs(file: Path, found: list[tuple[int, SessionLine | Run | EndLine]]) -> tuple[Run, ...]:
    """Return the runs after the first line. Raises InvalidInput for a duplicate run or a second session."""
    seen: dict[int, int] = {}
    for number, one in found:
        if isinstance(one, SessionLine):
            raise InvalidInput(f"{file}, line {number}: a second session begins there")
        if isinstance(one, Run) and seen.setdefault(one.run, number) != number:
            raise InvalidInput(f"{file}, line {number}: run {one.run} stands in line {seen[one.run]} already")
    return tuple(one for _, one in found if isinstance(one, Run))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_KINDS: Final[dict[str, type[SessionLine | Run | EndLine]]] = {"session": SessionLine, "run": Run, "end": EndLine}


def _parsed(file: Path, number: int, line: str) -> SessionLine | Run | EndLine:
    where = f"{file}, line {number}"
    try:
        found = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # Python refuses such a number or depth with other errors than JSON's
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidInput(f"{where} is not JSON: {why}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        raise InvalidInput(f"{where} is of schema {schema!r}, and this reads {SCHEMA!r}")
    kind = found.get("kind")
    shape = _KINDS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise InvalidInput(f"{where} is of kind {kind!r}; known are: {', '.join(_KINDS)}")
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
