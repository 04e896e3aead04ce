"""Servers that lose a suffix of their changes, interleaved from seeds: pools freeze, are rebuilt or thawed, sell out.

The invariants are in the worlds: gated_losses.py, ungated_losses.py and sharded_losses.py in tests/support/sim.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.testing import Simulation
from tests.support.long_run import in_the_long_run
from tests.support.sim.forgetful_world import READS, ForgetfulWorld
from tests.support.sim.gated_losses import gated_sale
from tests.support.sim.seeds import each_seed, seed_of_run
from tests.support.sim.sharded_losses import forgetful_sale
from tests.support.sim.ungated_losses import ungated_sale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SALES: Final[dict[str, Callable[[int], Counter[str]]]] = {
    "gated": gated_sale,
    "ungated": ungated_sale,
    "sharded": forgetful_sale,
}
LEAST: Final = {
    "gated": {
        "lost suffixes": 300,
        "clocks behind": 200,
        "frozen by a process that was ahead": 200,
        "PoolFrozen": 900,
        "thaws": 250,
        "rebuilds": 200,
        "superseded": 30,
        "steps that a rebuild overtook": 200,
        "bodies whose grant was superseded": 6,
        "crashes inside a rebuild": 6,
        "kills": 100,
    },
    "ungated": {
        "lost suffixes": 300,
        "clocks behind": 200,
        "frozen by a process that was ahead": 250,
        "PoolFrozen": 1_000,
        "thaws": 300,
        "crashes inside a thaw": 1,
        "reserved orders cancelled by a thaw": 30,
        "overtaken changes noticed": 20,
        "orders forgotten in hand": 1,
        "kills": 100,
    },
    "sharded": {
        "lost suffixes": 250,
        "PoolFrozen": 400,
        "thaws": 400,
        "forgotten sendings": 40,
        "forgotten receipts": 40,
        "forgotten transfers that came late": 5,
    },
}
"""How often these things happen at least in the sales of the seeds 0 to 299."""
LONG_PARTS: Final = 200
LONG_PART: Final = 250
"""Each world's schedules in the long run: 50,000 of each, 150,000 in all."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Leave out the log lines of rebuilds that void orders."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@each_seed(range(300), meets=["turns", "kills", "losses"])
def test_a_gated_sale_that_loses_changes_is_rebuilt_and_sells_exactly_its_quota(seed: int) -> None:
    gated_sale(seed)


@each_seed(range(300), meets=["turns", "kills", "losses"])
def test_an_ungated_sale_that_loses_changes_answers_nobody_until_it_is_thawed(seed: int) -> None:
    ungated_sale(seed)


@each_seed(range(300), meets=["turns", "kills"])
def test_a_sale_in_shards_that_forget_transfers_sells_exactly_its_stock(seed: int) -> None:
    forgetful_sale(seed)


@pytest.mark.parametrize("name", SALES)
def test_losses_freezes_rebuilds_thaws_and_crashes_really_happen(name: str) -> None:
    met: Counter[str] = sum(map(SALES[name], range(300)), Counter())
    assert {what: met[what] for what, least in LEAST[name].items() if met[what] < least} == {}


@pytest.mark.parametrize("part", in_the_long_run(*range(LONG_PARTS)))
@pytest.mark.parametrize("name", SALES)
def test_a_hundred_thousand_schedules_lose_no_more_than_they_may(name: str, part: int) -> None:
    first = seed_of_run() + part * LONG_PART
    met: Counter[str] = Counter()
    for seed in range(first, first + LONG_PART):
        try:
            met += SALES[name](seed)
        except Exception as error:
            error.add_note(f"the {name} sale of seed {seed}")
            raise
    assert min(met[what] for what in ("lost suffixes", "thaws")) > 50


# --- the simulator itself ---


def test_a_failover_puts_an_earlier_copy_in_place_with_its_clock_behind() -> None:
    world = ForgetfulWorld(1)
    world.model.execute(op.OpenPool("a", 5, 2, gated=False))
    world.server.replicate()
    world.server.caller = "seller"
    kept = world.model.execute(op.ReadPool("a"))
    world.model.execute(op.Restock("a", "more", 3))
    now = world.server.clock.now()
    assert world.server.fail_over(behind=30.0)
    assert world.server.clock.now() == now - 30.0
    world.server.caller = "another"
    assert world.model.execute(op.ReadPool("a")) == kept
    assert world.counts["lost suffixes"] == 1


def test_a_failover_to_a_replica_that_has_everything_loses_nothing() -> None:
    world = ForgetfulWorld(1)
    world.model.execute(op.OpenPool("a", 5, 2, gated=False))
    world.server.replicate()
    assert not world.server.fail_over(behind=0.0)
    assert world.counts["lost suffixes"] == 0


def test_a_frozen_pool_answers_the_operations_that_only_read_and_a_second_freeze() -> None:
    world = Simulation(1)
    world.model.execute(op.OpenPool("a", 5, 2, gated=False))
    world.model.execute(op.FreezePool("a", 1))
    reads = [op.ReadPool("a"), op.ReadOrders("a", ("o",)), op.ReadLedger("a", 0, 10), op.ScanHolds("a", 0)]
    others = [op.ScanOrders("a", 0), op.FreezePool("a", 1), op.LeavePoolLine("a", "p")]
    for operation in [*reads, *others]:
        world.model.execute(operation)
    assert {type(one) for one in [*reads, *others]} == set(READS)
