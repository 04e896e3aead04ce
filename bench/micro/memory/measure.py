"""Measure the bytes of each kind on an embedded server with an append-only file."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.conditions import server_conditions
from bench.micro.memory.kinds import KINDS, OTHER, SKU, Kind
from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stock.archiving import archive
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.display import Progress

ORDERS: Final = 20_000
WARM: Final = 1_000
"""Records that are made first: small hashes have another encoding, and buffers grow."""
STOCK: Final = 10**9
SEGMENTS: Final = 20
NO_REWRITE: Final = {"auto-aof-rewrite-percentage": "0"}


@dataclass(frozen=True, slots=True)
class KindBytes:
    """Bytes of one record of a kind."""

    name: str
    summary: str
    records: int
    memory: float
    """Growth of the server's memory."""
    ledger: float
    """The part of it that is in the ledger, which a trim gives back."""
    disk: float
    """Growth of the append-only file before it is rewritten."""
    after_archive: float | None
    """Memory that is left once the pool is archived; None for records that are in no pool."""
    archive_file: float | None
    """Bytes in the compressed archive."""


def measure(orders: int, progress: Progress) -> dict[str, Any]:
    """Measure all kinds, each on an empty server."""
    with tempfile.TemporaryDirectory() as folder, ValkeyServer.start(folder, config=NO_REWRITE) as server:
        conditions = server_conditions(server.url)
        found = []
        for number, kind in enumerate((KINDS[1], *KINDS)):  # the first one twice: scripts and buffers are there then
            progress(kind.name, number, len(KINDS) + 1)
            with RedisStore.from_url(server.url) as store:  # a store would remember the pools before
                found.append(_measured(store, kind, max(WARM, orders // kind.divisor), Path(folder)))
    return {"orders": orders, "kinds": [asdict(one) for one in found[1:]], "conditions": conditions}


def _measured(store: RedisStore, kind: Kind, count: int, folder: Path) -> KindBytes:
    store.client.flushall()
    empty = _memory(store)
    pools = [Pool(store, sku) for sku in (SKU, OTHER)]
    for pool in pools:
        store.execute(
            op.OpenPool(pool.sku, STOCK, SEGMENTS, gated=kind.gated, limit_per_customer=kind.limit_per_customer)
        )
    kind.make(store, 0, WARM)
    before, ledger_before, disk_before = _memory(store), _ledger(store), _disk(store)
    kind.make(store, WARM, count)
    records = count * kind.share
    memory, disk = (_memory(store) - before) / records, (_disk(store) - disk_before) / records
    ledger = (_ledger(store) - ledger_before) / records
    left, size = _archived(store, kind, pools, records, empty, folder)
    return KindBytes(kind.name, kind.summary, records, memory, ledger, disk, left, size)


def _archived(
    store: RedisStore, kind: Kind, pools: list[Pool], records: int, empty: int, folder: Path
) -> tuple[float | None, float | None]:
    """Archive the pools; return the memory that is left and the size of the files, for each record."""
    if not kind.in_pool or kind.name == "reserved":
        return None, None
    size = 0
    for pool in pools:
        pool.close()
        file = folder / f"{pool.sku}.jsonl.gz"
        file.unlink(missing_ok=True)
        archive(pool, file)
        size += file.stat().st_size
    return max(0.0, (_memory(store) - empty) / records), size / records


def _memory(store: RedisStore) -> int:
    """Return the server's memory, without that of connections; lazily freed memory is waited for."""
    while store.client.info("memory").get("lazyfree_pending_objects", 0):
        time.sleep(0.01)
    found = store.client.info("memory")
    return int(found["used_memory"]) - int(found["mem_clients_normal"])


def _ledger(store: RedisStore) -> int:
    return sum(int(store.client.memory_usage(shard_keys(sku).ledger, samples=0) or 0) for sku in (SKU, OTHER))


def _disk(store: RedisStore) -> int:
    return int(store.client.info("persistence")["aof_current_size"])


def read(file: Path) -> dict[str, Any]:
    """Read the results of a run."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
