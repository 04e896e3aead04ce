"""The lines of `results.jsonl`: one session, then one line a run, then how it ended. The schema has a version.

Every figure, table and verdict is drawn from these lines, and from nothing else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from bench.granularity.cell import Cell, Frozen
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = "segmented-bench/1"
Schema = Literal["segmented-bench/1"]


class Percentiles(Frozen):
    """Milliseconds, from one HdrHistogram of three digits; a percentile with fewer than ten samples beyond is null."""

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
    """What took how long. Orders that failed are in `service` and `response` too, with the time they took to fail."""

    service: Percentiles
    """From sending to the answer."""
    response: Percentiles | None
    """From the intended time to the answer: what a user feels. Null in a closed loop, which intends no times."""
    wait: Percentiles
    """From asking until the critical section could begin; sold orders."""
    hold: Percentiles
    """From then until the lock, if any, was free again; once a call, however many orders it served."""
    lateness: Percentiles | None
    """From the intended time to sending: what the generator failed to do in time."""


class Counts(Frozen):
    """Orders of the whole sale, the warm-up and the drain too, by what became of them."""

    planned: int
    """Open loop: arrivals of the schedule. Closed loop: those sent."""
    sent: int
    sold: int
    sold_out: int
    failed: int
    """Ended in an error, gave up waiting, or never ended."""
    shed: int
    """Arrived while as many as allowed were under way; never sent. They count as failures."""
    cancelled: int = 0
    """Of those sold, cancelled later by the case."""
    first_failure: str | None = None


class Checker(Frozen):
    """What the servers and the buyers' own notes say after the sale. Units."""

    stock: int
    """Opened, and restocked in mid-sale."""
    sold: int
    """Not those that were cancelled later."""
    sold_in_sql: int | None
    oversold: int
    refused_wrongly: int
    """Orders refused while units were free for all of the request, by the ledger or by the buyers' times."""
    stranded: int
    """Units that nobody can have: free after buyers were told "sold out", neither free nor sold, or sold to an order
    whose buyer was told that it is not."""
    duplicates: int
    """Orders with more than one effect."""
    lost: int
    """Orders acknowledged as sold that the servers do not know as sold."""
    audit: str


class Work(Frozen):
    """What a sold order cost, by the server's own count.

    Closed loop: from the warm-up on, for three quarters of the planned seconds, before the stock is gone; refusals cost
    as much as orders. Open loop, and a stock that the plan fixes: of the whole sale, so the work for refusals is in it.
    """

    commands: float
    """Commands that the server processed, those inside scripts too."""
    round_trips: float
    """Reads of the server's event loop: round trips, where no two requests shared one."""
    attempts: float
    """Times that a lock was asked for."""
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
    """The sale over time, from its first order; the warm-up and the drain are in it. Bins of `bin_s` seconds."""

    bin_s: float
    offered: list[int]
    """Orders by when they were sent (open: intended; those that were shed are in it)."""
    sold: list[int]
    """By when they were answered, as the next two."""
    sold_out: list[int]
    failed: list[int]
    p50_ms: list[float | None]
    """Of the orders answered in the bin, from their intended time; null below 10 of them."""
    max_ms: list[float | None]
    """The longest of them; null where none was answered."""
    window: tuple[float, float]
    """Seconds of the measured part."""
    segment_sold: list[int]
    """Orders by segment; empty where there are no segments."""
    left_at: list[float]
    """Seconds at which the units left by segment were read."""
    left: list[list[int]]
    """Units free, by reading and segment."""
    shed: list[int] = Field(default_factory=list)
    """Orders that were never sent, by intended time; empty in a closed loop."""


class Fairness(Frozen):
    """How evenly buyers were served in the window (closed loop only)."""

    jain: float
    """(sum x)^2 / (n sum x^2) over the orders of each buyer: 1 is even, 1/n is all for one."""
    longest_wait_ms: float
    by_buyer: list[int]
    """Orders sold, by buyer."""


class Run(Frozen):
    """One run of one cell."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["run"] = "run"
    run: int
    """Its place in the order in which the session ran."""
    round: int
    """Each cell runs once a round, in an order of its own."""
    cell: Cell
    cell_id: str
    arm: Literal["A", "B"] = "A"
    """The same cell twice a round, A and B, is the A/A row: the noise floor."""
    sweeps: tuple[str, ...]
    """The plan's sweeps that the cell belongs to."""
    seed: int
    started_at: str
    """UTC."""
    orders_per_s: float | None
    """Orders that hold stock, answered in the window; null for a run that broke a promise or is void otherwise."""
    sold_out_per_s: float
    failed_per_s: float
    void: tuple[str, ...]
    """Why it has no throughput, a sentence each."""
    notes: tuple[str, ...] = ()
    """What must be said beside its figures, a sentence each: an open loop beyond saturation."""
    is_control: bool
    warm_up_s: float
    window_s: float
    drain_s: float
    lanes: int
    """Calls that can be in the critical section at once; the bound is lanes x batch / hold."""
    saturated: tuple[str, ...]
    """Of generator, redis, servers, machine: what was used up, so that the figure is its limit. Drawn hollow.

    `servers`: Redis, the database and the proxy of a network delay together, where they share cores.
    """
    counts: Counts
    checker: Checker
    times: Times
    work: Work
    cpu: Cpu
    series: Series
    fairness: Fairness | None
    recorder_share: float
    """Part of the generator's CPU time in the window that the recorder took, by its own measure."""
    history: str | None
    """File with every call, relative to the results; null when none was kept."""
    history_sha256: str | None
    guarantees: dict[str, str | bool]
    server: dict[str, str]
    """Of this run's own server: version and the settings that decide."""
    server_cores: int | None = None
    """Cores that all servers share; null where nothing is pinned."""
    offered_percent: float | None = None
    """Open loop: what arrives, as a share of the measured capacity; null where the plan names a rate."""

    @property
    def pace(self) -> float | None:
        """Orders sold a second with the warm-up, of a void run too: how long a stock lasts. None if none was sold."""
        took = self.warm_up_s + self.window_s
        return self.counts.sold / took if self.counts.sold and took > 0 else None


