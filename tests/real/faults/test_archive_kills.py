"""A process that archives a pool is killed at every step; the next run of the same command finishes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from segmented.servers import ValkeyServer
from tests.real.faults.archive_killer import ORDERS
from tests.support.long_run import in_the_long_run
from tests.support.paths import ROOT

PHASES: Final = ["whole", "removing", "archived"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("shards", "least"), [(1, 100), *in_the_long_run((2, 200))])
def test_a_kill_at_any_step_leaves_a_whole_pool_or_a_removal_that_is_finished(
    private_valkey: ValkeyServer, tmp_path: Path, shards: int, least: int
) -> None:
    words = [sys.executable, "-m", "tests.real.faults.archive_killer", private_valkey.url, str(tmp_path), str(shards)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(found) >= least
    left = [one["left"] for one in found]
    assert left == sorted(left, key=PHASES.index)
    assert set(left) == set(PHASES)
    for step, one in enumerate(found, start=1):
        assert one["orders"] == [ORDERS, ORDERS], step
        assert (one["same"], one["answer"], one["keys"], one["names"]) == (True, "archived", 0, []), step
        assert one["replay"][1], step
        assert one["file"] or one["left"] == "whole", step
