"""Pools that are verified against their order database, and other databases."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved
from segmented.errors import InvalidInput, PoolFrozen, PoolNotGated
from segmented.keys import shard_keys
from segmented.orders import Gate, rebuild, take_envelope, verify
from segmented.orders.answers import SegmentTotals
from segmented.orders.opening import resize_gated, restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved
from segmented.servers import ValkeyServer
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell
from tests.support.pools.gated_shop import process

LATE_CALLS: Final[dict[str, Callable[[Pool, Gate, Reserved], object]]] = {
    "take_order": lambda pool, gate, _: sell(pool, gate, "a"),
    "finish_reserved": lambda pool, gate, held: finish_reserved(pool, gate, Order("held"), held),
    "an envelope of one order": lambda pool, gate, _: take_envelope(pool, ["q-1"], gate=gate),
    "an envelope of two orders": lambda pool, gate, _: take_envelope(pool, ["q-1", "q-2"], gate=gate),
}

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def shop(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Twenty units in four segments, on both sides."""
    with process(valkey.url) as pool:
        Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4)
        yield pool


def move(pool: Pool) -> None:
    """Let the pool be found as after a restart of its server."""
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(shard_keys(SKU).meta, "server", "another")


# --- every call with the order database verifies by itself ---


CALLS: Final[dict[str, Callable[[Pool, Gate, Reserved], object]]] = {
    "take_order": lambda pool, gate, _: sell(pool, gate, "a"),
    "finish_reserved": lambda pool, gate, held: finish_reserved(pool, gate, Order("held"), held),
    "cancel_order": lambda pool, gate, _: cancel_order(pool, gate, Order("held")),
    "expire_voided": lambda pool, gate, _: expire_voided(pool, gate),
    "restock_gated": lambda pool, gate, _: restock_gated(pool, gate, 5, restock_id="r"),
    "withdraw_gated": lambda pool, gate, _: withdraw_gated(pool, gate, 5, withdraw_id="w"),
    "resize_gated": lambda pool, gate, _: resize_gated(pool, gate, 8),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_with_the_order_database_verifies_the_pool_and_goes_on(shop: Pool, gate: Gate, call: str) -> None:
    held = shop.reserve("held")
    assert isinstance(held, Reserved)
    move(shop)
    CALLS[call](shop, gate, held)
    assert isinstance(shop.reserve("next"), Reserved)
    assert shop.audit().is_clean


def test_what_cannot_be_verified_is_refused_in_one_sentence(
    shop: Pool, order_database: str, gate: Gate, valkey: ValkeyServer
) -> None:
    gate.open("unknown here", [5])
    Pool(shop.store, "cup").open(stock=5, segments=1, gated=True)
    with pytest.raises(InvalidInput, match=r"^the order database \S+ has no rows for 'cup': name"):
        verify(Pool(shop.store, "cup"), gate)
    gate.open("plain", [5])
    Pool(shop.store, "plain").open(stock=5, segments=1)
    with pytest.raises(PoolNotGated):
        verify(Pool(shop.store, "plain"), gate)
    unsaid = ran("pool", "verify", SKU, url=valkey.url)
    assert (unsaid.returncode, "verify needs --database URL" in unsaid.stderr) == (2, True)
    plain = ran("pool", "verify", "plain", url=valkey.url, database=order_database)
    assert plain.returncode == 2


IN_WORKERS: Final = Outbox(decides="in the worker")


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
        "from segmented.orders import Gate, connect\n"
        "from segmented.orders.sale import take_order\n"
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


@pytest.mark.parametrize("call", LATE_CALLS)
def test_an_older_copy_with_all_that_a_process_saw_freezes_at_a_confirmed_order(
    valkey: ValkeyServer, gate: Gate, call: str
) -> None:
    with process(valkey.url) as idle, process(valkey.url) as busy:
        Pool(idle.store, idle.sku, gate=gate).open(stock=20, segments=1)
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
