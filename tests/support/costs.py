"""What the tests cost, for `make test-costs`: CPU seconds here and in child processes, and time slept, file by file.

The CPU of a child counts where it was waited for: a server of a whole run counts at the run's end.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, SupportsIndex

import pytest

from tests.support.paths import ROOT
from tests.support.rings import ring_of

FILES_SHOWN: Final = 40
PROPERTY: Final = "costs"
STARTS: Final = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
"""What Python tells of a process that starts another."""


@dataclass(slots=True)
class Cost:
    """Seconds, and counts; of tests added up, or of a process up to a moment."""

    wall: float = 0.0
    cpu: float = 0.0
    children_cpu: float = 0.0
    slept: float = 0.0
    children: int = 0
    tests: int = 0

    def plus(self, other: Cost, sign: int = 1) -> Cost:
        """Add, or with -1 take away."""
        return Cost(*(one + sign * two for one, two in zip(astuple(self), astuple(other), strict=True)))


class Meter:
    """Measures one process, from when it is made."""

    def __init__(self) -> None:
        self._cost = Cost()
        self._sleep = time.sleep
        time.sleep = self._slept
        sys.addaudithook(self._started)  # for good: only in a run that measures

    def _slept(self, seconds: float | SupportsIndex) -> None:
        self._cost.slept += float(seconds)
        self._sleep(seconds)

    def _started(self, event: str, _: tuple[Any, ...]) -> None:
        self._cost.children += event in STARTS

    def now(self) -> Cost:
        """Return what the process has cost so far."""
        own, children = os.times(), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, children_cpu = own.user + own.system, children.ru_utime + children.ru_stime
        return self._cost.plus(Cost(time.monotonic(), cpu, children_cpu))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note where a test begins."""
        item.stash[BEFORE] = self.now()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the figures of a test, with its fixtures, into its last report."""
        report = yield
        if call.when == "teardown":
            cost = self.now().plus(item.stash[BEFORE], -1)
            cost.tests = 1
            report.user_properties.append((PROPERTY, astuple(cost)))
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the sum of one worker of several, when its servers have ended."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[PROPERTY] = astuple(self.now())


BEFORE: Final = pytest.StashKey[Cost]()


class Sums:
    """The sums, in the process that prints them."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._begun = time.monotonic()
        self._files: defaultdict[str, Cost] = defaultdict(Cost)
        self._workers = Cost()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up."""
        file = report.nodeid.partition("::")[0]
        for name, figures in report.user_properties:
            if name == PROPERTY and isinstance(figures, tuple | list):
                self._files[file] = self._files[file].plus(Cost(*figures))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401  # a controller of xdist, untyped
        """Take a worker's sum: also what it imported, collected and waited for at its end."""
        self._workers = self._workers.plus(Cost(*node.workeroutput.get(PROPERTY, ())))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that cost the most, and every ring."""
        rings: defaultdict[str, Cost] = defaultdict(Cost)
        for file, cost in self._files.items():
            ring = ring_of(ROOT / file)
            rings[ring] = rings[ring].plus(cost)
        for line in (*table("file", self._files), *table("ring", rings)):
            terminalreporter.write_line(line)
        here, seconds = self._meter.now(), time.monotonic() - self._begun
        whole = here.cpu + (self._workers.cpu + self._workers.children_cpu or here.children_cpu)
        terminalreporter.write_line(f"\n{whole:.0f} CPU seconds in {seconds:.0f} s, with collecting and servers")


def table(title: str, costs: Mapping[str, Cost]) -> list[str]:
    """Return lines, of what costs the most first."""
    lines = [f"\n{title:64} tests    CPU s  children's CPU s  children  slept s  wall s"]
    for name, cost in sorted(costs.items(), key=lambda found: -(found[1].cpu + found[1].children_cpu))[:FILES_SHOWN]:
        lines.append(
            f"{name:64} {cost.tests:5} {cost.cpu:8.1f} {cost.children_cpu:17.1f} {cost.children:9}"
            f" {cost.slept:8.1f} {cost.wall:7.1f}"
        )
    return lines


def pytest_configure(config: pytest.Config) -> None:
    """Measure in every process, and add up in the one that prints."""
    meter = Meter()
    config.pluginmanager.register(meter, "segmented-test-costs")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sums(meter), "segmented-test-sums")
