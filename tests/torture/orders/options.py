"""The options of `torture orders`, validated once, and the schedule of its kills."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from segmented.errors import InvalidInput
from segmented.models.submitted import Deciding
from tests.torture.options import require_one_of, require_seed, require_within
from tests.torture.orders.messages import WorkerState

Effect = Literal["redis", "postgresql"]
"""Where an order takes effect: in the pool only, or also in the order database."""

ORDERS_MAX: Final = 10_000_000
KILLS_MAX: Final = 100_000
ORDERS_A_KILL: Final = 200
"""Minimum orders per kill: fewer would be done before the next worker is ready."""
WORKERS_MAX: Final = 64
STOCK_PERMILLE: Final = 975
"""Units to sell per thousand units ordered."""
QUICK_SHARE: Final = 10
QUANTITY_MAX: Final = 3
KNUTH: Final = 2_654_435_761
"""Spreads consecutive numbers evenly (Knuth, The Art of Computer Programming, volume 3, 6.4)."""
DONE_BETWEEN: Final = 50
"""Minimum number of orders done between two kills."""
LATER: Final = (0.05, 0.15)
"""Seconds from there to the kill, drawn at random."""
SPREAD: Final = 0.9
"""Share of the orders over which the kills are spread evenly; there are no kills after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersOptions:
    """The options of a run."""

    orders: int = 20_000
    kills: int = 40
    decides: str = "at acceptance"
    effect: str = "redis"
    workers: int = 2
    seed: int = 1
    is_quick: bool = False

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--orders", self.orders, 1, ORDERS_MAX)
        require_within("--kills", self.kills, 0, KILLS_MAX)
        require_within("--workers", self.workers, 1, WORKERS_MAX)
        require_one_of("--decides", self.decides, get_args(Deciding))
        require_one_of("--effect", self.effect, get_args(Effect))
        require_seed(self.seed)
        if self.kill_count and self.order_count < ORDERS_A_KILL * self.kill_count:
            quick = " with --quick" if self.is_quick else ""
            raise InvalidInput(
                f"--orders {self.orders}{quick} is too few for --kills {self.kills}: "
                f"{ORDERS_A_KILL} orders a kill are needed, so that there is work left to be killed at"
            )

    @property
    def order_count(self) -> int:
        """Number of orders to submit."""
        return max(1, self.orders // QUICK_SHARE) if self.is_quick else self.orders

    @property
    def kill_count(self) -> int:
        """Number of workers to kill."""
        return self.kills // QUICK_SHARE if self.is_quick else self.kills

    def stock(self) -> int:
        """Return the units to sell: too few, so that some orders are refused."""
        asked = sum(quantity_of(number, self.seed) for number in range(1, self.order_count + 1))
        return max(1, asked * STOCK_PERMILLE // 1_000)


def quantity_of(number: int, seed: int) -> int:
    """Return the quantity of an order: 1 to 3, the same in every process."""
    return 1 + ((number + seed) * KNUTH % 2**32 >> 16) % QUANTITY_MAX


class KillSchedule:
    """Waits until enough orders are done, then a random delay, and chooses a random busy worker."""

    def __init__(self, kills: int, orders: int, chance: random.Random) -> None:
        """Plan that many kills over that many orders."""
        self._kills = kills
        self._step = orders * SPREAD / (kills + 1)
        self._chance = chance
        self._due: float | None = None
        self._done_at_last = 0
        self.killed = 0

    @property
    def is_over(self) -> bool:
        """Return whether all planned kills are done."""
        return self.killed >= self._kills

    def choose(self, done: int, now: float, workers: Mapping[int, WorkerState]) -> int | None:
        """Return the number of the worker to kill now, or None."""
        if self.is_over:
            return None
        if self._due is None:
            if done >= max(self._done_at_last + DONE_BETWEEN, self._step * (self.killed + 1)):
                self._due = now + self._chance.uniform(*LATER)
            return None
        busy = [number for number, worker in sorted(workers.items()) if worker.is_ready and worker.begun]
        if now < self._due or not busy:
            return None
        self._due, self._done_at_last = None, done
        self.killed += 1
        return self._chance.choice(busy)
