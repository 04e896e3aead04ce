"""What an order cost: counted between two readings of the server, less what a reading costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bench.engine.meters import WorkMeter
from bench.engine.sale import Recorder
from bench.strategies.base import Sold

if TYPE_CHECKING:
    import redis

READING = {"commands": 1, "reads": 1, "in": 10, "out": 9_000, "cpu": 0.0005}


class Counting:
    """A server that counts what it is told of, and its own questions as a real one does: in the answer after."""

    def __init__(self) -> None:
        self.totals = dict.fromkeys(READING, 0.0)

    def info(self, _: str) -> dict[str, float]:
        found = dict(self.totals)
        self.add(**READING)
        return {
            "total_commands_processed": found["commands"],
            "total_reads_processed": found["reads"],
            "total_net_input_bytes": found["in"],
            "total_net_output_bytes": found["out"],
            "used_cpu_user": found["cpu"],
            "used_cpu_sys": 0.0,
        }

    def add(self, **counts: float) -> None:
        for name, count in counts.items():
            self.totals[name] += count

    def serve(self, recorder: Recorder, orders: int, *, cost: int) -> None:
        for number in range(orders):
            self.add(commands=cost, reads=2, **{"in": 100, "out": 200, "cpu": 0.0001})
            recorder.note(0, number, [Sold(1.0, 2.0)], intended=0.0, asked=0.0, done=3.0, quantity=1)

    def refuse(self, count: int) -> None:
        self.add(commands=10 * count, reads=count)


def started() -> tuple[Counting, Recorder, WorkMeter]:
    server, recorder = Counting(), Recorder()
    return server, recorder, WorkMeter(cast("redis.Redis", server), recorder)


def test_refusals_after_the_end_and_a_warm_up_before_it_cost_the_orders_nothing() -> None:
    server, recorder, meter = started()
    server.serve(recorder, 5, cost=900)
    meter.begin()
    server.serve(recorder, 10, cost=40)
    meter.end()
    server.refuse(1_000)
    found = meter.work()
    assert (found.commands, found.round_trips, found.attempts) == (40.0, 2.0, 1.0)
    assert (found.bytes, found.server_us) == (300.0, 100.0)


def test_a_whole_sale_has_its_refusals_in_it() -> None:
    server, recorder, meter = started()
    server.serve(recorder, 10, cost=40)
    server.refuse(10)
    assert meter.work().commands == 50.0
