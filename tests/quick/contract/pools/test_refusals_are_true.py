"""The change that a refusal names: alone, in a batch, in merged calls, while units come back and are taken."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

from segmented.models import Order, Reserved, SoldOut
from segmented.stock import AsyncGrant, AsyncPool
from segmented.stock.fold import LedgerFold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.clock import ManualClock
    from tests.support.contract.pools.merged import Run, Watched

BUYERS: Final = 20
CALLS: Final = 20


async def buy(
    pools: list[AsyncPool], clock: ManualClock, chance: random.Random, names: Iterator[int], refused: list[SoldOut]
) -> None:
    """Reserve, grant, restock and cancel at random while time passes, and keep every refusal."""
    for _ in range(CALLS):
        clock.advance(0.0001)
        pool = chance.choice(pools)
        order, *others = (Order(f"o{next(names)}", chance.randint(1, 6)) for _ in range(5))
        match chance.randrange(4):
            case 0:
                answers: list[object] = [await pool.reserve(order, partial=chance.random() < 0.2)]
            case 1:
                answers = [*await pool.reserve_many(others, partial=chance.random() < 0.2)]
            case 2:
                answers = [await pool.grant(order, timeout=0, keep_refusal=chance.random() < 0.5)]
            case _:
                await pool.restock(chance.randint(1, 4), restock_id=f"r{next(names)}")
                continue
        refused += [answer for answer in answers if isinstance(answer, SoldOut)]
        for answer in answers:
            if isinstance(answer, AsyncGrant | Reserved) and chance.random() < 0.6:  # more come back than not
                await pool.cancel(answer.order_id)


@pytest.mark.parametrize("hold", [0.005, 600.0], ids=["holds that lapse", "holds that last"])
@pytest.mark.parametrize("mark", [0.0, 0.1], ids=["without a mark", "with a mark"])
def test_every_refusal_is_true_just_after_the_change_that_it_names(run: Run, hold: float, mark: float) -> None:
    async def scenario(pool: AsyncPool, store: Watched) -> None:
        refused: list[SoldOut] = []
        names = count()
        for seed in range(1):
            other = AsyncPool(store, pool.sku, ttl=0.005, hold=hold, sold_out_mark=mark)
            chance = random.Random(seed)
            await asyncio.gather(*(buy([pool, other], store.clock, chance, names, refused) for _ in range(BUYERS)))
        fold = LedgerFold()
        fold.apply([entry async for entry in pool.read_ledger()])
        assert len(refused) > 30
        assert [one for one in refused if fold.covers(one.quantity, one.sequence)] == []

    run(scenario)
