"""A gated pool of twenty units on a server that forgets changes: the pool's keys are put back to what they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from segmented import Order, Pool, RedisStore, Settled, SoldOut
from segmented.keys import shard_keys
from segmented.models import Settled as SettledAnswer
from segmented.orders import Gate
from segmented.orders.sale import take_order

SKU: Final = "mug"


@contextmanager
def forgotten(pool: Pool) -> Iterator[None]:
    """Take back all that the body does to the pool's keys."""
    assert isinstance(pool.store, RedisStore)
    client = pool.store.client
    keys = shard_keys(pool.sku)
    names = [*keys.listed(), *(f"{keys.lock}:{segment}" for segment in range(8))]
    before = {name: client.dump(name) for name in names}
    yield
    client.delete(*names)
    for name, content in before.items():
        if content is not None:
            client.restore(name, 0, content)


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int = 1) -> SettledAnswer:
    answer = take_order(pool, gate, Order(order_id, quantity), timeout=60)
    assert isinstance(answer, Settled)
    return answer


def check_sells_the_rest(pool: Pool, gate: Gate) -> None:
    """Every unit is sold once, none is left, and both sides and the ledger agree."""
    free = pool.state().available
    for number in range(free):
        assert sell(pool, gate, f"rest-{number}").state == "confirmed"
    assert isinstance(take_order(pool, gate, Order("too many"), timeout=0), SoldOut)
    state = pool.state()
    totals = gate.totals(pool.sku)
    assert (state.reserved, state.available) == (0, 0)
    assert (totals.sold, totals.quota, gate.confirmed_units(pool.sku)) == (20, 20, 20)
    assert pool.audit().is_clean
