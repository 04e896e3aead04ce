"""What the tests cost, for `make test-costs`: CPU seconds here and in child processes, and time slept, file by file.

The CPU of a child counts where it was waited for: a server that serves a whole run counts at the run's end.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from xdist.workermanage import WorkerController

FILES_SHOWN: Final = 40
PROPERTY: Final = "costs"

_slept = 0.0
_really_sleep = time.sleep


def _sleep(seconds: float) -> None:
    global _slept  # noqa: PLW0603  # one number a process
    _slept += seconds
    _really_sleep(seconds)


@dataclass(slots=True)
class Cost:
    """Seconds; and how many tests, child processes."""

    wall: float = 0.0
    cpu: float = 0.0
    children_cpu: float = 0.0
    slept: float = 0.0
    children: int = 0
    tests: int = 0

    def add(self, other: Cost) -> None:
        self.wall += other.wall
        self.cpu += other.cpu
        self.children_cpu += other.children_cpu
        self.slept += other.slept
        self.children += other.children
        self.tests += other.tests


_started = 0


def count_children() -> None:
    """Count the processes that this one starts, however it does."""

    def one_more(event: str, _: tuple[Any, ...]) -> None:
        global _started  # noqa: PLW0603  # one number a process
        if event in {"subprocess.Popen", "os.fork", "os.posix_spawn"}:
            _started += 1

    import sys  # noqa: PLC0415  # a hook can never be taken away again: only in a run that measures

    sys.addaudithook(one_more)


def now() -> Cost:
    """Return what this process has cost so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = os.times()
    cpu = own.user + own.system
    return Cost(time.monotonic(), cpu, children.ru_utime + children.ru_stime, _slept, _started, 0)


def since(before: Cost) -> Cost:
    """Return what one test has cost."""
    after = now()
    return Cost(
        *(after_one - before_one for after_one, before_one in zip(astuple(after)[:5], astuple(before)[:5], strict=True)),
        tests=1,
    )


def pytest_configure() -> None:
    """Begin to count."""
    time.sleep = _sleep
    count_children()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with its fixtures; the teardown's report takes the figures along."""
    before = now()
    item.user_properties.append((PROPERTY, before))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Put the figures into the last report of a test."""
    report = yield
    before = dict(item.user_properties)[PROPERTY]
    report.user_properties = [(PROPERTY, astuple(since(before)))] if call.when == "teardown" else []
    return report


class Sums:
    """The sums, in the process that prints them."""

    def __init__(self) -> None:
        self.files: defaultdict[str, Cost] = defaultdict(Cost)
        self.begun = time.monotonic()
        self.workers_cpu = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up."""
        for name, figures in report.user_properties:
            if name == PROPERTY:
                self.files[report.nodeid.partition("::")[0]].add(Cost(*figures))  # type: ignore[misc]  # of astuple

    def pytest_testnodedown(self, node: WorkerController) -> None:
        """Take a worker's sum: also what it imported, collected and waited for at its end."""
        self.workers_cpu += node.workeroutput.get(PROPERTY, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that cost the most, and every ring."""
        write = terminalreporter.write_line
        rings: defaultdict[str, Cost] = defaultdict(Cost)
        for file, cost in self.files.items():
            rings[file.split("/")[1]].add(cost)
        for title, table, count in (("files", self.files, FILES_SHOWN), ("rings", rings, FILES_SHOWN)):
            write(f"\n{title:64} tests     CPU s  children's CPU s  children  slept s  wall s")
            ordered = sorted(table.items(), key=lambda found: -(found[1].cpu + found[1].children_cpu))
            for name, cost in ordered[:count]:
                write(
                    f"{name:64} {cost.tests:5}  {cost.cpu:8.1f}  {cost.children_cpu:16.1f}  {cost.children:8}"
                    f"  {cost.slept:7.1f}  {cost.wall:6.1f}"
                )
        whole = self.workers_cpu or sum_of(now)
        write(f"\n{whole:.0f} CPU seconds in all, collecting and servers included; {time.monotonic() - self.begun:.0f} s")


def sum_of(measured: Callable[[], Cost]) -> float:
    """CPU seconds of a process and its children."""
    cost = measured()
    return cost.cpu + cost.children_cpu


def pytest_sessionstart(session: pytest.Session) -> None:
    """Only who prints adds up."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Sums(), "segmented-test-costs")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the sum of a worker, when its servers have ended."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[PROPERTY] = sum_of(now)
