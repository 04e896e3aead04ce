"""A pool whose changes must reach a replica: what is acknowledged survives its master, and the rest is unknown."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from segmented import Grant, Order, Pool, RedisStore, protocol as op
from segmented.clock import SystemClock
from segmented.errors import AcknowledgementUnknown, InvalidInput
from segmented.keys import shard_keys
from segmented.models import Cart, CartReserved, Reserved, Settled, SoldOut
from segmented.stock import AsyncCarts, AsyncShardedPool, Carts, Outbox, ShardedPool
from tests.fixtures.stores import FEW_REDIS, Side, make_side
from tests.support.long_run import in_the_long_run
from tests.support.servers.deployments import ReplicaPair
from tests.support.servers.nodes import eventually

pytestmark = pytest.mark.usefixtures("patient_attempts")

PROFILE: Final = "replicated:1/20000ms"
"""A time that no replica needs which hears its master, however busy the machine is."""
BRIEF: Final = "replicated:1/150ms"
"""The profile while the replica hears nothing."""
SKU: Final = "mug"
EACH: Final = [FEW_REDIS[0], *in_the_long_run(FEW_REDIS[1])]


@pytest.fixture(params=EACH, ids=str)
def side(request: pytest.FixtureRequest, replica_pair: ReplicaPair) -> Iterator[Side]:
    made = make_side(request.param, SystemClock(), replica_pair.url)
    yield made
    going_on(replica_pair)
    made.close()


@pytest.fixture
def pool(side: Side) -> Pool:
    """A pool of twenty units whose orders must be on a replica."""
    made = side.pool(SKU)
    made.open(stock=20, segments=4, profile=PROFILE)
    return made


def unknown(call: Callable[[], object]) -> AcknowledgementUnknown:
    with pytest.raises(AcknowledgementUnknown) as caught:
        call()
    return caught.value


def told(answer: object) -> object:
    """Raise an answer of a batch that is an error."""
    if isinstance(answer, AcknowledgementUnknown):
        raise answer
    return answer


def set_profile(pair: ReplicaPair, profile: str) -> None:
    """Let every pool of the master have another profile: each call learns it from the pool."""
    with pair.master.client() as client:
        for key in client.scan_iter("seg:{*}:meta"):
            client.hset(key, "profile", profile)


def stopped(pair: ReplicaPair, profile: str = BRIEF, *, told: Callable[[], object] | None = None) -> None:
    """Stop the replica, once it has acknowledged what was written; from now on calls wait as `profile` says.

    `told` is a repeat by which a store learns of the profile before: else a call that writes without asking for the
    profile would wait as the last one said.
    """
    set_profile(pair, profile)
    if told is not None:
        with suppress(AcknowledgementUnknown):
            told()
    with pair.master.client() as client:
        client.set("told", 1)
        client.delete("told")
        eventually(lambda: client.execute_command("WAIT", 1, 1_000) == 1, "the replica is in step", seconds=60)
    pair.replica.pause()


def going_on(pair: ReplicaPair) -> None:
    """Let the replica hear its master again, and calls wait for it."""
    pair.replica.resume()
    set_profile(pair, PROFILE)


CALLS: Final[dict[str, Callable[[Pool], object]]] = {
    "reserve": lambda pool: pool.reserve("new"),
    "reserve_many": lambda pool: pool.reserve_many([Order("new")])[0],
    "grant": lambda pool: pool.grant("new", holder_id="me", timeout=30),
    "confirm": lambda pool: pool.confirm("old"),
    "confirm_many": lambda pool: pool.confirm_many(["old"])[0],
    "cancel": lambda pool: pool.cancel("old"),
    "submit": lambda pool: pool.submit("new").order_id,
    "restock": lambda pool: pool.restock(5, restock_id="new"),
    "withdraw": lambda pool: pool.withdraw(5, withdraw_id="new"),
    "resize": lambda pool: pool.resize(5),
    "close": lambda pool: pool.close(),
}


@pytest.mark.parametrize("name", CALLS)
def test_without_a_replica_each_call_is_unknown_and_its_repeat_settles_it(
    pool: Pool, replica_pair: ReplicaPair, name: str
) -> None:
    pool.reserve("old")
    stopped(replica_pair, told=lambda: pool.reserve("old"))
    error = unknown(lambda: told(CALLS[name](pool)))
    assert (error.sku, error.wanted, error.counted) == (SKU, 1, 0)
    assert error.order_id in {"new", "old", None}
    going_on(replica_pair)
    assert told(CALLS[name](pool)) is not None
    assert pool.audit().is_clean


@pytest.mark.parametrize("name", ["reserve_many", "grant", "confirm", "close"])
def test_a_repeat_on_a_new_connection_does_not_count_what_it_has_not_written(
    plain_pair_store: RedisStore, replica_pair: ReplicaPair, name: str
) -> None:
    pool = Pool(plain_pair_store, SKU, outbox=Outbox())
    pool.open(stock=20, segments=4, profile=PROFILE)
    pool.reserve("old")
    stopped(replica_pair, told=lambda: pool.reserve("old"))
    unknown(lambda: told(CALLS[name](pool)))
    with RedisStore.from_url(replica_pair.url) as store:
        again = Pool(store, SKU, outbox=Outbox())
        assert unknown(lambda: told(CALLS[name](again))).counted == 0
        going_on(replica_pair)
        assert told(CALLS[name](again)) is not None


def test_a_refusal_needs_no_acknowledgement(pool: Pool, replica_pair: ReplicaPair) -> None:
    pool.reserve("all", quantity=20)
    stopped(replica_pair)
    assert isinstance(pool.reserve("late"), SoldOut)


def test_a_call_waits_for_its_replica_no_longer_than_its_own_deadline(
    plain_pair_store: RedisStore, replica_pair: ReplicaPair
) -> None:
    Pool(plain_pair_store, SKU).open(stock=20, segments=4, profile=PROFILE)
    Pool(plain_pair_store, SKU).reserve("first")
    stopped(replica_pair, "replicated:1/60000ms")
    began = time.monotonic()
    operation = op.Reserve(SKU, Order("o-1"), 60_000)
    unknown(lambda: plain_pair_store.execute(operation, deadline=plain_pair_store.clock.now() + 4.0))
    assert time.monotonic() - began < 50  # not 60


def test_many_orders_wait_once(plain_pair_store: RedisStore, replica_pair: ReplicaPair) -> None:
    pool = Pool(plain_pair_store, SKU)
    pool.open(stock=20, segments=4, profile=PROFILE)
    for number in range(3):
        pool.reserve(f"o-{number}")
    pool.reserve("before")
    pool.confirm("before")  # so that the server has the script
    replica_pair.master.ask("CONFIG", "RESETSTAT")
    ends = tuple(op.Confirm(SKU, f"o-{number}") for number in range(3))
    answers = plain_pair_store.execute_many(ends)
    assert [isinstance(one, Settled) and one.state for one in answers] == ["confirmed"] * 3
    found = replica_pair.master.info("commandstats")
    assert (found["cmdstat_evalsha"]["calls"], found["cmdstat_wait"]["calls"]) == (3, 1)


def test_a_batch_that_does_not_know_the_profile_learns_it_and_waits(
    plain_pair_store: RedisStore, replica_pair: ReplicaPair
) -> None:
    Pool(plain_pair_store, SKU).open(stock=20, segments=4, profile=PROFILE)
    with RedisStore.from_url(replica_pair.url) as store:
        stopped(replica_pair)
        first, second, refused = store.execute_many(
            (
                op.Reserve(SKU, Order("a"), 60_000),
                op.Reserve(SKU, Order("b"), 60_000),
                op.Reserve(SKU, Order("c", 50), 60_000),
            )
        )
    assert [type(one) for one in (first, second, refused)] == [AcknowledgementUnknown] * 2 + [SoldOut]


def test_a_memory_pool_sends_one_command_an_order(plain_pair_store: RedisStore, replica_pair: ReplicaPair) -> None:
    pool = Pool(plain_pair_store, SKU)
    pool.open(stock=20, segments=4)
    pool.reserve("o-1")
    replica_pair.master.ask("CONFIG", "RESETSTAT")
    pool.reserve("o-2")
    found = replica_pair.master.info("commandstats")
    assert found["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_wait" not in found


OTHER: Final = """
import sys
from segmented import Pool, RedisStore
with RedisStore.from_url(sys.argv[1]) as store:
    Pool(store, "mug").open(stock=20, segments=4, profile=sys.argv[2])
