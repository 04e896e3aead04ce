"""A process gets a SIGKILL at each step of a confirm, a rebuild and a thaw: the next process finishes, exactly."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Final

import pytest

from segmented import Pool, RedisStore, Reserved, protocol as op
from segmented.errors import PoolFrozen, PoolNotFrozen
from segmented.keys import shard_keys
from segmented.orders import Gate, audit_both, rebuild
from segmented.servers import ValkeyServer
from tests.support.killed import Action, prepared, shop, was_killed
from tests.support.pools.forgetting import forgotten, sell
from tests.support.servers.deployments import Cluster, Sentinels

STEPS_MAX: Final = 200
STOCK: Final = 1_000
SEGMENTS: Final = 4

numbers = count()


@pytest.fixture(
    params=[
        "one server",
        pytest.param("sentinels", marks=pytest.mark.long),
        pytest.param("cluster", marks=pytest.mark.long),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """The address of the stock, in each kind of deployment."""
    if request.param == "one server":
        server: ValkeyServer = request.getfixturevalue("valkey")
        return server.url
    deployment: Sentinels | Cluster = request.getfixturevalue(request.param)
    return deployment.url


@pytest.fixture
def order_database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    with RedisStore.from_url(url) as store:
        yield store


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = shop(store, f"mug-{next(numbers)}")  # deployments keep the pools of earlier tests
    Pool(pool.store, pool.sku, gate=gate).open(stock=STOCK, segments=SEGMENTS)
    return pool


@pytest.mark.parametrize(
    ("name", "effect", "steps_min"),
    [
        pytest.param("take_order", 2, 8, id="take_order", marks=pytest.mark.long),
        pytest.param("take_envelope", 2, 8, id="take_envelope"),
        pytest.param("cancel_order", 0, 5, id="cancel_order", marks=pytest.mark.long),
    ],
)
def test_every_step_of_an_order_may_be_killed_and_the_order_has_one_effect(  # fixtures
    url: str, pool: Pool, gate: Gate, order_database: str, name: str, effect: int, steps_min: int
) -> None:
    for step in range(1, STEPS_MAX):
        order_id = f"{name}-{step}"
        is_killed = was_killed(Action(name, url, order_database, pool.sku, order_id, step))
        for _ in range(2):  # the next delivery, and one more
            finish(name, pool, gate, order_id)
        check(pool, gate, sold=effect * step)
        if not is_killed:
            break
    assert steps_min < step < STEPS_MAX - 1


def finish(name: str, pool: Pool, gate: Gate, order_id: str) -> None:
    """Do the action again, as another process would once the dead one's leases have ended."""
    assert isinstance(pool.store, RedisStore)
    for segment in range(SEGMENTS):
        pool.store.client.pexpire(f"{shard_keys(pool.sku).lock}:{segment}", 1)
    for _ in range(STEPS_MAX):
        prepared(name, pool, gate, order_id)()
        (record,) = pool.store.execute(op.ReadOrders(pool.sku, (order_id,)))
        if record is not None and record.state in {"confirmed", "cancelled"}:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{order_id} is not settled")


def test_every_step_of_a_rebuild_may_be_killed_and_the_next_one_ends_it(
    url: str, pool: Pool, gate: Gate, order_database: str
) -> None:
    assert isinstance(pool.reserve("open", quantity=3), Reserved)
    for step in range(1, STEPS_MAX):
        with forgotten(pool):
            sell(pool, gate, f"lost-{step}", 2)
        with pytest.raises(PoolFrozen):
            pool.reserve("next")
        is_killed = was_killed(Action("rebuild", url, order_database, pool.sku, "", step))
        if is_killed:
            with suppress(PoolNotFrozen):  # it had ended
                rebuild(pool, gate)
        check(pool, gate, sold=2 * step, reserved=3)
        assert pool.state().lost == 2 * step
        if not is_killed:
            break
    assert 20 < step < STEPS_MAX - 1


def check(pool: Pool, gate: Gate, *, sold: int, reserved: int = 0) -> None:
    """Compare the numbers of both sides, their audits, and the order rows."""
    state, totals = pool.state(), gate.totals(pool.sku)
    assert (state.frozen, state.confirmed, state.reserved) == (None, sold, reserved)
    assert state.available == STOCK - sold - reserved
    assert (totals.quota, totals.sold, gate.confirmed_units(pool.sku)) == (STOCK, sold, sold)
    assert pool.audit().is_clean
    both = audit_both(pool, gate)
    assert both.is_clean, both.differences
