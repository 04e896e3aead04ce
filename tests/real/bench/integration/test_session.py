"""Sessions on real servers, in small: what is finished is kept, whatever ends them, and they go on from there."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import psutil
import pytest
from rich.console import Console

from bench.engine.cell import Cell, RunAssignment
from bench.engine.record import Run, read_results
from bench.engine.session import MODULE, MeasuringProcess, SessionOptions, SessionView, run_session
from segmented.errors import InvalidInput
from segmented.models import Opened
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.bench.plans import ONE_CELL, small_plan, written
from tests.support.command_line import started
from tests.support.processes import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.engine.plan import Grid, Turn
    from segmented.servers import ValkeyServer

    Progress = Callable[[str, int, int], None]

SECONDS: Final = 200.0


class RecordingDisplay(SessionView):
    """A display that records what it is shown, and may act at a phase of a run."""

    def __init__(self, at: int = 0, act: Callable[[], None] | None = None) -> None:
        super().__init__(Console(quiet=True))
        self.at, self.act = at, act
        self.planned: list[str] = []
        self.left_after: list[float] = []
        self.sentences: list[str] = []
        self.left: list[float | None] = []

    def begun(self, grid: Grid, *, done: int, left: float) -> None:
        assert left > 0 or done == grid.runs_planned

    @contextmanager
    def run(self, turn: Turn, left: float | None) -> Iterator[Progress]:
        self.planned.append(turn.planned.key)
        self.left.append(left)
        yield self.progress

    def progress(self, _: str, __: int, ___: int) -> None:
        if self.act is not None and len(self.planned) == self.at:
            act, self.act = self.act, None
            act()

    def finished(self, turn: Turn, run: Run, left: float) -> None:  # noqa: ARG002  # only the time counts
        self.left_after.append(left)

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def of_others() -> frozenset[psutil.Process]:
    """Servers that other tests of this process share."""
    return frozenset(servers_of(os.getpid()))


def generators() -> list[psutil.Process]:
    """Return the generators that still run. One that has ended may wait for its parent: it has no words left."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if MODULE in words_of(one)]


def servers_of(pid: int) -> list[psutil.Process]:
    return [
        one for one in psutil.Process(pid).children(recursive=True) if "valkey-server" in "".join(words_of(one)[:1])
    ]


def test_an_interrupted_session_goes_on_and_repeats_nothing(
    tmp_path: Path, of_others: frozenset[psutil.Process]
) -> None:
    loaded, folder = small_plan(tmp_path, ONE_CELL), tmp_path / "results"
    options = SessionOptions(loaded=loaded, folder=folder, only=("k",))
    with pytest.raises(KeyboardInterrupt):
        run_session(options, RecordingDisplay(at=2, act=interrupt))
    found = read_results(folder / "results.jsonl")
    assert found.end is not None
    assert (found.end.runs_planned, found.end.runs_done, found.end.stopped_by) == (2, 1, "interrupted")
    (first,) = found.runs
    rates = json.loads((folder / "calibrations.json").read_text(encoding="utf-8"))
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"schema":"segmented-bench/1","kind":"ru')  # a kill in the middle of a line

    display = RecordingDisplay()
    assert run_session(options, display) == folder / "results.jsonl"
    found = read_results(folder / "results.jsonl")
    assert found.end is not None
    assert (found.end.runs_done, found.end.stopped_by) == (2, None)
    assert found.runs[0] == first
    assert [(run.run, run.round, run.sweeps) for run in found.runs] == [(1, 1, ("k",)), (2, 2, ("k",))]
    assert [one.checker.oversold + one.checker.refused_wrongly for one in found.runs] == [0, 0]
    assert (len(display.planned), display.left_after) == (1, [0])
    assert rates == json.loads((folder / "calibrations.json").read_text(encoding="utf-8"))
    assert list(rates) == [first.cell_id]
    assert sorted(one.name for one in (folder / "histories").iterdir()) == ["0001.jsonl.zst", "0002.jsonl.zst"]
    assert (folder / "plan.toml").read_text(encoding="utf-8") == loaded.text
    said = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert said == found.session.environment
    assert said["servers"]["redis"]["config"]["dir"] == "(a path)"
    assert str(tmp_path) not in json.dumps(said)
    assert frozenset(servers_of(os.getpid())) == of_others
    assert generators() == []

    again = RecordingDisplay()
    run_session(options, again)
    assert again.planned == []
    other = SessionOptions(loaded=small_plan(tmp_path, ("seed = 7", "seed = 8")), folder=folder, only=("k",))
    with pytest.raises(InvalidInput, match=r"has runs with another plan \(.*name another folder"):
        run_session(other, RecordingDisplay())