"""


def test_a_pool_opened_in_one_process_keeps_its_profile_in_another(side: Side, replica_pair: ReplicaPair) -> None:
    subprocess.run([sys.executable, "-c", OTHER, replica_pair.url, PROFILE], check=True, timeout=120)
    pool = side.pool(SKU)
    assert pool.state().profile == PROFILE
    stopped(replica_pair)
    assert unknown(lambda: pool.reserve("o-1")).counted == 0


def test_too_few_replicas_are_refused_at_open_and_nothing_is_opened(side: Side, replica_pair: ReplicaPair) -> None:
    with pytest.raises(InvalidInput) as caught:
        side.pool(SKU).open(stock=20, segments=4, profile="replicated:2")
    assert str(caught.value) == (
        "pool 'mug' cannot be opened with profile replicated:2: the server has 1 connected replicas of the 2 wanted; "
        "connect more, or ask for fewer"
    )
    assert replica_pair.master.ask("DBSIZE") == 0


def test_an_open_pool_is_opened_again_while_its_replica_is_away(private_replica_pair: ReplicaPair) -> None:
    pair = private_replica_pair
    with RedisStore.from_url(pair.url) as store:
        Pool(store, SKU).open(stock=20, segments=4, profile=PROFILE)
        pair.replica.kill()
        eventually(lambda: pair.master.info("replication")["connected_slaves"] == 0, "the replica is gone")
        assert Pool(store, SKU).open(stock=20, segments=4).state.profile == PROFILE
        set_profile(pair, BRIEF)
        assert unknown(lambda: Pool(store, SKU).reserve("o-1")).counted == 0


def test_a_cart_is_reserved_and_confirmed_once_its_decision_is_acknowledged(
    side: Side, pool: Pool, replica_pair: ReplicaPair
) -> None:
    side.pool("cup").open(stock=20, segments=4, profile=PROFILE)
    carts: Carts = side.made(Carts, AsyncCarts)
    cart = Cart("c-1", [(SKU, 1), ("cup", 2)])
    stopped(replica_pair)
    unknown(lambda: carts.reserve(cart))
    going_on(replica_pair)
    assert isinstance(carts.reserve(cart), CartReserved)
    stopped(replica_pair)
    assert isinstance(unknown(lambda: carts.reserve(cart)), AcknowledgementUnknown)
    unknown(lambda: carts.confirm("c-1", home=cart.home))
    going_on(replica_pair)
    settled = carts.confirm("c-1", home=cart.home)
    assert (settled.state, settled.is_finished) == ("confirmed", True)
    stopped(replica_pair)
    assert carts.confirm("c-1", home=cart.home).replay  # all of it was acknowledged before
    going_on(replica_pair)
    assert pool.state().confirmed == 1


def test_each_shard_waits_on_its_own(side: Side, replica_pair: ReplicaPair) -> None:
    pool: ShardedPool = side.made(lambda store: ShardedPool(store, SKU), lambda store: AsyncShardedPool(store, SKU))
    pool.open(stock=20, segments=4, shards=2, profile=PROFILE)
    assert [shard.profile for shard in pool.state().shards] == [PROFILE] * 2
    stopped(replica_pair)
    assert unknown(lambda: pool.reserve("o-1")).counted == 0
    going_on(replica_pair)
    assert isinstance(pool.reserve("o-1"), Reserved)
    assert pool.state().reserved == 1


def test_a_promoted_replica_has_every_acknowledged_order(private_replica_pair: ReplicaPair) -> None:
    pair = private_replica_pair
    with RedisStore.from_url(pair.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=1_000, segments=8, profile=PROFILE)

        def buy(number: int) -> str | None:
            try:
                grant = pool.grant(f"o-{number}", timeout=60)
                assert isinstance(grant, Grant)
                return grant.confirm().order_id
            except AcknowledgementUnknown:
                return None

        with ThreadPoolExecutor(4) as buyers:
            sold = [one for one in buyers.map(buy, range(200)) if one is not None]
            stopped(pair)
            lost = [one for one in buyers.map(buy, range(200, 208)) if one is not None]
    pair.master.kill()
    pair.replica.resume()
    pair.replica.ask("REPLICAOF", "NO", "ONE")
    orders = pair.replica.ask("HMGET", shard_keys(SKU).orders, *sold)
    assert len(sold) == 200
    assert [raw[0] for raw in orders] == ["c"] * 200
    assert lost == []


def test_a_failover_that_loses_only_unacknowledged_changes_does_not_freeze_the_pool(
    private_replica_pair: ReplicaPair, tmp_path: Path
) -> None:
    pair, address = private_replica_pair, tmp_path / "stock.sock"
    address.symlink_to(pair.master.socket_path)  # the address that a name or a virtual address would be
    with RedisStore.from_url(f"unix://{address}?db=0") as store:
        pool = Pool(store, SKU)
        pool.open(stock=20, segments=4, profile=PROFILE)
        pool.reserve("kept")
        stopped(pair, told=lambda: pool.reserve("kept"))
        pair.replica.resume()
        pair.replica.ask("REPLICAOF", "NO", "ONE")
        assert unknown(lambda: pool.reserve("lost")).counted == 0
        pair.master.kill()
        address.unlink()
        address.symlink_to(pair.replica.socket_path)  # as above
        assert unknown(lambda: pool.reserve("lost")).counted == 0  # the new master has no replica yet
        state = pool.state()
    assert (state.frozen, state.reserved) == (None, 2)


@pytest.fixture
def plain_pair_store(replica_pair: ReplicaPair) -> Iterator[RedisStore]:
    with RedisStore.from_url(replica_pair.url) as store:
        yield store
    going_on(replica_pair)
