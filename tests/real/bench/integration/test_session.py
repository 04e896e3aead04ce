"""Sessions on real servers, in small: what is finished is kept, whatever ends them, and they go on from there."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing, contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from bench.children import MeasuringProcess, MeasuringTask
from bench.engine.cell import Cell, RunAssignment
from bench.engine.record import Run, read_results
from bench.engine.session import MODULE, SessionOptions, run_session
from bench.sizing import STOCK_MIN
from segmented.errors import InvalidInput
from segmented.models import Opened
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.bench.plans import LONG_SALES, ONE_CELL, small_plan, written
from tests.support.command_line import ran, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.engine.grid import Grid
    from bench.engine.schedule import Turn
    from segmented.servers import ValkeyServer

    Progress = Callable[[str, int, int], None]

SECONDS: Final = 200.0


class RecordingDisplay:
    """A display that records what it is shown, and may act at a phase of a run."""

    def __init__(self, at: int = 0, act: Callable[[], None] | None = None) -> None:
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

    def progress(self, phase: str, done: int, _: int) -> None:
        is_selling = phase.endswith("sale") and done > 0
        if self.act is not None and is_selling and len(self.planned) == self.at:
            act, self.act = self.act, None
            act()

    def finished(self, _: Turn, __: Run, left: float) -> None:
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
    children = psutil.Process().children(recursive=True)
    return [one for one in children if MODULE in one.cmdline()]


def kill_generator() -> None:
    _, fork = sorted(generators(), key=lambda one: one.create_time())
    os.kill(fork.pid, signal.SIGKILL)


def servers_of(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children(recursive=True) if one.name() == "valkey-server"]


def test_an_interrupted_session_goes_on_repeats_nothing_and_keeps_a_run_that_died_as_void(
    tmp_path: Path, of_others: frozenset[psutil.Process]
) -> None:
    loaded, folder = small_plan(tmp_path, ONE_CELL, LONG_SALES), tmp_path / "results"
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

    display = RecordingDisplay(at=1, act=kill_generator)
    assert run_session(options, display) == folder / "results.jsonl"
    found = read_results(folder / "results.jsonl")
    assert found.end is not None
    assert (found.end.runs_done, found.end.stopped_by) == (2, None)
    assert found.runs[0] == first
    assert [(run.run, run.round, len(run.void), run.sweeps) for run in found.runs] == [
        (1, 1, 0, ("k",)),
        (2, 2, 1, ("k",)),
    ]
    lost = found.runs[1]  # its process died, and the servers lived
    assert lost.void[0].startswith(
        "the run ended without a record: measuring segment-locks K=4 N=8 B=1 5ms ended early"
    )
    assert (lost.orders_per_s, lost.window_s, lost.counts.sent) == (None, 0.0, 0)
    assert len(display.planned) == 1
    assert display.left_after == [0]
    assert rates == json.loads((folder / "calibrations.json").read_text(encoding="utf-8"))
    assert list(rates) == [first.cell_id]
    assert sorted(one.name for one in (folder / "histories").iterdir()) == ["0001.jsonl.zst"]
    assert (folder / "plan.toml").read_text(encoding="utf-8") == loaded.text
    said = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    assert said == found.session.environment
    assert said["servers"]["redis"]["config"]["dir"] == "(a path)"
    assert str(tmp_path) not in json.dumps(said)
    assert frozenset(servers_of(os.getpid())) == of_others

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


def test_the_stock_follows_the_runs_so_far_and_the_loader_is_gone_in_the_end(tmp_path: Path) -> None:
    loaded, folder = small_plan(tmp_path, ONE_CELL), tmp_path / "results"
    options = SessionOptions(loaded=loaded, folder=folder, only=("k",))
    first, second = read_results(run_session(options, RecordingDisplay())).runs
    (calibrated,) = json.loads((folder / "calibrations.json").read_text(encoding="utf-8")).values()
    assert first.pace is not None
    assert first.checker.stock == max(STOCK_MIN, ceil(0.5 * calibrated))
    assert second.checker.stock == max(STOCK_MIN, ceil(0.5 * max(calibrated, first.pace)))
    assert generators() == []


class ProcessRecorder(RecordingDisplay):
    """Records the loader and the process of each run while it sells."""

    def __init__(self) -> None:
        super().__init__()
        self.loaders: list[psutil.Process] = []
        self.forks: list[psutil.Process] = []

    def progress(self, phase: str, done: int, _: int) -> None:
        super().progress(phase, done, _)
        found = sorted(generators(), key=lambda one: one.create_time()) if phase == "sale" else []
        if len(found) == 2 and found[1] not in self.forks:  # one of them is gone if this is heard late
            self.loaders.append(found[0])
            self.forks.append(found[1])


def test_each_round_has_another_loader_which_forks_for_each_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders: list[MeasuringProcess] = []

    class Loader(MeasuringProcess):
        def run(self, task: MeasuringTask, progress: Progress) -> dict[str, Any]:
            if not json.loads(task.line)["is_calibration"]:
                loaders.append(self)
            return super().run(task, progress)

    monkeypatch.setattr("bench.engine.session.MeasuringProcess", Loader)
    loaded, folder = small_plan(tmp_path), tmp_path / "results"
    options = SessionOptions(loaded=loaded, folder=folder, only=("k",))
    found = read_results(run_session(options, RecordingDisplay()))
    assert [run.round for run in found.runs] == [1, 1, 2, 2]
    first, again, second, last = loaders
    assert (first is again, second is last, first is second) == (True, True, False)


def test_a_session_that_ends_in_a_run_ends_its_process_and_the_loader(tmp_path: Path) -> None:
    class Interrupting(ProcessRecorder):
        def progress(self, phase: str, done: int, _: int) -> None:
            super().progress(phase, done, _)
            if self.forks:
                raise KeyboardInterrupt

    display = Interrupting()
    loaded, folder = small_plan(tmp_path, ONE_CELL, LONG_SALES), tmp_path / "results"
    with pytest.raises(KeyboardInterrupt):
        run_session(SessionOptions(loaded=loaded, folder=folder, only=("k",)), display)
    assert len(display.loaders + display.forks) == 2
    assert [one.is_running() for one in display.loaders + display.forks] == [False, False]


def twenty_units(cell: Cell, url: str) -> Run:
    assignment = RunAssignment(cell=cell, url=url, meter_url=url, database=None, stock=20, seconds=300.0, warm_up=0.02)
    with closing(MeasuringProcess(MODULE)) as child:
        found = child.run(MeasuringTask(assignment.model_dump_json(), cell.cell_id, SECONDS), lambda *_: None)
    return Run.model_validate(found)


def test_a_pool_that_an_interrupted_run_left_is_in_nobodys_way(valkey: ValkeyServer) -> None:
    cell = Cell(strategy="segment-locks", section="none", segments=2, buyers=2, stock=20)
    with RedisStore.from_url(valkey.url) as store:
        assert isinstance(Pool(store, "bench").open(stock=5, segments=1), Opened)
        left = store.client.dbsize()
        assert twenty_units(cell, valkey.url).checker.sold == 20
        assert store.client.dbsize() == left


def test_a_run_that_is_sold_out_too_soon_is_void(valkey_url: str) -> None:
    run = twenty_units(Cell(strategy="global-lock", section="sleep", hold_ms=5.0, buyers=2), valkey_url)
    (why,) = run.void
    assert why.endswith(" s were measured, and it takes 100.000 s")
    assert (run.orders_per_s, run.checker.sold, run.warm_up_s) == (None, 20, 0.02)


def test_a_sale_of_a_fixed_stock_counts_from_its_first_order_to_its_last(valkey_url: str) -> None:
    run = twenty_units(Cell(strategy="global-lock", section="sleep", hold_ms=5.0, buyers=2, stock=20), valkey_url)
    assert (run.void, run.checker.sold, run.warm_up_s) == ((), 20, 0.0)
    assert run.orders_per_s == pytest.approx(20 / run.window_s, rel=0.01)


def test_what_does_not_fit_into_the_budget_is_not_started(tmp_path: Path) -> None:
    options = SessionOptions(
        loaded=small_plan(tmp_path, ("budget = 60", "budget = 1")), folder=tmp_path / "results", is_quick=True
    )
    display = RecordingDisplay()
    found = read_results(run_session(options, display))
    sentence = "0 of 1 run fitted into the 1 s that this profile has; the others were not started"
    assert display.sentences == [f"results go to {tmp_path / 'results'}", sentence]
    assert display.planned == []
    assert found.end is not None
    assert found.end.stopped_by == sentence


def test_a_stopped_command_says_what_is_kept_and_leaves_no_server(tmp_path: Path) -> None:
    plan, folder = written(tmp_path, ("rounds = 2", "rounds = 50")), tmp_path / "results"
    words = ("bench", "--plan", str(plan), "--report", str(folder), "--sweep", "k")
    assert stopped(words, "2 cells, 50 rounds, 100 runs; by the plan ", signal.SIGTERM) == (
        143,
        f"segmented: interrupted: {kept(folder)}\n",
    )
    found = read_results(folder / "results.jsonl")
    assert found.end is not None
    assert found.end.stopped_by == "stopped by SIGTERM"
    assert stopped(words, "run 2 of 100", signal.SIGINT) == (130, f"segmented: interrupted: {kept(folder)}\n")
    assert 2 <= len(read_results(folder / "results.jsonl").runs) < 100


def kept(folder: Path) -> str:
    runs = len(read_results(folder / "results.jsonl").runs)
    few = {0: f"no run was finished; {folder} can be used again", 1: f"the 1 finished run is kept in {folder}"}
    said = few.get(runs, f"the {runs} finished runs are kept in {folder}")
    return f"{said}; the same command with --report {folder} goes on" if runs else said


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


def test_bad_input_of_the_command_is_one_sentence_and_starts_nothing(tmp_path: Path) -> None:
    plan = written(tmp_path)
    folder = tmp_path / "results"
    for words, sentence in (
        (["granularty"], "unknown benchmark 'granularty'; did you mean 'granularity'?"),
        (
            ["--plan", str(tmp_path / "none.toml")],
            f"{tmp_path / 'none.toml'} cannot be read: No such file or directory",
        ),
        (
            ["--plan", str(plan), "--sweep", "lod", "--report", str(folder)],
            f"--sweep lod: {plan} has no such sweep; did you mean 'load'?",
        ),
        (
            ["granularity", "--plan", str(plan), "--report", str(plan)],
            f"--report {plan} cannot be used: Not a directory",
        ),
        (["--plan", str(plan), "--json", str(tmp_path)], f"--json {tmp_path} is a folder, not a file"),
    ):
        done = ran("bench", *words, url=None)
        assert (done.returncode, done.stderr) == (2, f"segmented: {sentence}\n")
        assert not folder.exists()
