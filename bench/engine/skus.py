"""The skus of a cell: each has a pool of its own, and a draw that depends only on seed and order chooses the sku.

A buyer chooses a sku with a probability proportional to 1 / rank^zipf (G. Zipf, 1949): with 0 all are alike, with 1.1
the first of 16 gets a third of all orders. The orders of one call are for the same sku.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bench.engine.cell import Cell

DIGEST_BYTES: Final = 6
"""Bytes of a draw: as a fraction below 1 it is exact."""


@dataclass(frozen=True, slots=True)
class SkuChoice:
    """The sku of each order of a run."""

    seed: int
    batch: int
    weights: tuple[float, ...]
    """Sums of the probabilities up to each sku, the most popular first; the last is their total."""

    def of(self, number: int) -> int:
        """Return the sku of an order by its number: 0 is the most popular."""
        call = (number - 1) // self.batch
        drawn = hashlib.blake2b(f"{self.seed}:{call}".encode(), digest_size=DIGEST_BYTES).digest()
        share = int.from_bytes(drawn, "big") / (1 << 8 * DIGEST_BYTES)
        return bisect_right(self.weights, share * self.weights[-1])

    def shares(self, stock: int, quantity: int) -> tuple[int, ...]:
        """Return the units of each sku: those for which the first orders ask, so that all skus last equally long.

        Each sku has at least one unit, because no pool opens without any; the stock is at least one unit a sku.
        """
        found = [0] * len(self.weights)
        a_call = self.batch * quantity
        for number in range(1, -(-stock // quantity) + 1, self.batch):
            found[self.of(number)] += min(a_call, stock - (number - 1) * quantity)
        for _ in range(found.count(0)):
            found[found.index(max(found))] -= 1
            found[found.index(0)] = 1
        assert sum(found) == stock, "a split of units neither creates nor loses one"
        assert min(found) > 0, "each sku has a unit"
        return tuple(found)


def choice_of(cell: Cell, seed: int) -> SkuChoice:
    """Return the skus of a run's orders."""
    weights = accumulate(rank**-cell.zipf for rank in range(1, cell.skus + 1))
    return SkuChoice(seed, cell.batch, tuple(weights))
