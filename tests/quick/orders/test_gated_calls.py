"""Every public call of a gated pool, sync and asyncio, with its gate and without: SQL and Redis agree after it.

The judge reads SQL and Redis itself (`tests.support.pools.both_sides`). A call that is safe without the gate decides no
order and changes no stock: it takes units for a while, reads, extends, corrects Redis by its own ledger, or refuses new
orders. Every other call raises PoolGated, or one of its kinds, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest

from segmented import AsyncPool, Order, Outbox, Pool, RedisStore, Reserved, Settled, protocol as op
from segmented.errors import AlreadySettled, ChangeGated, PoolGated
from segmented.models import (
    AlreadyOpen,
    Assigned,
    OrderRecord,
    PoolClosed,
    PoolState,
    Resized,
    Restocked,
    Returned,
    Trimmed,
)
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from segmented.stock import AsyncGrant, AuditReport, Grant, RepairReport
from segmented.stock.order_handle import HandleState
from tests.support.pools.both_sides import judged
from tests.support.pools.fronts import Front, asyncio_side

SKU: Final = "mug"
GRANTS: Final = (Grant, AsyncGrant)
OPENING: Final[dict[str, Any]] = {"stock": 20, "segments": 2}
DUE_HOLD: Final = 0.001
SECONDS: Final = 60.0
TTL: Final = 600.0
"""Seconds that a lease lives: more than a test may take."""


class PoolFront(Front):
    """A pool in one colour."""

    @property
    def pool(self) -> Any:  # noqa: ANN401  # of either colour
        return self.subject

    def body(self, order_id: str, error: Exception | None = None) -> Any:  # noqa: ANN401  # as any call of the pool
        """Sell an order with a `with` statement."""
        if self._loop is None:
            with self.pool.grant(order_id, timeout=SECONDS):
                if error is not None:
                    raise error
            return None

        async def main() -> None:
            async with self.pool.grant(order_id, timeout=SECONDS):
                if error is not None:
                    raise error

        return self._loop.run_until_complete(main())

    def granted(self) -> Any:  # noqa: ANN401  # a grant of either colour
        answer = self.call("grant", "granted bare" if self.pool.gate is None else "granted", timeout=SECONDS)
        assert isinstance(answer, GRANTS)
        return answer

    def frozen(self) -> PoolFront:
        self.ended(self.pool.store.execute(op.FreezePool(SKU, 1)))
        return self

    def listed(self, name: str) -> list[Any]:
        if self._loop is None:
            return list(getattr(self.pool, name)())

        async def main() -> list[Any]:
            return [entry async for entry in getattr(self.pool, name)()]

        return self._loop.run_until_complete(main())


@dataclass(frozen=True)
class Call:
    """One public call: what it does without the gate, and what it answers with it."""

    name: str
    make: Callable[[PoolFront], Any]
    bare: type[Exception] | Literal["safe"]
    answer: Any
    """The type of the answer with the gate, which is that without it if the call is safe."""


CALLS: Final = [
    # --- safe without the gate ---
    Call("state", lambda front: front.call("state"), "safe", PoolState),
    Call("known_state", lambda front: front.call("known_state"), "safe", PoolState),
    Call("available", lambda front: front.call("available"), "safe", int),
    Call("order", lambda front: front.call("order", "reserved"), "safe", OrderRecord),
    Call("orders", lambda front: front.listed("orders"), "safe", list),
    Call("is_gated", lambda front: front.call("is_gated"), "safe", bool),
    Call("epoch", lambda front: front.call("epoch"), "safe", int),
    Call("handle", lambda front: front.pool.handle("queued"), "safe", HandleState),
    Call("audit", lambda front: front.call("audit"), "safe", AuditReport),
    Call("repair", lambda front: front.call("repair", front.call("audit"), yes=True), "safe", RepairReport),
    Call("read_ledger", lambda front: front.listed("read_ledger"), "safe", list),
    Call("trim_ledger", lambda front: front.call("trim_ledger", keep=0), "safe", Trimmed),
    Call("note_token", lambda front: front.pool.note_token(1), "safe", None),
    Call("reserve", lambda front: front.call("reserve", "new"), "safe", Reserved),
    Call("reserve_many", lambda front: front.call("reserve_many", [Order("new")])[0], "safe", Reserved),
    Call("submit", lambda front: front.call("submit", "new"), "safe", HandleState),
    Call("submit_many", lambda front: front.call("submit_many", [Order("new")])[0], "safe", HandleState),
    Call("grant", lambda front: front.granted().order_id, "safe", str),
    Call("renew", lambda front: front.call("renew", front.granted()), "safe", None),
    Call("extend", lambda front: front.call("extend", "reserved", seconds=SECONDS), "safe", Reserved),
    Call("change", lambda front: front.call("change", "reserved", quantity=1), "safe", Reserved),
    Call("close", lambda front: front.call("close"), "safe", PoolClosed),
    Call("assign", lambda front: front.call("assign", queue="concerts", step=None), "safe", Assigned),
    # --- only with the gate ---
    Call("open", lambda front: front.call("open", **OPENING), ChangeGated, AlreadyOpen),
    Call("grant: a body that ends", lambda front: front.body("new"), PoolGated, None),
    Call("grant: confirm", lambda front: front.ended(front.granted().confirm()), PoolGated, Settled),
    Call("grant: cancel", lambda front: front.ended(front.granted().cancel()), PoolGated, Settled),
    Call("confirm", lambda front: front.call("confirm", "reserved"), PoolGated, Settled),
    Call("confirm: queued", lambda front: front.call("confirm", "queued"), PoolGated, Settled),
    Call("confirm_many", lambda front: front.call("confirm_many", ["reserved"])[0], PoolGated, Settled),
    Call("cancel", lambda front: front.call("cancel", "reserved"), PoolGated, Settled),
    Call("cancel: queued", lambda front: front.call("cancel", "queued"), PoolGated, Settled),
    Call("cancel_many", lambda front: front.call("cancel_many", ["reserved"])[0], PoolGated, Settled),
    Call("expire", lambda front: front.call("expire"), PoolGated, tuple),
    Call("return_units", lambda front: front.call("return_units", "sold", 1, return_id="rma"), PoolGated, Returned),
    Call("restock", lambda front: front.call("restock", 5, restock_id="r"), ChangeGated, Restocked),
    Call("withdraw", lambda front: front.call("withdraw", 5, withdraw_id="w"), ChangeGated, Restocked),
    Call("resize", lambda front: front.call("resize", 3), ChangeGated, Resized),
]
NEVER: Final = {
    "thaw": lambda front: front.frozen().call("thaw", sold=0),
}
"""Calls that would decide past the database, with or without the gate."""
PROPERTIES: Final = {
    *("gate", "plain", "in_threads", "refused_by_mark", "tokens_above", "last_state"),
    *("share", "note_return", "on_return"),
    "grant_by",  # as `grant`, by a plan of a pool in shards
}
"""Public names that ask neither side."""


IN_ASYNC: Final = {
    "open",
    "grant: a body that ends",
    "confirm",
    "confirm_many",
    "cancel",
    "expire",
    "extend",
    "change",
    "return_units",
    "restock",
    "resize",
    "close",
    "reserve",
    "submit",
    "audit",
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
    """The same pool with its gate and without, with orders in each state."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU, ttl=TTL, outbox=Outbox(), gate=gate)
        pool.open(**OPENING)
        for order_id, quantity in (("reserved", 3), ("sold", 2), ("void", 1)):
            pool.reserve(order_id, quantity=quantity)
        pool.confirm("sold")
        pool.cancel("void")
        pool.submit("queued")
        Pool(store, SKU, ttl=DUE_HOLD, hold=DUE_HOLD, gate=gate).reserve("due")
        if colour == "sync":
            yield PoolFront(pool, None), PoolFront(Pool(store, SKU, ttl=TTL, outbox=Outbox()), None)
            return
    with asyncio_side(valkey.url, order_database) as (loop, its_store, its_gate):
        plain = AsyncPool(its_store, SKU, ttl=TTL, outbox=Outbox())
        gated = AsyncPool(its_store, SKU, ttl=TTL, outbox=Outbox(), gate=its_gate)
        yield PoolFront(gated, loop), PoolFront(plain, loop)


