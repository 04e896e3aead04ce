"""A gated pool on a server that was restarted or promoted is compared with its order database before the next order.

Nobody who saw the lost changes is left: each process here has a store of its own, which has seen nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented import Order, Pool, Reserved
from segmented.errors import PoolFrozen, PoolUnverified
from segmented.models import Verified
from segmented.orders import Gate, rebuild, verify
from segmented.orders.sale import cancel_order, take_order
from segmented.servers import ValkeyServer
from tests.support.command_line import ran
from tests.support.pools.forgetting import SKU, check_sells_the_rest, sell
from tests.support.pools.gated_shop import process
from tests.support.servers.deployments import ReplicaPair
from tests.support.servers.nodes import eventually

pytestmark = pytest.mark.usefixtures("patient_attempts")

SAFE: Final = {"appendfsync": "always"}


@pytest.fixture
def server(start_valkey: Callable[..., ValkeyServer], tmp_path: Path) -> ValkeyServer:
    """A server that keeps every acknowledged change."""
    return start_valkey(tmp_path / "data", config=SAFE)


@pytest.fixture
def pool(server: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Twenty units in four segments, on both sides."""
    with process(server.url) as pool:
        Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4)
        yield pool


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


def test_a_server_that_lost_sales_is_found_out_by_processes_that_have_seen_nothing(
    server: ValkeyServer, pool: Pool, gate: Gate, tmp_path: Path
) -> None:
    sell(pool, gate, "kept", 2)
    data = tmp_path / "data" / "valkey"
    (log,) = data.glob("appendonlydir/*.incr.aof")
    size = log.stat().st_size
    for number in range(3):
        sell(pool, gate, f"lost-{number}")
    server.kill()
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
        Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4)
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