class SessionLine(Frozen):
    """The first line: what was planned, and under what conditions."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["session"] = "session"
    plan: dict[str, Any]
    """The whole plan, as it was read."""
    plan_sha256: str
    plan_commit: str | None
    """The commit that the plan's file was last changed by; null if it was changed since, or is in no repository."""
    is_quick: bool
    left_out: tuple[str, ...]
    """What this profile leaves out, a sentence each."""
    started_at: str
    environment: dict[str, Any]


class EndLine(Frozen):
    """The last line; it is missing when the session was killed."""

    schema_: Annotated[Schema, Field(alias="schema")] = SCHEMA
    kind: Literal["end"] = "end"
    finished_at: str
    runs_planned: int
    runs_done: int
    stopped_by: str | None
    """Why it ended early: an interrupt, a server that died; null when every run was done."""


class ResultFile(Frozen):
    """A whole file, read and checked."""

    session: SessionLine
    runs: tuple[Run, ...]
    end: EndLine | None
    """The last line; an end with runs behind it was that of a session that went on."""

    @property
    def why_not_whole(self) -> str | None:
        """Say what is missing of the session; None where every planned run is there."""
        if self.end is None:
            return f"its last line is missing, as after a kill; {len(self.runs)} runs are there"
        if self.end.runs_planned != len(self.runs):
            why = f": {self.end.stopped_by}" if self.end.stopped_by else ""
            return f"{len(self.runs)} of {self.end.runs_planned} planned runs are there{why}"
        return None


def as_line(line: SessionLine | Run | EndLine) -> str:
    """Return the line as it stands in the file, with its newline."""
    return line.model_dump_json(by_alias=True) + "\n"


def read_results(file: Path) -> ResultFile:
    """Read a results file. Raises InvalidInput that names the line and what is wrong with it.

    A last line that was cut off in the middle, as a kill may leave it, is left out.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise InvalidInput(message) from error
    except UnicodeDecodeError as error:
        message = f"{file} is not a result file of {SCHEMA}: it is no text ({error.reason} at byte {error.start})"
        raise InvalidInput(message) from error
    whole, _, cut = text.rpartition("\n")
    lines = [(number, line) for number, line in enumerate(whole.split("\n"), start=1) if line.strip()]
    found = [_parsed(file, number, line) for number, line in lines]
    if not found or not isinstance(found[0], SessionLine):
        message = f"{file} is not a result file of {SCHEMA}: its first line is not that of a session"
        raise InvalidInput(message)
    last = found[-1]
    runs = _runs(file, [(number, one) for (number, _), one in zip(lines, found, strict=True)][1:])
    return ResultFile(session=found[0], runs=runs, end=last if isinstance(last, EndLine) and not cut else None)


def _runs(file: Path, found: list[tuple[int, SessionLine | Run | EndLine]]) -> tuple[Run, ...]:
    """Return the runs behind the first line. Raises InvalidInput for one that is there twice, or another session."""
    seen: dict[int, int] = {}
    for number, one in found:
        if isinstance(one, SessionLine):
            message = f"{file}, line {number}: a second session begins there"
            raise InvalidInput(message)
        if isinstance(one, Run) and seen.setdefault(one.run, number) != number:
            message = f"{file}, line {number}: run {one.run} stands in line {seen[one.run]} already"
            raise InvalidInput(message)
    return tuple(one for _, one in found if isinstance(one, Run))


def _no_number(name: str) -> float:
    message = f"{name} is no number"
    raise ValueError(message)


_KINDS: Final[dict[str, type[SessionLine | Run | EndLine]]] = {"session": SessionLine, "run": Run, "end": EndLine}


def _parsed(file: Path, number: int, line: str) -> SessionLine | Run | EndLine:
    where = f"{file}, line {number}"
    try:
        found = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # a number or a depth that Python refuses is none of JSON's errors
        why = "nested too deep" if isinstance(error, RecursionError) else error
        message = f"{where} is not JSON: {why}"
        raise InvalidInput(message) from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA:
        message = f"{where} is of schema {schema!r}, and this reads {SCHEMA!r}"
        raise InvalidInput(message)
    kind = found.get("kind")
    shape = _KINDS.get(kind) if isinstance(kind, str) else None
    if shape is None:
        message = f"{where} is of kind {kind!r}; there is: {', '.join(_KINDS)}"
        raise InvalidInput(message)
    try:
        return shape.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InvalidInput(message) from error
