"""F1, F2: workers that die before and after each write, between effect and acknowledgement, and in the pop window."""

import signal
from pathlib import Path
from typing import Final

import pytest

from segmented.testing.control import Strike, write_plan
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_floor import GATED, GATED_AT_ONCE, IN_WORKER, WITH_STEP, Mode

MESSAGES: Final = ("popped", "before:ack", "after:ack")
TAKEN: Final = ("before:TakeOrders", "after:TakeOrders")
SETTLED: Final = ("before:SettleMany", "after:SettleMany")
STORED: Final = ("before:commit", "after:commit")
POINTS: Final = {
    GATED: ("popped", "after:TakeOrders", *STORED, "after:SettleMany"),
    WITH_STEP: (*MESSAGES, *TAKEN, *SETTLED),
    GATED_AT_ONCE: ("after:TakeOrders", *STORED, "before:SettleMany"),
}
TWICE: Final = "before:SettleMany"
"""The only point at which a step has run and nothing says so: it runs again, and has to be safe for that."""
TOO_MANY: Final = 5_000


@pytest.mark.parametrize(
    ("mode", "database"),
    [
        (GATED, "segmented_database"),
        (GATED, "mariadb_database"),
        *in_the_long_run((WITH_STEP, "segmented_database"), (GATED_AT_ONCE, "segmented_database")),
    ],
    ids=str,
)
def test_f1_f2_orders_are_decided_once_wherever_their_worker_dies(
    open_system: OrderSystemFactory, mode: Mode, database: str
) -> None:
    """Each worker finishes the orders of the one before it, and dies itself at the next point."""
    system = open_system(mode, database=database)
    worker = system.worker()
    refused: list[str] = []
    ran: dict[str, int] = {}
    for number, point in enumerate(POINTS[mode]):
        worker.kill_at(point)
        orders = [(f"{number}-{index}", 1 + index) for index in range(5)]
        system.submit([*orders, (f"{number}-much", TOO_MANY)])
        worker.reached(point)
        refused.append(f"{number}-much")
        ran |= {order_id: 2 if point == TWICE else 1 for order_id, _ in orders}
        worker = system.worker()
        system.until_decided()
    system.check(refused=refused)
    if mode.has_step:
        assert system.runs() == ran


def test_orders_are_finished_whose_submitting_program_dies_before_it_tells_anybody(
    open_system: OrderSystemFactory, tmp_path: Path
) -> None:
    """What was accepted is decided, and what was not can be submitted again; told or not, it is once."""
    system = open_system(IN_WORKER)
    system.worker()
    ended = []
    for number, (point, is_accepted) in enumerate(
        {
            "before:QueueOrders": False,
            "after:QueueOrders": True,
            "before:publish": True,
            "after:publish": True,
        }.items()
    ):
        ids = [f"{number}-{index}" for index in range(3)]
        folder = tmp_path / f"submitter-{number}"
        folder.mkdir()
        write_plan(folder, [Strike(0, point, "kill", scope="process")])
        ended.append(system.submitting(folder, *ids))
        system.quantities |= dict.fromkeys(ids, 1)
        known = {"queued", "reserved", "confirmed"} if is_accepted else {"unknown"}
        assert {system.states()[order_id] for order_id in ids} <= known
    assert ended == [-signal.SIGKILL] * 4
    (tmp_path / "again").mkdir()
    assert system.submitting(tmp_path / "again", *system.quantities) == 0
    system.until_decided()
    system.check()