def test_a_redis_that_dies_ends_the_session_with_a_sentence(
    tmp_path: Path, of_others: frozenset[psutil.Process]
) -> None:
    def kill_redis() -> None:
        (server,) = frozenset(servers_of(os.getpid())) - of_others
        os.kill(server.pid, signal.SIGKILL)

    loaded, folder = small_plan(tmp_path, ("calibration = 0.4", "calibration = 60.0")), tmp_path / "results"
    with pytest.raises(InvalidInput) as caught:
        run_session(SessionOptions(loaded=loaded, folder=folder, only=("k",)), RecordingDisplay(at=1, act=kill_redis))
    said = str(caught.value)
    assert said.startswith("a server died in the middle of segment-locks K=")
    assert said.endswith(f"; no run was finished; {folder} can be used again")
    found = read_results(folder / "results.jsonl")
    assert found.runs == ()
    assert found.end is not None
    assert found.end.stopped_by == said.partition(";")[0]


def twenty_units(cell: Cell, url: str) -> Run:
    assignment = RunAssignment(cell=cell, url=url, meter_url=url, database=None, stock=20, seconds=300.0, warm_up=0.02)
    with closing(MeasuringProcess(MODULE)) as child:
        found = child.run(assignment, lambda *_: None, seconds=SECONDS)
    return Run.model_validate(found)


def test_a_pool_that_an_interrupted_run_left_is_in_nobodys_way(valkey: ValkeyServer) -> None:
    cell = Cell(strategy="segment-locks", section="none", segments=2, buyers=2, stock=20)
    with RedisStore.from_url(valkey.url) as store:
        assert isinstance(Pool(store, "bench").open(stock=5, segments=1), Opened)
        left = store.client.dbsize()
        assert twenty_units(cell, valkey.url).checker.sold == 20
        assert store.client.dbsize() == left


def test_a_stopped_command_says_what_is_kept_and_leaves_no_server(tmp_path: Path) -> None:
    plan, folder = written(tmp_path, ("rounds = 2", "rounds = 50")), tmp_path / "results"
    words = ("bench", "--plan", str(plan), "--report", str(folder), "--sweep", "k")
    assert stopped(words, "run 2 of 100", signal.SIGTERM) == (143, f"segmented: interrupted: {kept(folder)}\n")
    found = read_results(folder / "results.jsonl")
    assert 2 <= len(found.runs) < 100
    assert found.end is not None
    assert found.end.stopped_by == "stopped by SIGTERM"


def kept(folder: Path) -> str:
    runs = len(read_results(folder / "results.jsonl").runs)
    return f"the {runs} finished runs are kept in {folder}; the same command with --report {folder} goes on"


def stopped(words: Sequence[str], begins: str, number: signal.Signals) -> tuple[int, str]:
    """Send a signal to the command once a line of its output begins so; return its exit code and its errors."""
    process = started(*words, url=None)
    assert process.stdout is not None
    try:
        while not (said := process.stdout.readline()).startswith(begins):
            assert said
        servers = servers_of(process.pid)
        process.send_signal(number)
        _, wrong = process.communicate(timeout=SECONDS)
        assert psutil.wait_procs(servers, timeout=SECONDS)[1] == []
    finally:
        process.kill()
        process.wait()
    return process.returncode, wrong
