"""How many scripts an envelope takes, as the server counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import Outbox, Pool, RedisStore
from segmented.orders import take_envelope
from segmented.orders.work_terms import WorkTerms

if TYPE_CHECKING:
    from segmented.models.submitted import Deciding
    from segmented.servers import ValkeyServer


LONG = WorkTerms(ttl=600, work=600)
"""A worker with more time than a test may take renews nothing, so no script is counted for that."""


def scripts_of(store: RedisStore, worker: Pool, order_id: str, decides: Deciding) -> int:
    """Submit an order, and count the scripts of the worker that finishes it."""
    assert Pool(store, worker.sku, outbox=Outbox(None, decides)).submit(order_id).outcome is None
    store.client.config_resetstat()
    (settled,) = take_envelope(worker, [order_id], terms=LONG).settled
    assert settled.state == "confirmed"
    found = store.client.info("commandstats")
    return int(found["cmdstat_evalsha"]["calls"])


def test_a_worker_expects_of_a_pool_what_it_has_seen_of_it_last(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store:
        worker = Pool(store, "mug")
        worker.open(stock=10, segments=2)
        assert not worker.is_gated()
        scripts_of(store, worker, "w-1", "in the worker")  # has the server cache the scripts
        scripts_of(store, worker, "w-2", "at acceptance")
        turns: list[tuple[Deciding, int]] = [
            ("at acceptance", 1),
            ("in the worker", 3),
            ("in the worker", 2),
            ("at acceptance", 2),
            ("at acceptance", 1),
        ]
        assert [
            (decides, scripts_of(store, worker, f"o-{at}", decides)) for at, (decides, _) in enumerate(turns)
        ] == turns
        assert worker.state().confirmed == 7
        assert worker.audit().is_clean
