"""Every public call of a gated pool in shards, sync and asyncio, with its gate and without: SQL and Redis agree.

The judge and the rule are those of `test_gated_calls`. A call that needs units of another shard is refused without the
gate, even one that would be safe: the database must store where the units are.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import redis

from segmented import Order, Outbox, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import ChangeGated, PoolGated, PoolUnverified, TransferGated
from segmented.models import AlreadyOpen, Assigned, OrderRecord, PoolClosed, Resized, Restocked, Returned, ShardedState
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import AsyncPool, AsyncShardedPool, ShardedAuditReport, ShardedPool
from segmented.stock.order_handle import HandleState
from segmented.stock.sharded.audit import ShardedRepairReport
from tests.quick.orders.test_gated_calls import DUE_HOLD, SECONDS, TTL, Call, PoolFront, check_type, refusal
from tests.support.contract.shards.sharding import at_home_in
from tests.support.pools.both_sides import judged
from tests.support.pools.fronts import asyncio_side

pytestmark = pytest.mark.usefixtures("patient_shards")

SKU: Final = "mug"
OPENING: Final[dict[str, Any]] = {"stock": 20, "segments": 4, "shards": 2}
FIRST: Final = at_home_in(0, 2, "f")
RESERVED, SOLD, VOID, QUEUED, NEW, DUE, *_ = FIRST
OTHER: Final = at_home_in(1, 2, "s")[0]


class ShardedFront(PoolFront):
    """A pool in shards in one colour."""

    def granted(self) -> Any:  # noqa: ANN401  # a grant of either colour
        answer = self.call("grant", FIRST[7] if self.pool.gate is None else FIRST[8], timeout=SECONDS)
        assert hasattr(answer, "fencing_token"), answer
        return answer


def shards(front: PoolFront) -> tuple[Any, ...]:
    """Return the shards, which asyncio awaits."""
    found = front.pool.shards
    return tuple(front.ended(found()) if callable(found) else found)


def sent(front: PoolFront) -> PoolFront:
    """Leave two units on the way from shard 1, as a process that died."""
    front.ended(front.pool.store.execute(op.SendUnits(shards(front)[1].sku, 0, 2, is_stored=True)))
    return front


CALLS: Final = [
    # --- safe without the gate ---
    Call("state", lambda front: front.call("state"), "safe", ShardedState),
    Call("available", lambda front: front.call("available"), "safe", int),
    Call("order", lambda front: front.call("order", RESERVED), "safe", OrderRecord),
    Call("orders", lambda front: front.listed("orders"), "safe", list),
    Call("shards", lambda front: shards(front)[0], "safe", (Pool, AsyncPool)),
    Call("shard_of", lambda front: front.call("shard_of", RESERVED), "safe", (Pool, AsyncPool)),
    Call("handle", lambda front: front.call("handle", QUEUED), "safe", HandleState),
    Call("audit", lambda front: front.call("audit"), "safe", ShardedAuditReport),
    Call("repair", lambda front: front.call("repair", front.call("audit"), yes=True), "safe", ShardedRepairReport),
    Call("reserve", lambda front: front.call("reserve", NEW), "safe", Reserved),
    Call("reserve: too many", lambda front: front.call("reserve", NEW, quantity=15), "safe", SoldOut),
    Call("reserve_many", lambda front: front.call("reserve_many", [Order(NEW), Order(OTHER)])[1], "safe", Reserved),
    Call("submit", lambda front: front.call("submit", NEW), "safe", HandleState),
    Call("submit_many", lambda front: front.call("submit_many", [Order(NEW)])[0], "safe", HandleState),
    Call("grant", lambda front: front.granted().order_id, "safe", str),
    Call("close", lambda front: front.call("close"), "safe", PoolClosed),
    Call("assign", lambda front: front.call("assign", queue="concerts", step=None), "safe", Assigned),
    Call("finish_transfers", lambda front: front.call("finish_transfers"), "safe", int),
    Call("extend", lambda front: front.call("extend", RESERVED, seconds=300), "safe", Reserved),
    Call("change", lambda front: front.call("change", RESERVED, quantity=2), "safe", Reserved),
    # --- only with the gate ---
    Call("finish_transfers: one", lambda front: sent(front).call("finish_transfers"), TransferGated, int),
    Call("repair: one on the way", lambda front: _repaired(sent(front)), TransferGated, ShardedRepairReport),
    Call("reserve: of both", lambda front: front.call("reserve", NEW, quantity=10), TransferGated, Reserved),
    Call("reserve_many: of both", lambda front: _many(front, "reserve_many"), TransferGated, Reserved),
    Call("submit: of both", lambda front: front.call("submit", NEW, quantity=10), TransferGated, HandleState),
    Call("submit_many: of both", lambda front: _many(front, "submit_many"), TransferGated, HandleState),
    Call("grant: of both", lambda front: front.call("grant", NEW, quantity=10).quantity, TransferGated, int),
    Call("open", lambda front: front.call("open", **OPENING), ChangeGated, AlreadyOpen),
    Call("grant: a body that ends", lambda front: front.body(NEW), PoolGated, None),
    Call("grant: confirm", lambda front: front.ended(front.granted().confirm()), PoolGated, Settled),
    Call("grant: cancel", lambda front: front.ended(front.granted().cancel()), PoolGated, Settled),
    Call("confirm", lambda front: front.call("confirm", RESERVED), PoolGated, Settled),
    Call("confirm: queued", lambda front: front.call("confirm", QUEUED), PoolGated, Settled),
    Call("confirm_many", lambda front: front.call("confirm_many", [RESERVED])[0], PoolGated, Settled),
    Call("cancel", lambda front: front.call("cancel", RESERVED), PoolGated, Settled),
    Call("cancel: queued", lambda front: front.call("cancel", QUEUED), PoolGated, Settled),
    Call("cancel_many", lambda front: front.call("cancel_many", [RESERVED])[0], PoolGated, Settled),
    Call("expire", lambda front: front.call("expire"), PoolGated, tuple),
    Call("return_units", lambda front: front.call("return_units", SOLD, 1, return_id="rma"), PoolGated, Returned),
    Call("restock", lambda front: front.call("restock", 5, restock_id="r"), ChangeGated, Restocked),
    Call("withdraw", lambda front: front.call("withdraw", 2, withdraw_id="w"), ChangeGated, Restocked),
    Call("withdraw: of both", lambda front: front.call("withdraw", 11, withdraw_id="w"), ChangeGated, Restocked),
    Call("resize", lambda front: front.call("resize", 6), ChangeGated, Resized),
]
PROPERTIES: Final = {"gate", "refused_by_mark"}
"""Public names that ask neither side."""


def _many(front: PoolFront, name: str) -> Any:  # noqa: ANN401  # an answer or a failure
    return front.call(name, [Order(NEW, 10), Order(OTHER)])[0]


def _repaired(front: PoolFront) -> Any:  # noqa: ANN401  # a report of either colour
    return front.call("repair", front.call("audit"), yes=True)


IN_ASYNC: Final = {
    "open",
    "grant: a body that ends",
    "reserve: of both",
    "submit: of both",
    "finish_transfers: one",
    "withdraw: of both",
}
"""Calls that are tried with asyncio, too; the others run the same plan."""
CASES: Final = [
    pytest.param(colour, call, id=f"{call.name}-{colour}")
    for call in CALLS
    for colour in ("sync", "async")
    if colour == "sync" or call.name in IN_ASYNC
]


@pytest.fixture
def colour(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "sync"))


@pytest.fixture
def fronts(valkey: ValkeyServer, gate: Gate, order_database: str, colour: str) -> Iterator[tuple[PoolFront, PoolFront]]:
    """The same pool with its gate and without: shard 0 has 3 free units, shard 1 has 10."""
    with RedisStore.from_url(valkey.url) as store:
        pool = ShardedPool(store, SKU, ttl=TTL, outbox=Outbox(), gate=gate)
        pool.open(**OPENING)
        for order_id, quantity in ((RESERVED, 3), (SOLD, 2), (VOID, 1)):
            pool.reserve(order_id, quantity=quantity)
        pool.confirm(SOLD)
        pool.cancel(VOID)
        pool.submit(QUEUED)
        ShardedPool(store, SKU, ttl=DUE_HOLD, hold=DUE_HOLD, gate=gate).reserve(DUE)
        if colour == "sync":
            plain = ShardedPool(store, SKU, ttl=TTL, outbox=Outbox())
            yield ShardedFront(pool, None), ShardedFront(plain, None)
            return
    with asyncio_side(valkey.url, order_database) as (loop, its_store, its_gate):
        bare = AsyncShardedPool(its_store, SKU, ttl=TTL, outbox=Outbox())
        gated = AsyncShardedPool(its_store, SKU, ttl=TTL, outbox=Outbox(), gate=its_gate)
        yield ShardedFront(gated, loop), ShardedFront(bare, loop)


@pytest.fixture
def judge(valkey: ValkeyServer, order_database: str) -> Callable[[], tuple[int, int, int]]:
    return lambda: judged(valkey.url, order_database)


@pytest.mark.parametrize(("colour", "call"), CASES, indirect=["colour"])
def test_without_its_gate_a_call_is_safe_or_refused_and_with_it_both_sides_agree(
    call: Call, fronts: tuple[PoolFront, PoolFront], judge: Callable[[], tuple[int, int, int]]
) -> None:
    gated, bare = fronts
    assert judge() == (20, 2, 13)
    if call.bare == "safe":
        check_type(call.make(bare), call.answer)
    else:
        answer = refusal(call, bare)
        assert type(answer) is call.bare
        assert "gate=gate" in str(answer)
    if "on the way" not in call.name and "one" not in call.name:
        assert judge()[:2] == (20, 2)
    check_type(call.make(gated), call.answer)
    judge()


@pytest.mark.parametrize("number", [0, 1])
def test_a_call_with_the_gate_goes_on_when_another_server_took_over_a_shard(
    number: int, fronts: tuple[PoolFront, PoolFront], judge: Callable[[], tuple[int, int, int]], valkey: ValkeyServer
) -> None:
    gated, bare = fronts
    sku, _, place = shards(gated)[number].sku.partition("\x1f")
    with redis.Redis.from_url(valkey.url) as server:
        server.hset(f"seg:{{{sku}:{place}}}:meta", "server", "another")
    with pytest.raises(PoolUnverified):
        bare.call("reserve", NEW, quantity=10)
    assert isinstance(gated.call("reserve", NEW, quantity=10), Reserved)
    judge()


def test_the_table_has_every_public_call() -> None:
    named = {call.name.partition(":")[0] for call in CALLS}
    for kind in (ShardedPool, AsyncShardedPool):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public - named - PROPERTIES == set()
