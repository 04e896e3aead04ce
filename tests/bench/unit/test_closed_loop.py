"""Between two orders a buyer of a closed loop lets the others run: one of them was perhaps handed its segment."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PROGRAM = """
import itertools, sys
from importlib import import_module
from types import SimpleNamespace
user_class = getattr(import_module(sys.argv[1]), sys.argv[2])  # it imports Locust, which patches threads for gevent
import gevent
from gevent.event import Event
from locust.exception import StopUser

done, is_handed = [], Event()

def wait_for_a_segment():
    is_handed.wait()
    done.append("section of the next holder")

def call(number):
    done.append("order")
    is_handed.set()
    sale.is_closing = done.count("order") == 2

sale = SimpleNamespace(is_closing=False, call=call)
scenario = SimpleNamespace(seller=SimpleNamespace(sale=sale))
user = SimpleNamespace(sale=sale, scenario=scenario, numbers=itertools.count())
gevent.spawn(wait_for_a_segment)
gevent.sleep(0)
try:
    user_class.buy(user)
except StopUser:
    print(done)
"""


@pytest.mark.parametrize("user", [("bench.engine.measurement", "Buyer"), ("bench.load.scenario", "OrderingUser")])
def test_an_order_that_was_handed_a_segment_goes_on_before_the_buyer_who_freed_it_orders_again(
    user: tuple[str, str],
) -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *user],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert found.stdout == "['order', 'section of the next holder', 'order']\n"
