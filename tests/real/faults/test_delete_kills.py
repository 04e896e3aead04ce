"""A process that deletes a pool is killed at every step; the next run finishes."""

import json
import subprocess
import sys
from typing import Any

import pytest

from segmented.servers import ValkeyServer
from tests.real.faults.test_archive_kills import PHASES
from tests.support.paths import ROOT


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_kill_at_any_step_leaves_a_whole_pool_or_one_whose_deletion_is_finished(
    private_valkey: ValkeyServer, shards: int
) -> None:
    words = [sys.executable, "-m", "tests.real.faults.pool_deleter", private_valkey.url, str(shards)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    left = [one["left"] for one in found]
    assert left == sorted(left, key=PHASES.index)
    assert set(left) == set(PHASES)
    for step, one in enumerate(found, start=1):
        assert (one["answer"], one["keys"], one["listed"], one["replay"]) == ("removed", 0, False, True), step
