"""`segmented bench locust`: one lock against K segments, with the same Locust users.

Each sale is a Locust process of its own: `bench/scenarios/capacity.py`, as it can also be run by hand. All sales use
the same servers. A round has each number of segments once, in random order, so that a slow moment of the machine meets
all of them alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import bench.scenarios
from bench import sizing
from bench.children import kill_group
from bench.conditions import conditions, running
from bench.figures import SEGMENT_COUNTS, Arm, Figure, FigureResults, arm_figures, cost_figures
from bench.load.plan import DATABASE, URL
from bench.load.results import ONE_LOCK
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.conditions import Servers
    from bench.results import Display

NAME: Final = "locust"
SCENARIO: Final = Path(bench.scenarios.__file__).with_name("capacity.py")
BUYERS: Final = 64
HOLD_MS: Final = 20.0
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
    commits: tuple[bool, ...] = (False, True)
    """Whether orders commit under their locks: without, and with."""


def measure_locust(
    url: str | None, database: str | None, display: Display, sizes: Sizes | None = None
) -> FigureResults:
    """Measure on embedded servers, unless others are named. Raises SegmentedError if a sale could not be run."""
    sizes = sizes or Sizes()
    arms = [Arm(segments, HOLD_MS, commits) for commits in sizes.commits for segments in SEGMENT_COUNTS]
    with ExitStack() as stack:
        servers = stack.enter_context(running(url, database, buyers=2 * BUYERS))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-locust-")))
        progress = stack.enter_context(display.strategy(NAME))
        found = conditions(servers)
        progress("a lone buyer", 0, 1)
        lone = {
            arm: run_sale(arm, servers, folder, buyers=1, seconds=sizes.lone_seconds, warm_up=0.0)["times_ms"]["hold"]
            for arm in dict.fromkeys(arm.one_lock for arm in arms)
        }
        sales: dict[Arm, list[dict[str, Any]]] = {arm: [] for arm in arms}
        for number, (_, arm) in enumerate(sizing.shuffled_rounds(arms, sizes.rounds)):
            progress("sales", number, sizes.rounds * len(arms))
            sale = run_sale(arm, servers, folder, buyers=BUYERS, seconds=sizes.seconds, warm_up=sizes.warm_up)
            sales[arm].append(sale)
    holds = {arm: times["mean"] / 1_000 for arm, times in lone.items()}
    return FigureResults(NAME, figures_of(sales, holds), found, remarks_of(sales))


def run_sale(
    arm: Arm, servers: Servers, folder: Path, *, buyers: int, seconds: float, warm_up: float
) -> dict[str, Any]:
    """Run one sale under Locust, and return its results. Raises SegmentedError if there are none."""
    file = folder / "sale.json"
    file.unlink(missing_ok=True)
    words = ["--headless", "--only-summary", "-u", str(buyers), "-r", str(buyers), "--hold", f"{arm.hold_ms:g}"]
    words += ["--strategy", ONE_LOCK] if arm.segments == 1 else ["--segments", str(arm.segments)]
    words += ["--section", "commit" if arm.commits else "sleep"]
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
            raise SegmentedError(f"Locust did not end its sale with {arm.name} within {limit:g} s") from error
        finally:
            if process.poll() is None:
                kill_group(process)
                process.wait()
        said.seek(0)
        last = next((line.strip() for line in reversed(said.readlines()) if line.strip()), "it said nothing")
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SegmentedError(f"Locust ended its sale with {arm.name} with code {process.returncode}: {last}") from error
    return found


def figures_of(sales: Mapping[Arm, list[dict[str, Any]]], lone: Mapping[Arm, float]) -> tuple[Figure, ...]:
    """Compare the arms; `lone` has the hold of a lone buyer, by arm with one lock. Void sales do not count."""
    broken = sum(bool(sale["broken"]) for found in sales.values() for sale in found)
    rates = {
        arm: {number: sale["orders_per_s"] for number, sale in enumerate(found) if sale["orders_per_s"]}
        for arm, found in sales.items()
    }
    figures = [
        Figure("sales whose books did not add up", broken, "", at_most=0, is_promise=True),
        *arm_figures(rates, lone, at_once=BUYERS),
    ]
    for name, whose in (("generator", "the generator"), ("redis", "Redis"), ("database", "PostgreSQL")):
        costs = {
            arm: [_cost(sale, name) for sale in found if sale["cpu_s"][name]]
            for arm, found in sales.items()
            if name != "database" or arm.commits
        }
        figures += cost_figures(costs, whose)
    return tuple(figures)


def remarks_of(sales: Mapping[Arm, list[dict[str, Any]]]) -> tuple[str, ...]:
    """Name broken and void sales, each with its reason."""
    return tuple(
        f"{word}: {arm.name}, round {number}: {reason}."
        for arm, found in sales.items()
        for number, sale in enumerate(found, start=1)
        for word in ("Broken", "Void")
        for reason in sale[word.lower()]
    )


def _cost(sale: dict[str, Any], name: str) -> float:
    counts = sale["counts"]
    orders = counts["sold"] + counts["sold_out"] + counts["failed"]
    return float(sale["cpu_s"][name] / max(1, orders) * MICROSECONDS)
