"""The scripts on a real server: each loads, and each touches the keys that the key module names and no others."""

from __future__ import annotations

import pkgutil
from dataclasses import is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import protocol as op
from segmented.keys import OUTBOXES, due_keys, lock_keys, message_keys, shard_keys
from segmented.models import Acquired, Held, Order, Renewed
from segmented.protocol.kinds import LOCK_KINDS
from segmented.protocol.wire import load_script, text
from tests.fixtures.suite import SCRIPTS
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

SKU = "a{b}c"
NAME = "n{a}me"
POOL, LOCK = shard_keys(SKU), lock_keys(NAME)
POOL_KEYS = {POOL.meta, POOL.stock, POOL.free, POOL.ledger}
ORDER_KEYS = POOL_KEYS | {POOL.orders, POOL.holds}


def keys_of(store: RedisStore) -> set[str]:
    return {text(key) for key in store.client.keys("*")}


def test_every_script_of_a_kind_of_lock_is_sent_by_its_folder() -> None:
    for folder in (ROOT / kind.folder for kind in LOCK_KINDS):
        sent = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
        assert {path.stem for path in folder.glob("*.lua") if f'"{path.stem}"' not in sent} == {"kind"}


def test_each_script_starts_with_its_flags_and_loads_under_the_digest_we_ask_for(store: RedisStore) -> None:
    for script in map(load_script, SCRIPTS):
        assert script.text.startswith("#!lua"), script
        assert store.client.script_load(script.text) == script.sha


def test_every_operation_is_a_name_of_the_protocol_and_says_how_it_is_sent() -> None:
    folders = {module.name for module in pkgutil.iter_modules(op.__path__) if module.ispkg} - {"zookeeper"}
    paths = [path for folder in folders for path in (ROOT / "segmented" / "protocol" / folder).glob("*.py")]
    modules = [import_module(f"{op.__name__}.{path.parent.name}.{path.stem}") for path in paths]
    named = [(name, getattr(module, name)) for module in modules for name in vars(module) if name[0] != "_"]
    known = {
        name for name, kind in named if isinstance(kind, type) and is_dataclass(kind) and issubclass(kind, op.Operation)
    }
    listed = {name: getattr(op, name) for name in op.LATE}
    assert known == {name for name, kind in listed.items() if isinstance(kind, type) and issubclass(kind, op.Operation)}
    assert [
        name for name in known if "call" not in {part for one in listed[name].__mro__[:2] for part in vars(one)}
    ] == []


def test_a_lock_keeps_its_holder_and_its_last_token(store: RedisStore) -> None:
    store.execute(op.AcquireLock(NAME, "h", 60_000))
    assert keys_of(store) == {LOCK.lock, LOCK.fence}
    store.execute(op.RenewLock(NAME, "h", 60_000))
    assert keys_of(store) == {LOCK.lock, LOCK.fence}
    store.execute(op.ReleaseLock(NAME, "h"))
    assert keys_of(store) == {LOCK.fence}


def test_every_key_of_a_lock_lapses(store: RedisStore) -> None:
    store.execute(op.AcquireLock(NAME, "h", 60_000))
    assert 30_000 < store.client.pttl(LOCK.lock) <= 60_000
    store.execute(op.ReleaseLock(NAME, "h"))
    day_ms = 24 * 3_600_000
    assert day_ms < store.client.pttl(LOCK.fence) <= day_ms + 60_000


def test_a_grant_adds_its_record_its_hold_and_its_segments_lock(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.Grant(SKU, Order("a", 5), "h", 60_000, 60_000, keep_refusal=True))
    assert keys_of(store) == ORDER_KEYS | {f"{POOL.lock}:0"}
    store.execute(op.RenewGrant(SKU, "a", "h", 60_000, 60_000))
    assert keys_of(store) == ORDER_KEYS | {f"{POOL.lock}:0"}
    store.execute(op.Confirm(SKU, "a"))
    assert keys_of(store) == ORDER_KEYS - {POOL.holds}


@pytest.mark.parametrize("end", [op.Confirm(SKU, "a"), op.Cancel(SKU, "a"), op.Expire(SKU, "a")], ids=str)
def test_a_decided_reservation_leaves_its_record(store: RedisStore, end: op.Operation[object]) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.Reserve(SKU, Order("a", 5), 0))
    assert keys_of(store) == ORDER_KEYS
    store.execute(end)
    assert keys_of(store) == ORDER_KEYS - {POOL.holds}


def test_a_kept_refusal_is_a_record_and_no_more(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.Grant(SKU, Order("a", 50), "h", 60_000, 60_000, keep_refusal=True))
    assert keys_of(store) == POOL_KEYS | {POOL.orders}


def test_a_submitted_order_adds_its_place_in_the_outbox_and_no_more(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.ReserveMany(SKU, (Order("a", 5),), 60_000, publish_after_ms=0))
    assert keys_of(store) == ORDER_KEYS | {POOL.outbox}
    store.execute(op.SweepOutbox(SKU, 10, 1, 0, 0, 60_000, 5))
    assert keys_of(store) == ORDER_KEYS | {POOL.outbox, POOL.entries}
    store.execute(op.Confirm(SKU, "a"))
    assert keys_of(store) == ORDER_KEYS - {POOL.holds}


