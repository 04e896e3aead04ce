"""Measures two builds in rounds of A B B A or B A A B: the runs of a round follow each other within seconds."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal

import psutil

from bench import sizing
from bench.ab.builds import MODULE
from bench.ab.statistics import Observed, compare
from bench.analysis.measured import broken_promises
from bench.children import MeasuringProcess, MeasuringTask
from bench.conditions import machine_conditions
from bench.cpu import machine_core_count
from bench.engine.cell import CALIBRATION_STOCK, Cell, RunAssignment
from bench.engine.grid import PlannedCell
from bench.engine.record import Run
from bench.engine.servers import SessionServers
from bench.results import described_conditions, say, show_rows
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from rich.console import Console

    from bench.ab.builds import Build
    from bench.ab.statistics import Compared, Round
    from bench.display import Display, Progress

NAME: Final = "ab"
CELLS: Final = (
    Cell(strategy="segment-locks", segments=16, section="sleep", hold_ms=20),
    Cell(strategy="segment-locks", segments=16, section="none"),
    Cell(strategy="lock-free", segments=16, section="none"),
)
"""The usual sale, the cost of our locks alone, and that of the scripts alone."""
PROBE_LOOPS: Final = 200_000
ROUNDS: Final = 10
SECONDS: Final = 2.0
WARM_UP_SHARE: Final = 0.2
BUILD_NAMES: Final[tuple[Literal["A", "B"], ...]] = ("A", "B")
HEAD: Final = ("cell", "A, orders/s", "B, orders/s", "B / A, adjusted [95 %]", "noise floor", "verdict")


@dataclass(frozen=True, slots=True)
class AbSizes:
    """How much is measured."""

    rounds: int = ROUNDS
    seconds: float = SECONDS
    """Planned seconds of a run."""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """All rounds of a cell, and the comparison; or why there is none."""

    cell: Cell
    rounds: tuple[Round, ...]
    compared: Compared | None
    void: tuple[str, ...]
    """Rounds that were left out, one sentence each."""
    broken: tuple[str, ...]
    """Guarantees that runs broke, one sentence each, with the build."""

    @property
    def is_worse(self) -> bool:
        """Return whether B is slower, or broke a guarantee."""
        is_slower = self.compared is not None and self.compared.verdict == "slower"
        return is_slower or any(sentence.startswith("B ") for sentence in self.broken)

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "cell_id": self.cell.cell_id,
            "compared": None if self.compared is None else asdict(self.compared),
            "void": list(self.void),
            "broken": list(self.broken),
            "rounds": [[asdict(run) for run in one] for one in self.rounds],
        }


@dataclass(frozen=True, slots=True)
class AbResults:
    """The comparison of two builds."""

    a: str
    b: str
    cells: tuple[CellRecord, ...]
    conditions: dict[str, Any]

    @property
    def is_worse(self) -> bool:
        """Return whether B is slower anywhere, or broke a guarantee; the command's exit code is 1 then."""
        return any(record.is_worse for record in self.cells)

    @property
    def is_kept(self) -> bool:
        """Return whether every run kept its guarantees."""
        return not any(record.broken for record in self.cells)

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        return {
            "benchmark": NAME,
            "a": self.a,
            "b": self.b,
            "cells": [record.as_json() for record in self.cells],
            "conditions": self.conditions,
        }

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or a line for each cell into a pipe."""
        say(console, f"A: {self.a}. B: {self.b}.")
        rows = [(record.cell.cell_id, *_row(record)) for record in self.cells]
        show_rows(console, HEAD, rows, "{}: A {}, B {}, B / A, adjusted {}, noise floor {}: {}".format)
        for record in self.cells:
            say(console, *(f"{record.cell.cell_id}: {sentence}." for sentence in (*record.broken, *record.void)))
        say(console, described_conditions(self.conditions))


def _row(record: CellRecord) -> tuple[str, str, str, str, str]:
    found = record.compared
    if found is None:
        return ("-", "-", "-", "-", "no throughput")
    ratio, floor = found.ratio, found.floor
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
    shown_floor = "-" if floor is None else f"{floor:.1%}"
    verdict = f"{found.verdict}, {found.why}"
    return f"{found.a_rate:,.1f}", f"{found.b_rate:,.1f}", f"{ratio.value:.3f}{interval}", shown_floor, verdict


def measure_ab(a: Build, b: Build, cells: tuple[Cell, ...], sizes: AbSizes, display: Display) -> AbResults:
    """Measure every cell with both builds. Raises SegmentedError if a run ends without a record."""
    load = round(os.getloadavg()[0], 2)
    with ExitStack() as stack:
        servers = stack.enter_context(SessionServers(None, None))
        planned = [_planned(cell, sizes) for cell in cells]
        needed = [one.cell.buyers for one in planned if one.needs_database]
        described = servers.prepare(database_connections=max(needed) if needed else None)
        loaders = {
            name: stack.enter_context(closing(MeasuringProcess(MODULE, build.environment)))
            for name, build in zip(BUILD_NAMES, (a, b), strict=True)
        }
        records = []
        for number, one in enumerate(planned):
            with display.strategy(one.cell.cell_id) as progress:
                measured = _Cell(one, sizes, servers, loaders, progress, random.Random(f"ab {number}"))
                records.append(measured.record(cells=len(cells)))
        conditions = {
            **machine_conditions({described["redis"]["name"]: described["redis"]["version"]}),
            "load_before": load,
            "placement": servers.placement,
        }
    return AbResults(a.said, b.said, tuple(records), conditions)


def _planned(cell: Cell, sizes: AbSizes) -> PlannedCell:
    return PlannedCell(cell=cell, sweeps=(NAME,), seconds=sizes.seconds, warm_up=WARM_UP_SHARE * sizes.seconds)


class _Cell:
    def __init__(
        self,
        planned: PlannedCell,
        sizes: AbSizes,
        servers: SessionServers,
        loaders: dict[Literal["A", "B"], MeasuringProcess],
        progress: Progress,
        chance: random.Random,
    ) -> None:
        self._planned = planned
        self._sizes = sizes
        self._servers = servers
        self._loaders = loaders
        self._progress = progress
        self._chance = chance
        self._paces: dict[Literal["A", "B"], list[float]] = {name: [] for name in BUILD_NAMES}
        self._void: list[str] = []
        self._broken: list[str] = []

    def record(self, *, cells: int) -> CellRecord:
        self._progress("calibration", 0, 1)
        self._rates = {name: float(self._run(name, stock=None, seed=0)["orders_per_s"]) for name in BUILD_NAMES}
        found: list[Round] = []
        for number in range(self._sizes.rounds):
            self._progress("rounds", number, self._sizes.rounds)
            if (one := self._round(number)) is not None:
                found.append(one)
        compared = compare(found, cells=cells) if found and not self._broken else None
        return CellRecord(self._planned.cell, tuple(found), compared, tuple(self._void), tuple(self._broken))

    def _round(self, number: int) -> Round | None:
        """Run a round; return nothing if one of its runs has no rate."""
        first, second = self._chance.choice([BUILD_NAMES, BUILD_NAMES[::-1]])
        runs = [self._observed(name, number) for name in (first, second, second, first)]
        one, two, three, four = runs
        if one is None or two is None or three is None or four is None:
            return None
        return one, two, three, four

    def _observed(self, name: Literal["A", "B"], number: int) -> Observed | None:
        rate = sizing.rate_to_expect(self._rates[name], self._paces[name])
        stock = max(sizing.STOCK_MIN, ceil(rate * self._planned.seconds)) * self._planned.cell.quantity
        speed = probed_speed()
        stolen, at = _stolen(), time.monotonic()
        run = Run.model_validate(self._run(name, stock=stock, seed=number))
        steal = (_stolen() - stolen) / ((time.monotonic() - at) * machine_core_count())
        self._broken += [f"{name} broke a promise in round {number + 1}: {what}" for what in broken_promises(run)]
        self._paces[name] += [run.pace] if run.pace else []
        if run.orders_per_s is None:
            self._void.append(f"round {number + 1} is left out, since a run of {name} is void: {'; '.join(run.void)}")
            return None
        return Observed(name, run.orders_per_s, speed, max(0.0, steal))

    def _run(self, name: Literal["A", "B"], *, stock: int | None, seed: int) -> dict[str, Any]:
        """Run the cell on a fresh server; without a stock, only to learn its rate."""
        planned, is_calibration = self._planned, stock is None
        with self._servers.for_run(planned, planned.cell) as run_servers:
            assignment = RunAssignment(
                cell=planned.cell,
                is_calibration=is_calibration,
                arm=name,
                sweeps=planned.sweeps,
                seed=seed,
                url=run_servers.url,
                meter_url=run_servers.meter_url,
                database=run_servers.database,
                stock=CALIBRATION_STOCK if stock is None else stock,
                seconds=planned.seconds,
                warm_up=planned.warm_up,
                cores=self._servers.generator_cores,
            )
            task = MeasuringTask(
                assignment.model_dump_json(), f"{planned.cell.cell_id} of {name}", assignment.seconds_at_most
            )
            found = self._loaders[name].run(task, _nobody)
        if is_calibration and not found["orders_per_s"]:
            message = f"{planned.cell.cell_id}: {name} sold nothing in {planned.seconds:g} s"
            raise SegmentedError(message)
        return found


def probed_speed() -> float:
    """Return fixed loops per second: how fast this machine runs Python right now."""
    began = time.perf_counter()
    total = 0
    for number in range(PROBE_LOOPS):
        total += number
    return 1 / (time.perf_counter() - began)


def _stolen() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _nobody(_: str, __: int, ___: int) -> None:
    pass
