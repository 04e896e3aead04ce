"""A measuring process with several assignments: each runs in its own fork, independent of the earlier ones."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from bench.children import MeasuringProcess, MeasuringTask
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = 100.0
MODULE: Final = """
import os, signal, sys
from bench.forks import fork_for_each_line
from bench.forks import say

def main(line):
    if "complain" in line:
        print("a complaint", file=sys.stderr)
    if "die" in line:
        sys.stdout.write('{"event": "reco')
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    say("record", {"record": {"pid": os.getpid()}})
    return 0

fork_for_each_line(main)
"""


def test_a_fork_that_is_killed_in_the_middle_of_a_line_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told_several_lines.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with closing(MeasuringProcess("told_several_lines")) as child:

        def pid_of(line: str) -> int:
            return int(child.run(MeasuringTask(line, "nothing", SECONDS), lambda *_: None)["pid"])

        first = pid_of("complain")
        with pytest.raises(SegmentedError) as silent:
            pid_of("die")
        assert str(silent.value) == "measuring nothing ended early: killed by SIGKILL"  # not the complaint before it
        with pytest.raises(SegmentedError, match=r"^measuring nothing ended early: a complaint$"):
            pid_of("complain and die")
        assert pid_of("go on") != first