def test_a_queued_order_is_an_entry_and_a_place_until_a_worker_takes_a_segment(store: RedisStore) -> None:
    queued = POOL_KEYS | {POOL.outbox, POOL.entries}
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.QueueOrders(SKU, (Order("a", 5), Order("large", 50)), 0))
    assert keys_of(store) == queued
    store.execute(op.TakeOrders(SKU, ("a", "large"), "h", 60_000, 60_000, 60_000, 5))
    assert keys_of(store) == ORDER_KEYS | {POOL.outbox, POOL.entries, f"{POOL.lock}:0"}
    store.execute(op.RenewWork(SKU, ("a",), "h", 60_000, 60_000, 60_000))
    assert keys_of(store) == ORDER_KEYS | {POOL.outbox, POOL.entries, f"{POOL.lock}:0"}
    store.execute(op.SettleMany(SKU, "confirmed", ("a",), decided=False, holder_id="h"))
    assert keys_of(store) == ORDER_KEYS - {POOL.holds}


def test_a_dead_order_is_in_the_dead_letter_set_and_out_of_the_outbox(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    store.execute(op.ReserveMany(SKU, (Order("a", 5),), 60_000, publish_after_ms=0))
    store.execute(op.PutOff(SKU, ("a",), "h", 0, counts=True, begun_max=0, reason="it rained"))
    assert keys_of(store) == ORDER_KEYS | {POOL.entries, POOL.dead}
    store.execute(op.ReplayDead(SKU, ("a",)))
    assert keys_of(store) == ORDER_KEYS | {POOL.entries, POOL.outbox}


def test_noted_pools_and_kept_messages_are_one_key_each(store: RedisStore) -> None:
    store.execute(op.NotePool(SKU, submits=True))
    assert keys_of(store) == {OUTBOXES, *due_keys()}
    store.execute(op.KeepMessage("queue", "d", "", "text"))
    assert keys_of(store) == {OUTBOXES, *due_keys(), *message_keys("queue").listed()}


def test_reading_leaves_no_key(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    for operation in (
        op.ReadPool(SKU),
        op.ListDue(SKU, 10),
        op.ReadOrders(SKU, ("a",)),
        op.ScanOrders(SKU, 0),
        op.ReadLedger(SKU, 0, 10),
        op.InspectOrders(SKU, ("a",)),
        op.ScanIds(SKU, "holds", 0),
        op.ScanChanges(SKU, 0),
        op.ReadCustomers(SKU, ("ann",)),
        op.ReadLedgerStart(SKU),
        op.ReadSubmitted(SKU, ("a",)),
        op.ReadOutbox(SKU),
        op.ListDead(SKU, 0),
        op.ListOutboxes(),
        op.ListPools(),
        op.ListDuePools("sweep", 0),
        op.ReadNextDue(SKU),
        op.ReadAudit(SKU),
        op.ListMessages("queue"),
    ):
        store.execute(operation)
    assert keys_of(store) == POOL_KEYS


def test_all_keys_of_a_pool_are_in_one_hash_slot() -> None:
    slots = {redis.crc.key_slot(key.encode()) for key in [*POOL.listed(), f"{POOL.lock}:0", f"{POOL.lock}:4095"]}
    assert len(slots) == 1
    assert len({redis.crc.key_slot(key.encode()) for key in LOCK.listed()}) == 1


@pytest.mark.parametrize(
    ("name", "fence"), [("door", "{door}:seg:fence"), ("a{b}c", "a{b}c:seg:fence"), ("a}b", "a}b:seg:fence")]
)
def test_a_lock_on_a_key_of_the_callers_own_has_that_key_and_its_fence(
    store: RedisStore, name: str, fence: str
) -> None:
    store.execute(op.AcquireLock(name, "h", 60_000, is_key=True))
    assert keys_of(store) == {name, fence}
    assert store.execute(op.RenewLock(name, "h", 90_000, is_key=True)) == Renewed(90_000)
    assert store.execute(op.RenameHolder(name, "h", "i", is_key=True))
    assert store.client.get(name) in (b"i", "i")
    found = store.execute(op.AdoptLock(name, "i", 60_000, is_key=True))
    assert isinstance(found, Acquired)
    assert 60_000 < found.ttl_ms <= 90_000
    store.execute(op.ReleaseLock(name, "i", is_key=True))
    assert keys_of(store) == {fence}


def test_a_key_without_an_end_is_adopted_for_the_time_that_was_asked_for(store: RedisStore) -> None:
    store.client.set("door", "somebody")
    found = store.execute(op.AdoptLock("door", "somebody", 5_000, is_key=True))
    assert isinstance(found, Acquired)
    assert found.ttl_ms == 5_000


def test_a_waiter_for_a_key_of_the_callers_own_looks_again_within_a_second(store: RedisStore) -> None:
    for ttl_ms in (None, 60_000):
        store.client.set("door", "somebody", px=ttl_ms)
        assert store.execute(op.AcquireLock("door", "h", 60_000, is_key=True)) == Held(1_000)
