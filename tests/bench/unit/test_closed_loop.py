"""Before its next order a buyer of a closed loop lets the others run: one of them was perhaps handed its segment."""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT

PROGRAM = """
import itertools
import time
from types import SimpleNamespace
import bench.engine.measurement  # it imports Locust, which patches threads for gevent
import gevent
from gevent.event import Event
from bench.engine.cell import Cell
from bench.engine.sale import Sale
from bench.strategies.base import Sold

seen, is_handed, begun_at = [], Event(), []

def wait_for_a_segment():
    is_handed.wait()
    begun_at.append(time.monotonic())
    seen.append("section of the next holder")

def buy(orders):
    seen.append("order")
    is_handed.set()
    return [Sold(granted_at=0.0)]

sale = Sale(Cell(strategy="segment-locks", segments=1, buyers=2, section="none"), SimpleNamespace(buy_batch=buy))
gevent.spawn(wait_for_a_segment)
gevent.sleep(0)
for _ in range(2):
    sale.call(0)
print(seen, sale.recorder.asked[1] <= begun_at[0])
"""


def test_an_order_that_was_handed_a_segment_goes_on_before_the_buyer_who_freed_it_orders_again() -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert found.stdout == "['order', 'section of the next holder', 'order'] True\n"  # the wait is service time
