"""Keys of a gated pool that were restored from an older copy, on a server that was not restarted, are noticed.

A process that has seen nothing compares the pool with the database at its first call, and one that has seen only what
the copy has learns more from the database's confirms.
"""

from __future__ import annotations

import subprocess
import sys
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from segmented import Order, Pool, Reserved
from segmented.errors import PoolFrozen
from segmented.orders import (
    cancel_order,
    expire_voided,
    finish_reserved,
    open_gated,
    rebuild,
    resize_gated,
    restock_gated,
    take_envelope,
    withdraw_gated,
)
from segmented.protocol import VerifyPool
from segmented.stock.outbox import Outbox
from tests.support.dying import DyingStore, StepCounter
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell
from tests.support.pools.gated_shop import process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate
    from segmented.orders.answers import SegmentTotals
    from segmented.plans.drivers import Store
    from segmented.protocol import Operation
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")

AnswerT = TypeVar("AnswerT")

IN_WORKERS: Final = Outbox(decides="in the worker")


@pytest.fixture
def shop(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Twenty units in four segments, on both sides."""
    with process(valkey.url) as pool:
        open_gated(pool, gate, stock=20, segments=4)
        yield pool


FIRST_CALLS: Final[dict[str, Callable[[Pool, Gate, Reserved], object]]] = {
    "take_order": lambda pool, gate, _: sell(pool, gate, "a"),
    "finish_reserved": lambda pool, gate, held: finish_reserved(pool, gate, Order("held"), held),
    "expire_voided": lambda pool, gate, _: expire_voided(pool, gate),
    "restock_gated": lambda pool, gate, _: restock_gated(pool, gate, 5, restock_id="r"),
    "withdraw_gated": lambda pool, gate, _: withdraw_gated(pool, gate, 5, withdraw_id="w"),
    "resize_gated": lambda pool, gate, _: resize_gated(pool, gate, 8),
    "take_envelope": lambda pool, gate, _: take_envelope(pool, ["queued"], gate=gate),
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_keys_of_an_older_copy_are_noticed_by_the_first_call_of_a_new_process(
    shop: Pool, valkey: ValkeyServer, gate: Gate, call: str
) -> None:
    held = shop.reserve("held")
    assert isinstance(held, Reserved)
    Pool(shop.store, SKU, outbox=IN_WORKERS).submit("queued")
    with forgotten(shop):
        sell(shop, gate, "lost", 3)
    with process(valkey.url) as new:
        with pytest.raises(PoolFrozen) as error:
            FIRST_CALLS[call](new, gate, held)
        assert (error.value.found, error.value.seen, error.value.missing) == ((1, 2), (1, 3), None)
        assert set(gate.orders(SKU, ["a", "held", "queued", "lost"])) == {"lost"}
        assert rebuild(new, gate).state.confirmed == 3
        cancel_order(new, gate, Order("held"))
        cancel_order(new, gate, Order("queued"))
        if call == "restock_gated":  # the database had begun it
            withdraw_gated(new, gate, 5, withdraw_id="w")
        check_sells_the_rest(new, gate)


def test_a_process_compares_a_pool_with_the_database_once(
    shop: Pool, valkey: ValkeyServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    totals = gate.totals

    def counted(sku: str) -> SegmentTotals:
        read.append(sku)
        return totals(sku)

    monkeypatch.setattr(gate, "totals", counted)
    with process(valkey.url) as new:
        for number in range(3):
            sell(new, gate, f"o-{number}")
            sell(Pool(new.store, SKU), gate, f"p-{number}")
        assert read == [SKU]
    assert shop.state().confirmed == 6


@pytest.mark.real
def test_a_new_program_does_not_sell_from_an_older_copy(
    shop: Pool, valkey: ValkeyServer, order_database: str, gate: Gate
) -> None:
    with forgotten(shop):
        sell(shop, gate, "lost", 3)
    program = (
        "import sys\n"
        "from segmented import Order, Pool, RedisStore\n"
        "from segmented.orders import Gate, connect, take_order\n"
        "ran = []\n"
        "pool = Pool(RedisStore.from_url(sys.argv[1]), 'mug')\n"
        "try:\n"
        "    take_order(pool, Gate(connect(sys.argv[2])), Order('next'), timeout=60, body=ran.append)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, ran)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, valkey.url, order_database], capture_output=True, text=True, check=True
    )
    assert done.stdout == "PoolFrozen []\n"


LATE_CALLS: Final[dict[str, Callable[[Pool, Gate, Reserved], object]]] = {
    "take_order": lambda pool, gate, _: sell(pool, gate, "a"),
    "finish_reserved": lambda pool, gate, held: finish_reserved(pool, gate, Order("held"), held),
    "an envelope of one order": lambda pool, gate, _: take_envelope(pool, ["q-1"], gate=gate),
    "an envelope of two orders": lambda pool, gate, _: take_envelope(pool, ["q-1", "q-2"], gate=gate),
}


class RecordingStore(DyingStore):
    """A real store that remembers what was asked of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, StepCounter())
        self.done: list[type[Operation[Any]]] = []

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.done.append(type(operation))
        return super().execute(operation, deadline=deadline)


@pytest.mark.parametrize("call", LATE_CALLS)
def test_an_older_copy_with_all_that_a_process_saw_freezes_at_a_confirmed_order(
    valkey: ValkeyServer, gate: Gate, call: str
) -> None:
    with process(valkey.url) as idle, process(valkey.url) as busy:
        open_gated(idle, gate, stock=20, segments=1)
        sell(idle, gate, "seen")
        held = busy.reserve("held")
        assert isinstance(held, Reserved)
        Pool(busy.store, SKU, outbox=IN_WORKERS).submit_many([Order("q-1"), Order("q-2")])
        with forgotten(busy):
            for number in range(5):
                sell(busy, gate, f"lost-{number}")
        LATE_CALLS[call](idle, gate, held)
        with pytest.raises(PoolFrozen) as error:
            idle.reserve("next")
        assert error.value.seen == (1, 13)
        rebuild(idle, gate)
        for order_id in ("held", "q-1", "q-2"):
            cancel_order(idle, gate, Order(order_id))
        check_sells_the_rest(idle, gate)


@pytest.mark.parametrize("call", ["take_order", "an envelope of two orders"])
def test_a_pool_that_lost_nothing_is_not_asked_about_what_the_database_knows(
    valkey: ValkeyServer, gate: Gate, call: str
) -> None:
    with process(valkey.url) as idle, process(valkey.url) as busy:
        open_gated(idle, gate, stock=20, segments=1)
        sell(idle, gate, "seen")
        held = busy.reserve("held")
        assert isinstance(held, Reserved)
        Pool(busy.store, SKU, outbox=IN_WORKERS).submit_many([Order("q-1"), Order("q-2")])
        for number in range(5):
            sell(busy, gate, f"sold-{number}")
        pool = Pool(recording := RecordingStore(idle.store), SKU)
        expire_voided(pool, gate)
        assert recording.done.count(VerifyPool) == 1
        LATE_CALLS[call](pool, gate, held)
        assert recording.done.count(VerifyPool) == 1
