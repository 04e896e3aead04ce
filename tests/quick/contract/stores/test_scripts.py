"""The scripts on a real server: each loads, and each touches the keys that the key module names and no others."""

import pkgutil
from dataclasses import is_dataclass
from importlib import import_module

import pytest

from segmented import protocol as op
from segmented.keys import lock_keys, shard_keys
from segmented.models import Acquired, Held, Renewed
from segmented.protocol.wire import load_script, text
from segmented.stores.redis import RedisStore
from tests.fixtures.suite import SCRIPTS
from tests.support.paths import ROOT

SKU = "a{b}c"
NAME = "n{a}me"
POOL, LOCK = shard_keys(SKU), lock_keys(NAME)
POOL_KEYS = {POOL.meta, POOL.stock, POOL.free, POOL.ledger}


def keys_of(store: RedisStore) -> set[str]:
    return {text(key) for key in store.client.keys("*")}


def test_each_script_starts_with_its_flags_and_loads_under_the_digest_we_ask_for(store: RedisStore) -> None:
    for script in map(load_script, SCRIPTS):
        assert script.text.startswith("#!lua"), script
        assert store.client.script_load(script.text) == script.sha


def test_every_operation_is_a_name_of_the_protocol_and_says_how_it_is_sent() -> None:
    folders = {module.name for module in pkgutil.iter_modules(op.__path__) if module.ispkg}
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


def test_reading_leaves_no_key(store: RedisStore) -> None:
    store.execute(op.OpenPool(SKU, 10, 4, gated=False))
    for operation in (
        op.ReadPool(SKU),
        op.ListDue(SKU, 10),
        op.ReadOrders(SKU, ("a",)),
        op.ScanOrders(SKU, 0),
        op.ReadLedger(SKU, 0, 10),
        op.InspectOrders(SKU, ("a",)),
        op.ScanKey(SKU, "holds", 0),
        op.ScanKey(SKU, "changes", 0),
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


def test_a_waiter_for_a_key_of_the_callers_own_looks_again_within_a_second(store: RedisStore) -> None:
    for ttl_ms in (None, 60_000):
        store.client.set("door", "somebody", px=ttl_ms)
        assert store.execute(op.AcquireLock("door", "h", 60_000, is_key=True)) == Held(1_000)
