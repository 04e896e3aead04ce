"""Measures two builds in rounds of A B B A or B A A B: the runs of a round follow each other within seconds.

A build is `segmented` of a commit, of a folder, or as it is here, each copied to a folder. The bench itself is the one
here for both, so only the library differs. A measuring process finds its build by PYTHONPATH, before any other.

The figure of a round is the geometric mean of its B runs by that of its A runs. In both orders the two builds have the
same mean place, so a steady drift of the machine cancels. The noise floor of a cell is the far end of the interval of
the same figure for the later runs of each build by its earlier ones, one build set against the other, in which a drift
cancels too: a difference within it is no difference. Both intervals are those of `bench.analysis.intervals`.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final, Literal

import segmented
from bench import sizing
from bench.analysis.compare import verdict_of
from bench.analysis.intervals import Estimate, paired_ratio
from bench.analysis.measured import broken_promises
from bench.conditions import CHECKOUT, git, machine_conditions
from bench.engine.cell import CALIBRATION_STOCK, Cell, RunAssignment
from bench.engine.plan import PlannedCell
from bench.engine.record import Run
from bench.engine.servers import SessionServers
from bench.engine.session import MeasuringProcess
from bench.results import described_conditions, say, show_rows
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.analysis.compare import Verdict
    from bench.results import Display, Progress

PACKAGE: Final = "segmented"
IMPORT_SECONDS: Final = 60.0
GIT_SECONDS: Final = 60.0
MODULE: Final = "bench.engine.run_cell"
HERE: Final = "the code here"
_WHERE: Final = f"import segmented, {MODULE}; print(segmented.__file__)"


@dataclass(frozen=True, slots=True)
class Build:
    """A copy of the library."""

    said: str
    """Description, for messages and results."""
    folder: Path
    """The folder that has the package."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this build."""
        others = [path for path in sys.path if path and Path(path).is_dir()]
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), *others])}


def build_here(folder: Path) -> Build:
    """Copy the library that runs here, so that edits during the measurement do not reach it."""
    return _checked(Build(HERE, _copied(Path(segmented.__file__).parent, folder, HERE)))


def build_of(spec: str, folder: Path) -> Build:
    """Return the library of a commit, or of a folder that has `segmented`. Raises InvalidInput if it cannot be used."""
    is_folder = False
    with suppress(OSError, ValueError):  # too long for a name, or with a NUL
        is_folder = (Path(spec) / PACKAGE / "__init__.py").is_file()
    if is_folder:
        said = f"the folder {spec}"
        return _checked(Build(said, _copied(Path(spec) / PACKAGE, folder, said)))
    if not (CHECKOUT / ".git").exists():
        message = f"--against {spec}: neither a folder with {PACKAGE!r} in it nor, outside of a checkout, a commit"
        raise InvalidInput(message)
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{spec}^{{commit}}").decode().strip()
    if not commit:
        raise InvalidInput(f"--against {spec}: neither a commit of this checkout nor a folder with {PACKAGE!r} in it")
    packed = _git("archive", "--format=zip", commit, "--", PACKAGE)
    if not packed:
        raise InvalidInput(f"--against {spec}: the commit {commit[:12]} has no folder {PACKAGE!r}")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)
    return _checked(Build(f"commit {commit[:12]}", folder))


