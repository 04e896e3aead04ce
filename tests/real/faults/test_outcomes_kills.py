"""A process that tells outcomes is killed at each step of it: every order is told, and little is told again."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore
from segmented.orders import Gate
from segmented.servers import ValkeyServer

pytestmark = pytest.mark.real

ORDERS: Final = 250
RUNS_MAX: Final = 60
PROGRAM: Final = """
import os, signal, sys
from sqlalchemy import Engine, event
from segmented import Order, Pool, RedisStore
from segmented.orders import Gate, relay
from segmented.orders.outcomes import tell_outcomes

server, database, told, last = *sys.argv[1:4], int(sys.argv[4])
points = 0

def point(*_):
    global points
    points += 1
    if points == last:
        os.kill(os.getpid(), signal.SIGKILL)

def tell(order_id, state, reason):
    with open(told, "a") as file:
        file.write(f"{order_id} {state}\\n")
    if order_id.endswith("7"):
        point()

with Gate(database) as gate, RedisStore.from_url(server) as store:
    pool = Pool(store, "mug", gate=gate)
    for name in ("before_cursor_execute", "after_cursor_execute"):
        event.listen(Engine, name, point)
    relay(pool, gate)
    tell_outcomes(pool, gate, tell, goes_on=lambda: True)
"""


def test_every_outcome_is_told_whatever_step_the_process_dies_at(
    postgres_database: str, valkey: ValkeyServer, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    with RedisStore.from_url(valkey.url) as store, Gate(postgres_database) as gate:
        gate.create()
        pool = Pool(store, "mug", gate=gate)
        pool.open(stock=ORDERS, segments=4)
        ids = [f"o-{number:03}" for number in range(ORDERS)]
        pool.reserve_many([Order(order_id) for order_id in ids])
        pool.confirm_many(ids[:200])
        pool.cancel_many(ids[200:])
    killed = 0
    for point in range(1, RUNS_MAX):
        words = (sys.executable, "-c", PROGRAM, valkey.url, postgres_database, str(told), str(2 * point))
        code = subprocess.run(words, timeout=120, check=False).returncode
        assert code in {0, -signal.SIGKILL}
        if code == 0:
            break
        killed += 1
    said = Counter(told.read_text().splitlines())
    states = {order_id: "confirmed" if order_id < "o-200" else "cancelled" for order_id in ids}
    assert set(said) == {f"{order_id} {state}" for order_id, state in states.items()}
    assert killed >= 8
    assert max(said.values()) <= killed
