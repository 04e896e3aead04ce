"""`segmented bench locust`: one lock against K segments, with the same Locust users.

Each sale is a Locust process of its own: `bench/scenarios/capacity.py`, as it can also be run by hand. All sales use
the same servers. A round has each number of segments once, in random order, so that a slow moment of the machine meets
all of them alike.

The bound of K segments is min(K, buyers) divided by the hold of a lone buyer with one lock, which is measured before
the rounds and therefore without any contention: the configured hold and the steps around it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import bench.scenarios
from bench import sizing
from bench.analysis.intervals import paired_ratio, rate_of
from bench.children import kill_group
from bench.conditions import conditions, running
from bench.load.coordinator import DATABASE, URL
from bench.load.results import ONE_LOCK
from bench.locks.figures import Figure, LockResults
from bench.sections import Kind  # noqa: TC001  # as below
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.analysis.intervals import Estimate
    from bench.conditions import Servers
    from bench.display import Display

NAME: Final = "locust"
SCENARIO: Final = Path(bench.scenarios.__file__).with_name("capacity.py")
BUYERS: Final = 64
HOLD_MS: Final = 20.0
SECTIONS: Final[tuple[Kind, ...]] = ("sleep", "commit")
SEGMENT_COUNTS: Final = (1, 4, 20, 64)
STARTING_SECONDS: Final = 30.0
MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 6
    seconds: float = 6.0
    """Measured seconds of a sale."""
    warm_up: float = 1.0
    lone_seconds: float = 3.0
    sections: tuple[Kind, ...] = SECTIONS

    @classmethod
    def for_options(cls, *, quick: bool, rounds: int | None) -> Sizes:
        """Return the sizes for command-line options."""
        sizes = cls(rounds=2, seconds=1.5, warm_up=0.5, lone_seconds=2.0, sections=("sleep",)) if quick else cls()
        return replace(sizes, rounds=rounds or sizes.rounds)


@dataclass(frozen=True, slots=True)
class Step:
    """A number of segments, and the work under their locks."""

    segments: int
    section: Kind

    @property
    def name(self) -> str:
        """Name in the figures."""
        locks = "one lock" if self.segments == 1 else f"{self.segments} segments"
        return f"{locks}, hold {HOLD_MS:g} ms{' and a commit' if self.section == 'commit' else ''}"

    @property
    def options(self) -> list[str]:
        """The options of the locustfile."""
        strategy = ONE_LOCK if self.segments == 1 else "segment-locks"
        words = ["--strategy", strategy, "--section", self.section, "--hold", f"{HOLD_MS:g}"]
        return [*words, *(() if self.segments == 1 else ("--segments", str(self.segments)))]


def measure_locust(url: str | None, database: str | None, display: Display, sizes: Sizes | None = None) -> LockResults:
    """Measure on embedded servers, unless others are named. Raises SegmentedError if a sale could not be run."""
    sizes = sizes or Sizes()
    steps = [Step(segments, section) for section in sizes.sections for segments in SEGMENT_COUNTS]
    shuffle = random.Random(1).shuffle
    with ExitStack() as stack:
        servers = stack.enter_context(running(url, database, buyers=2 * BUYERS))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-locust-")))
        progress = stack.enter_context(display.strategy(NAME))
        found = conditions(servers)
        progress("a lone buyer", 0, 1)
        lone = {
            section: run_sale(Step(1, section), servers, folder, buyers=1, seconds=sizes.lone_seconds, warm_up=0.0)
            for section in sizes.sections
        }
        sales: dict[Step, list[dict[str, Any]]] = {step: [] for step in steps}
        for number in range(sizes.rounds):
            order = list(steps)
            shuffle(order)
            for index, step in enumerate(order):
                progress("sales", number * len(steps) + index, sizes.rounds * len(steps))
                sale = run_sale(step, servers, folder, buyers=BUYERS, seconds=sizes.seconds, warm_up=sizes.warm_up)
                sales[step].append(sale)
    holds = {section: sale["times_ms"]["hold"]["mean"] / 1_000 for section, sale in lone.items()}
    return LockResults(figures_of(sales, holds), found, remarks_of(sales), benchmark=NAME)


def run_sale(
    step: Step, servers: Servers, folder: Path, *, buyers: int, seconds: float, warm_up: float
) -> dict[str, Any]:
    """Run one sale under Locust, and return its results. Raises SegmentedError if there are none."""
    file = folder / "sale.json"
    file.unlink(missing_ok=True)
    words = ["--headless", "--only-summary", "-u", str(buyers), "-r", str(buyers), *step.options]
    words += ["--seconds", f"{seconds:g}", "--warm-up", f"{warm_up:g}", "--sale-json", str(file)]
    limit = warm_up + seconds + sizing.drain(buyers, HOLD_MS / 1_000) + STARTING_SECONDS
    given = {**os.environ, URL: servers.url, DATABASE: servers.database}
    with (folder / "said").open("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(  # noqa: S603  # our own interpreter and file
            [sys.executable, "-m", "locust", "-f", str(SCENARIO), *words],
            env=given | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C reaches only this process, which ends the other
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired as error:
            message = f"Locust did not end its sale with {step.name} within {limit:g} s"
            raise SegmentedError(message) from error
        finally:
            if process.poll() is None:
                kill_group(process)
                process.wait()
        said.seek(0)
        last = next((line.strip() for line in reversed(said.readlines()) if line.strip()), "it said nothing")
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"Locust ended its sale with {step.name} with code {process.returncode}: {last}"
        raise SegmentedError(message) from error
    return found


def figures_of(sales: Mapping[Step, list[dict[str, Any]]], holds: Mapping[Kind, float]) -> tuple[Figure, ...]:
    """Compare each number of segments with one lock, round by round, and with its bound. Void sales do not count."""
    rates = {step: _kept(found, "orders_per_s") for step, found in sales.items()}
    broken = sum(bool(sale["broken"]) for found in sales.values() for sale in found)
    figures = [Figure("sales whose books did not add up", broken, "", at_most=0, is_promise=True)]
    for step, kept in rates.items():
        ratio = paired_ratio(kept, rates[replace(step, segments=1)])
        if step.segments > 1 and ratio is not None:
            figures.append(_figure(f"{step.name} / one lock", ratio, ""))
    for step, kept in rates.items():
        if kept:
            bound = sizing.bound_per_s(min(step.segments, BUYERS), holds[step.section])
            shares = rate_of([rate / bound for rate in kept.values()])
            figures.append(_figure(f"{step.name} / its bound of {bound:,.0f}/s", shares, ""))
    figures += [_figure(step.name, rate_of(list(kept.values())), "/s") for step, kept in rates.items() if kept]
    for step, found in sales.items():
        for name, whose in (("generator", "the generator"), ("redis", "Redis"), ("database", "PostgreSQL")):
            costs = [_cost(sale, name) for sale in found if sale["cpu_s"][name]]
            if costs and (name != "database" or step.section == "commit"):
                figures.append(_figure(f"{step.name}: CPU of {whose}", rate_of(costs), "us an order"))
    figures += [
        Figure(f"a lone buyer's hold, {HOLD_MS:g} ms{' and a commit' if section == 'commit' else ''}", hold * 1e3, "ms")
        for section, hold in holds.items()
    ]
    return tuple(figures)


def remarks_of(sales: Mapping[Step, list[dict[str, Any]]]) -> tuple[str, ...]:
    """Name broken and void sales, each with its reason."""
    return tuple(
        f"{word}: {step.name}, round {number}: {reason}."
        for step, found in sales.items()
        for number, sale in enumerate(found, start=1)
        for word, reason in _reasons(sale)
    )


def _reasons(sale: dict[str, Any]) -> Iterable[tuple[str, str]]:
    yield from (("Broken", reason) for reason in sale["broken"])
    yield from (("Void", reason) for reason in sale["void"])


def _kept(found: list[dict[str, Any]], name: str) -> dict[int, float]:
    return {number: sale[name] for number, sale in enumerate(found) if sale[name]}


def _cost(sale: dict[str, Any], name: str) -> float:
    counts = sale["counts"]
    orders = counts["sold"] + counts["sold_out"] + counts["failed"]
    return float(sale["cpu_s"][name] / max(1, orders) * MICROSECONDS)


def _figure(name: str, found: Estimate, unit: str) -> Figure:
    return Figure(name, found.value, unit, found.low, found.high, detail={"sales": found.n})
