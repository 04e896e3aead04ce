"""Grants per second compared with the segments' bound, min(segments, waiting) / hold, and the client's CPU use."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.micro.stock.context import STOCK, server_of
from segmented import AsyncGrant, AsyncPool, AsyncRedisStore, protocol as op

if TYPE_CHECKING:
    from bench.micro.stock.context import BenchContext
    from segmented.models import LedgerEntry

SHARE_MIN: Final = 0.97
CLIENT_MAX: Final = 0.8
"""Share of its core above which the client is the bottleneck."""
WAITING: Final = 2
"""Workers per segment: one works, one waits."""
PAGE: Final = 1_000
MICROSECONDS: Final = 1_000_000
TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class GrantRun:
    """One run."""

    share: float
    """Share of the bound, over the middle of the run."""
    per_second: float
    hold_ms: float
    """Mean hold, from reserved to confirmed by the server's clock."""
    client_cpu: float


def measure_grants(context: BenchContext) -> list[Figure]:
    """Measure every hold with every number of segments."""
    figures: list[Figure] = []
    runs = [(hold_ms, lanes) for hold_ms in context.sizes.holds_ms for lanes in context.sizes.lanes]
    with server_of(context):
        for number, (hold_ms, lanes) in enumerate(runs):
            context.progress(f"grants, hold {hold_ms} ms, {lanes} segments", number, len(runs))
            run = asyncio.run(_run(context, hold_ms, lanes))
            is_bound_by_client = run.client_cpu >= CLIENT_MAX
            figures.append(
                Figure(
                    f"grants, hold {hold_ms} ms, {lanes} segments: share of the bound",
                    run.share,
                    "",
                    at_least=None if is_bound_by_client else SHARE_MIN,
                    detail={
                        "grants_per_s": run.per_second,
                        "mean_hold_ms": run.hold_ms,
                        "client_cpu": run.client_cpu,
                        "workers": WAITING * lanes,
                    },
                )
            )
            figures.append(Figure(f"grants, hold {hold_ms} ms, {lanes} segments: client", run.client_cpu, "cores"))
    return figures


async def _run(context: BenchContext, hold_ms: int, lanes: int) -> GrantRun:
    sku = context.sku(f"grants-{hold_ms}-{lanes}")
    async with await AsyncRedisStore.from_url(context.url) as store:
        pool = AsyncPool(store, sku)
        await pool.open(stock=STOCK, segments=lanes)
        ends_at = time.perf_counter() + context.sizes.grant_seconds

        async def work(worker: int) -> None:
            number = 0
            while time.perf_counter() < ends_at:
                number += 1
                grant = await pool.grant(f"{worker}-{number}", timeout=TIMEOUT)
                if isinstance(grant, AsyncGrant):
                    await asyncio.sleep(hold_ms / 1_000)
                    await grant.confirm()

        used, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(work(worker) for worker in range(WAITING * lanes)))
        cpu = (time.process_time() - used) / (time.perf_counter() - began)
        return _grant_run(await _ledger(store, sku), lanes, cpu)


async def _ledger(store: AsyncRedisStore, sku: str) -> list[LedgerEntry]:
    found: list[LedgerEntry] = []
    after = 0
    while page := await store.execute(op.ReadLedger(sku, after, PAGE)):
        found += page
        after = page[-1].sequence
    return found


def _grant_run(ledger: list[LedgerEntry], lanes: int, cpu: float) -> GrantRun:
    """Fold the ledger: how long orders held segments, as a share of the segments' total time.

    The first and the last tenth are left out, since not all workers are busy then.
    """
    began = {entry.order_id: entry.at_us for entry in ledger if entry.kind == "reserved"}
    spans = [(began[entry.order_id], entry.at_us) for entry in ledger if entry.kind == "confirmed"]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    margin = (last - first) // 10
    first, last = first + margin, last - margin
    held = sum(max(0, min(end, last) - max(start, first)) for start, end in spans)
    inside = [end - start for start, end in spans if first <= end <= last]
    return GrantRun(
        share=held / (lanes * (last - first)),
        per_second=len(inside) * MICROSECONDS / (last - first),
        hold_ms=sum(inside) / max(1, len(inside)) / 1_000,
        client_cpu=cpu,
    )
