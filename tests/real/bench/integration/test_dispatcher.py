"""No arrival of an open loop vanishes: one that had no turn by the end of the schedule is sent late, or is shed."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT

PROGRAM = """
from types import SimpleNamespace
from bench.engine.open_loop import Dispatcher

def dispatcher(is_closing):
    recorder = SimpleNamespace(failures=[])
    def call(buyer, *, intended):
        sent.append(intended)

    sale = SimpleNamespace(is_closing=is_closing, recorder=recorder, call=call)
    found = Dispatcher(sale, [0.0, 0.001, 0.002], under_way_max=8)
    found.start()
    return found

for is_closing in (False, True):
    sent = []
    one = dispatcher(is_closing)
    one.finish(5.0)
    print(len(sent), [round(at - one.began, 3) for at in one.shed_at])
"""


def test_every_arrival_is_sent_or_shed_once_the_schedule_is_over() -> None:
    """The process has not given the dispatcher a turn when it is told to finish, as under a full load."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert found.stdout.splitlines() == ["3 []", "0 [0.0, 0.001, 0.002]"]
