"""Points and what a test tells a worker about them, without a worker."""

import os
from pathlib import Path

import pytest

from segmented.testing.worker_process import Launch, WorkerProcess, WorkerTrouble


def test_an_app_that_is_not_there_is_told_with_the_last_words(tmp_path: Path) -> None:
    worker = WorkerProcess(Launch("no_such_app", tmp_path, environment=dict(os.environ)))
    try:
        with pytest.raises(
            WorkerTrouble, match=r"was not ready: it ended with code 2; its log ends with\n(?s:.*)no_such_app"
        ):
            worker.wait_ready()
    finally:
        worker.close()
