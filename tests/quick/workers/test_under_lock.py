"""Where a submitted order's units are taken: by default without any lock; one word has a worker do it under one."""

import pytest

from segmented import Outbox, Pool, RedisStore
from segmented.keys import shard_keys
from segmented.models.submitted import BegunOrder
from segmented.orders import take_envelope
from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


def held_segments(store: RedisStore, sku: str) -> list[int]:
    keys = shard_keys(sku)
    return [segment for segment in range(4) if store.client.exists(f"{keys.lock}:{segment}")]


def test_under_lock_workers_each_take_units_under_a_segments_lock_and_its_token(valkey: ValkeyServer) -> None:
    seen: dict[str, tuple[int, int | None]] = {}

    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "mug", outbox=Outbox.under_lock())

        def step(begun: BegunOrder) -> None:
            seen[begun.order.order_id] = begun.segment, begun.fencing_token
            if begun.order.order_id == "o-1":  # another worker's begins meanwhile
                take_envelope(pool, ["o-2"], step=step)
            else:
                assert held_segments(store, "mug") == sorted(segment for segment, _ in seen.values())

        pool.open(stock=8, segments=4)
        for order_id in ("o-1", "o-2"):
            pool.submit(order_id, quantity=2)
        assert pool.state().available == 8
        take_envelope(pool, ["o-1"], step=step)
        assert (pool.state().confirmed, held_segments(store, "mug")) == (4, [])
    assert len({segment for segment, _ in seen.values()}) == 2
    assert len({token for _, token in seen.values()} - {None}) == 2


def test_by_default_units_are_taken_at_acceptance_and_the_worker_holds_no_lock(valkey: ValkeyServer) -> None:
    seen: list[tuple[list[int], int | None]] = []

    def step(begun: BegunOrder) -> None:
        seen.append((held_segments(store, "mug"), begun.fencing_token))

    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "mug", outbox=Outbox())
        pool.open(stock=8, segments=4)
        pool.submit("o-1", quantity=2)
        assert pool.state().available == 6
        take_envelope(pool, ["o-1"], step=step)
        assert pool.state().confirmed == 2
    assert seen == [([], None)]
