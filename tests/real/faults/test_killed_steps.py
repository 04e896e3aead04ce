"""A process gets a SIGKILL at each step of a confirm or a cancel: the next process finishes, exactly."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore, Reserved, protocol as op
from segmented.keys import shard_keys
from segmented.orders import Gate, WorkTerms, audit_both, connect, take_envelope
from segmented.orders.sale import cancel_order, finish_reserved, take_order
from segmented.plans.drivers import Store
from segmented.servers import ValkeyServer
from tests.support.dying import DyingStore, StepCounter, let_die, was_killed
from tests.support.pools.engines import gate_on
from tests.support.servers.deployments import Cluster, Sentinels

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

STEPS_MAX: Final = 200
TTL: Final = 600.0
"""Seconds of a segment's lease, which no test waits for: it ends a dead process's lease itself."""
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


def shop(store: Store, sku: str) -> Pool:
    """Return the pool."""
    return Pool(store, sku, ttl=TTL, hold=TTL, outbox=Outbox())


def prepared(name: str, pool: Pool, gate: Gate, order_id: str) -> Callable[[], object]:
    """Do what comes before the action, and return the action itself. Both are safe to repeat."""
    if name == "take_order":
        return lambda: take_order(pool, gate, Order(order_id, 2), timeout=60)
    if name == "take_envelope":
        pool.submit(order_id, quantity=2)
        return lambda: take_envelope(pool, [order_id], gate=gate, terms=WorkTerms(ttl=TTL, work=0.05))
    reserved = pool.reserve(order_id, quantity=2)
    if name == "cancel_order":
        return lambda: cancel_order(pool, gate, Order(order_id, 2))
    if isinstance(reserved, Reserved):
        return lambda: finish_reserved(pool, gate, Order(order_id, 2), reserved)
    return lambda: None  # settled by the run before


def dies_at(step: int, name: str, url: str, database: str, pool: Pool, order_id: str) -> bool:
    """Do an action on the pool in a process of its own; return whether it was killed at this step of it."""

    def act(counter: StepCounter) -> None:
        counter.steps = None
        with RedisStore.from_url(url) as store, gate_on(connect(database)) as gate:
            let_die(gate, counter)
            doing = prepared(name, shop(DyingStore(store, counter), pool.sku), gate, order_id)
            counter.counted, counter.steps = 0, step
            doing()

    return was_killed(act, step)


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
        is_killed = dies_at(step, name, url, order_database, pool, order_id)
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


def check(pool: Pool, gate: Gate, *, sold: int) -> None:
    """Compare the numbers of both sides, their audits, and the order rows."""
    state, totals = pool.state(), gate.totals(pool.sku)
    assert (state.frozen, state.confirmed, state.reserved) == (None, sold, 0)
    assert state.available == STOCK - sold
    assert (totals.quota, totals.sold, gate.confirmed_units(pool.sku)) == (STOCK, sold, sold)
    assert pool.audit().is_clean
    both = audit_both(pool, gate)
    assert both.is_clean, both.differences
