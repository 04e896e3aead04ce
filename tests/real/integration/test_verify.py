"""A gated pool on a server that was restarted or promoted is compared with its order database before the next order.

Nobody who saw the lost changes is left: each process here has a store of its own, which has seen nothing.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, SoldOut
from segmented.errors import InvalidInput, PoolFrozen, PoolNotGated, PoolUnverified
from segmented.keys import shard_keys
from segmented.models import Verified
from segmented.orders import (
    cancel_order,
    expire_voided,
    finish_reserved,
    open_gated,
    rebuild,
    resize_gated,
    restock_gated,
    take_envelope,
    take_order,
    verify,
    withdraw_gated,
)
from segmented.protocol import VerifyPool
from segmented.stock.outbox import Outbox
from tests.support.command_line import ran
from tests.support.pools.gated_shop import process
from tests.support.servers.nodes import eventually
from tests.support.workers.envelope_till import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from segmented.models.submitted import Deciding
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer
    from segmented.stock import Grant
    from tests.support.servers.deployments import ReplicaPair

pytestmark = pytest.mark.usefixtures("patient_attempts")

SKU: Final = "mug"
SAFE: Final = {"appendfsync": "always"}


@pytest.fixture
def server(start_valkey: Callable[..., ValkeyServer], tmp_path: Path) -> ValkeyServer:
    """A server that keeps every acknowledged change."""
    return start_valkey(tmp_path / "data", config=SAFE)


@pytest.fixture
def pool(server: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Twenty units in four segments, on both sides."""
    with process(server.url) as pool:
        open_gated(pool, gate, stock=20, segments=4)
        yield pool


@pytest.fixture
def shop(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """The same on a server that need not be restarted."""
    with process(valkey.url) as pool:
        open_gated(pool, gate, stock=20, segments=4)
        yield pool


def move(pool: Pool) -> None:
    """Let the pool be found as after a restart of its server."""
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(shard_keys(SKU).meta, "server", "another")


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int = 1) -> Settled:
    answer = take_order(pool, gate, Order(order_id, quantity), timeout=60)
    assert isinstance(answer, Settled)
    return answer


def check_sells_the_rest(pool: Pool, gate: Gate) -> None:
    """Every unit is sold once, none is left, and both sides and the ledger agree."""
    for number in range(pool.state().available):
        assert sell(pool, gate, f"rest-{number}").state == "confirmed"
    assert isinstance(take_order(pool, gate, Order("too many"), timeout=0), SoldOut)
    assert (pool.state().reserved, pool.state().available) == (0, 0)
    assert gate.totals(SKU).sold == gate.confirmed_units(SKU) == 20
    assert pool.audit().is_clean


# --- servers that lose nothing, and servers that lose something ---


def test_a_pool_whose_server_was_restarted_without_loss_sells_on(server: ValkeyServer, pool: Pool, gate: Gate) -> None:
    sell(pool, gate, "before")
    kept = pool.state()
    server.kill()
    server.restart()
    with process(server.url) as shop, process(server.url) as worker:
        for change in (lambda: shop.reserve("web"), lambda: shop.grant("web"), shop.close):
            with pytest.raises(PoolUnverified):
                change()
        assert shop.state() == kept
        assert sell(worker, gate, "after").state == "confirmed"
        assert isinstance(shop.reserve("web"), Reserved)
        assert verify(worker, gate) == Verified(SKU, replay=True)
        cancel_order(worker, gate, Order("web"))
        check_sells_the_rest(worker, gate)


@pytest.mark.parametrize("lost_by", ["a cut append-only file", "an old copy"])
def test_a_server_that_lost_sales_is_found_out_by_processes_that_have_seen_nothing(
    server: ValkeyServer, pool: Pool, gate: Gate, tmp_path: Path, lost_by: str
) -> None:
    sell(pool, gate, "kept", 2)
    data = tmp_path / "data" / "valkey"
    (log,) = data.glob("appendonlydir/*.incr.aof")
    size = log.stat().st_size
    shutil.copytree(data / "appendonlydir", tmp_path / "copy")
    for number in range(3):
        sell(pool, gate, f"lost-{number}")
    server.kill()
    if lost_by == "an old copy":
        shutil.rmtree(data / "appendonlydir")
        shutil.copytree(tmp_path / "copy", data / "appendonlydir")
    else:
        with log.open("r+b") as file:
            file.truncate(size)
    server.restart()
    with process(server.url) as shop, process(server.url) as worker:
        with pytest.raises(PoolUnverified):
            shop.reserve("web")
        with pytest.raises(PoolFrozen) as error:
            take_order(worker, gate, Order("next"), timeout=0)
        assert (error.value.found, error.value.seen) == ((1, 3), (1, 8))
        with pytest.raises(PoolFrozen):
            shop.reserve("web")
        assert "next" not in gate.orders(SKU, ["next"])
        thawed = rebuild(worker, gate)
        assert (thawed.state.epoch, thawed.state.confirmed, thawed.state.available) == (2, 5, 15)
        assert (sell(worker, gate, "lost-1").replay, gate.totals(SKU).sold) == (True, 5)
        check_sells_the_rest(worker, gate)


@pytest.mark.parametrize("is_lossy", [False, True])
def test_a_promoted_replica_is_verified_by_the_command_or_frozen(
    private_replica_pair: ReplicaPair, order_database: str, gate: Gate, *, is_lossy: bool
) -> None:
    pair = private_replica_pair
    with process(pair.url) as pool:
        open_gated(pool, gate, stock=20, segments=4)
        sell(pool, gate, "kept")
        with pair.master.client() as client:
            eventually(lambda: client.execute_command("WAIT", 1, 1_000) == 1, "the replica is in step", seconds=60)
        pair.replica.ask("REPLICAOF", "NO", "ONE")
        if is_lossy:
            sell(pool, gate, "lost")
        pair.master.kill()
    with process(pair.replica.url) as shop:
        with pytest.raises(PoolUnverified):
            shop.reserve("web")
        done = ran("pool", "verify", SKU, url=pair.replica.url, database=order_database)
        if is_lossy:
            assert done.returncode == 1
            assert "pool 'mug' is frozen: it lost acknowledged changes" in done.stderr
            rebuild(shop, gate)
        else:
            assert (done.returncode, done.stdout) == (0, "verified: the pool sells on\n")
            again = ran("pool", "verify", SKU, "--json", "-", url=pair.replica.url, database=order_database)
            assert (again.returncode, again.stdout) == (0, '{\n  "sku": "mug",\n  "is_changed": false\n}\n')
        check_sells_the_rest(shop, gate)


def test_a_pool_without_an_order_database_sells_on(server: ValkeyServer) -> None:
    with process(server.url) as pool:
        pool.open(stock=20, segments=4)
    server.kill()
    server.restart()
    with process(server.url) as pool:
        assert isinstance(pool.reserve("next"), Reserved)


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


def test_a_server_that_is_replaced_while_the_database_is_read_is_compared_again(shop: Pool, gate: Gate) -> None:
    sell(shop, gate, "a")
    move(shop)
    server = shop.store.execute(VerifyPool(SKU, 1, 2))
    assert isinstance(server, str)
    assert shop.store.execute(VerifyPool(SKU, 1, 2, "the one before")) == server
    assert verify(shop, gate) == Verified(SKU, replay=False)


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
