"""A gated pool that is found on another server is compared with its order database before the next order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled
from segmented.errors import InvalidInput, PoolNotGated
from segmented.keys import shard_keys
from segmented.orders import (
    cancel_order,
    expire_voided,
    finish_reserved,
    open_gated,
    resize_gated,
    restock_gated,
    take_envelope,
    take_order,
    verify,
    withdraw_gated,
)
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.pools.forgetting import SKU, check_sells_the_rest, sell
from tests.support.pools.gated_shop import process
from tests.support.workers.envelope_till import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.models.submitted import Deciding
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer
    from segmented.stock import Grant

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def shop(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Twenty units in four segments, on both sides."""
    with process(valkey.url) as pool:
        open_gated(pool, gate, stock=20, segments=4)
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


def test_a_body_that_has_run_is_not_run_again_for_a_pool_that_must_be_verified(shop: Pool, gate: Gate) -> None:
    ran_with: list[int] = []

    def body(grant: Grant) -> None:
        ran_with.append(grant.quantity)
        move(shop)

    answer = take_order(shop, gate, Order("a", 3), timeout=60, body=body)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.quantity, ran_with) == ("confirmed", 3, [3])
    check_sells_the_rest(shop, gate)


def test_a_body_that_fails_on_a_pool_that_must_be_verified_gives_its_units_back(shop: Pool, gate: Gate) -> None:
    def body(_: Grant) -> None:
        move(shop)
        raise KeyError(SKU)

    with pytest.raises(KeyError, match=SKU):
        take_order(shop, gate, Order("a", 3), timeout=60, body=body)
    assert (shop.state().available, shop.state().reserved) == (20, 0)
    check_sells_the_rest(shop, gate)


@pytest.mark.parametrize("decides", BOTH)
def test_an_envelope_is_finished_on_a_pool_that_must_be_verified(shop: Pool, gate: Gate, decides: Deciding) -> None:
    shop = Pool(shop.store, SKU, outbox=Outbox(decides=decides))
    shop.submit_many([Order("a"), Order("b")])
    move(shop)
    report = take_envelope(shop, ["a", "b"], gate=gate, step=lambda _: move(shop))
    assert sorted((one.order_id, one.state) for one in report.settled) == [("a", "confirmed"), ("b", "confirmed")]
    check_sells_the_rest(shop, gate)


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