@pytest.fixture
def judge(valkey: ValkeyServer, order_database: str) -> Callable[[], tuple[int, int, int]]:
    return lambda: judged(valkey.url, order_database)


@pytest.mark.parametrize(("colour", "call"), CASES, indirect=["colour"])
def test_without_its_gate_a_call_is_safe_or_refused_and_with_it_both_sides_agree(
    call: Call, fronts: tuple[PoolFront, PoolFront], judge: Callable[[], tuple[int, int, int]]
) -> None:
    gated, bare = fronts
    stocked, sold, _ = judge()
    assert (stocked, sold) == (20, 2)
    if call.bare == "safe":
        check_type(call.make(bare), call.answer)
    else:
        answer = refusal(call, bare)
        assert type(answer) is call.bare
        assert "gate=gate" in str(answer)
    assert judge()[:2] == (20, 2)
    check_type(call.make(gated), call.answer)
    judge()


@pytest.mark.parametrize("name", NEVER)
def test_nothing_decides_past_the_database(
    name: str, fronts: tuple[PoolFront, PoolFront], judge: Callable[[], tuple[int, int, int]]
) -> None:
    gated, bare = fronts
    for front, error in ((bare, PoolGated), (gated, (PoolGated, ValueError))):
        with pytest.raises(error):
            NEVER[name](front)
        assert judge()[:2] == (20, 2)


def test_a_hold_extended_after_its_end_is_void_in_the_database_first(
    fronts: tuple[PoolFront, PoolFront], judge: Callable[[], tuple[int, int, int]]
) -> None:
    gated, bare = fronts
    with pytest.raises(PoolGated):
        bare.call("extend", "due", seconds=SECONDS)
    assert judge() == (20, 2, 13)
    with pytest.raises(AlreadySettled, match=r"^order 'due' is already expired: its hold is not lengthened$"):
        gated.call("extend", "due", seconds=SECONDS)
    assert judge() == (20, 2, 14)
    assert gated.pool.gate.orders(SKU, ["due"])["due"].state == "void"


def test_the_table_has_every_public_call() -> None:
    named = {call.name.partition(":")[0] for call in CALLS} | set(NEVER)
    for kind in (Pool, AsyncPool):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public - named - PROPERTIES == set()


def check_type(answer: object, wanted: Any) -> None:  # noqa: ANN401  # a type or None
    assert answer is None if wanted is None else isinstance(answer, wanted), answer


def refusal(call: Call, bare: PoolFront) -> object:
    """Return the error that the call raises, or the failure in its list of answers."""
    try:
        return call.make(bare)
    except PoolGated as error:
        return error