def _copied(package: Path, folder: Path, said: str) -> Path:
    """Copy the package's files into the folder, and return it. Raises InvalidInput for links and devices."""
    for path in package.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise InvalidInput(f"{said} cannot be measured: {path} is not a plain file")
    try:
        shutil.copytree(package, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    except (OSError, shutil.Error) as error:
        raise InvalidInput(f"{said} cannot be measured: its files cannot be copied: {error}") from error
    return folder


def _git(*words: str) -> bytes:
    """Run git in the checkout; return nothing if it fails."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        return git(*words, seconds=GIT_SECONDS)
    return b""


def _checked(build: Build) -> Build:
    """Import the build and this bench together in a fresh process. Raises InvalidInput."""
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter
            [sys.executable, "-P", "-c", _WHERE],
            env=build.environment,
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{build.said} cannot be measured: its import did not end within {IMPORT_SECONDS:g} s"
        raise InvalidInput(message) from error
    if done.returncode:
        last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        raise InvalidInput(f"{build.said} cannot be measured with this bench: {last}")
    found = Path(done.stdout.strip())
    if not found.is_relative_to(build.folder):
        raise InvalidInput(f"{build.said} cannot be measured: Python imports {found} instead of it")
    return build


# --- measuring them ---

NAME: Final = "ab"
CELLS: Final = (
    Cell(strategy="segment-locks", segments=16, section="sleep", hold_ms=20),
    Cell(strategy="segment-locks", segments=16, section="none"),
    Cell(strategy="lock-free", segments=16, section="none"),
)
"""The usual sale, the cost of our locks alone, and that of the scripts alone."""
ROUNDS: Final = 10
SECONDS: Final = 2.0
WARM_UP_SHARE: Final = 0.2
Name = Literal["A", "B"]
BUILD_NAMES: Final[tuple[Name, ...]] = ("A", "B")
HEAD: Final = ("cell", "A, orders/s", "B, orders/s", "B / A [95 %]", "noise floor", "verdict")


@dataclass(frozen=True, slots=True)
class AbSizes:
    """How much is measured."""

    rounds: int = ROUNDS
    seconds: float = SECONDS
    """Planned seconds of a run."""


@dataclass(frozen=True, slots=True)
class Round:
    """Orders per second of the runs of a round: of each build the earlier one, then the later one."""

    a: tuple[float, float]
    b: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """A cell: B beside A."""

    rounds: int
    a_rate: float
    b_rate: float
    """Geometric means, orders per second."""
    ratio: Estimate
    """B / A."""
    floor: float | None
    verdict: Verdict
    why: str


def compare(rounds: Sequence[Round], *, cells: int = 1) -> Compared:
    """Compare two builds; the intervals of all `cells` are 95 % together. Raises ValueError without a round."""
    ratio = _ratio([(one.b, one.a) for one in rounds], cells)
    floor = _ratio([((one.b[1], one.a[0]), (one.b[0], one.a[1])) for one in rounds], cells).deviation
    verdict, why = verdict_of(ratio, floor)
    a_rate, b_rate = (geometric_mean(rate for one in rounds for rate in getattr(one, name)) for name in ("a", "b"))
    return Compared(len(rounds), a_rate, b_rate, ratio, floor, verdict, why)


def _ratio(rounds: Sequence[tuple[tuple[float, float], tuple[float, float]]], cells: int) -> Estimate:
    above, below = ({number: geometric_mean(one[part]) for number, one in enumerate(rounds)} for part in (0, 1))
    found = paired_ratio(above, below, family=cells)
    if found is None:
        raise ValueError("there is no round to compare")
    return found


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
            "rounds": [asdict(one) for one in self.rounds],
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
        show_rows(console, HEAD, rows, "{}: A {}, B {}, B / A {}, noise floor {}: {}".format)
        for record in self.cells:
            say(console, *(f"{record.cell.cell_id}: {sentence}." for sentence in (*record.broken, *record.void)))
        say(console, described_conditions(self.conditions))


def _row(record: CellRecord) -> tuple[str, str, str, str, str]:
    found = record.compared
    if found is None:
        return ("-", "-", "-", "-", "no throughput")
    floor = "-" if found.floor is None else f"{found.floor:.1%}"
    return f"{found.a_rate:,.1f}", f"{found.b_rate:,.1f}", str(found.ratio), floor, f"{found.verdict}, {found.why}"


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


@dataclass(slots=True)
class _Cell:
    planned: PlannedCell
    sizes: AbSizes
    servers: SessionServers
    loaders: dict[Name, MeasuringProcess]
    progress: Progress
    chance: random.Random
    rates: dict[Name, float] = field(default_factory=dict)
    paces: dict[Name, list[float]] = field(default_factory=lambda: {name: [] for name in BUILD_NAMES})
    void: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def record(self, *, cells: int) -> CellRecord:
        self.progress("calibration", 0, 1)
        self.rates = {name: float(self._run(name, stock=None, seed=0)["orders_per_s"]) for name in BUILD_NAMES}
        found: list[Round] = []
        for number in range(self.sizes.rounds):
            self.progress("rounds", number, self.sizes.rounds)
            if (one := self._round(number)) is not None:
                found.append(one)
        compared = compare(found, cells=cells) if found and not self.broken else None
        return CellRecord(self.planned.cell, tuple(found), compared, tuple(self.void), tuple(self.broken))

    def _round(self, number: int) -> Round | None:
        """Run a round; return nothing if one of its runs has no rate."""
        first, second = self.chance.choice([BUILD_NAMES, BUILD_NAMES[::-1]])
        rates: dict[Name, list[float]] = {name: [] for name in BUILD_NAMES}
        for name in (first, second, second, first):
            rates[name] += self._rate(name, number)
        if any(len(found) != 2 for found in rates.values()):  # noqa: PLR2004  # runs of a build
            return None
        (a_first, a_second), (b_first, b_second) = rates["A"], rates["B"]
        return Round((a_first, a_second), (b_first, b_second))

    def _rate(self, name: Name, number: int) -> list[float]:
        """Run a build once; return its rate, or nothing for a void run."""
        rate = sizing.rate_to_expect(self.rates[name], self.paces[name])
        stock = max(sizing.STOCK_MIN, ceil(rate * self.planned.seconds)) * self.planned.cell.quantity
        run = Run.model_validate(self._run(name, stock=stock, seed=number))
        self.broken += [f"{name} broke a promise in round {number + 1}: {what}" for what in broken_promises(run)]
        self.paces[name] += [run.pace] if run.pace else []
        if run.orders_per_s is None:
            self.void.append(f"round {number + 1} is left out, since a run of {name} is void: {'; '.join(run.void)}")
            return []
        return [run.orders_per_s]

    def _run(self, name: Name, *, stock: int | None, seed: int) -> dict[str, Any]:
        """Run the cell on a fresh server; without a stock, only to learn its rate."""
        planned, is_calibration = self.planned, stock is None
        with self.servers.for_run(planned, planned.cell) as run_servers:
            assignment = RunAssignment(
                cell=planned.cell,
                is_calibration=is_calibration,
                arm=name,
                sweeps=planned.sweeps,
                seed=seed,
                **asdict(run_servers),
                stock=CALIBRATION_STOCK if stock is None else stock,
                seconds=planned.seconds,
                warm_up=planned.warm_up,
            )
            subject = f"{planned.cell.cell_id} of {name}"
            found = self.loaders[name].run(assignment, lambda *_: None, subject=subject)
        if is_calibration and not found["orders_per_s"]:
            raise SegmentedError(f"{planned.cell.cell_id}: {name} sold nothing in {planned.seconds:g} s")
        return found
