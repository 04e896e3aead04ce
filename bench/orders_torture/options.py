"""The options of `torture orders`, validated once. Each error names the option and its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from segmented.errors import InvalidInput
from segmented.models.submitted import Deciding

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
        _within("--orders", self.orders, 1, ORDERS_MAX)
        _within("--kills", self.kills, 0, KILLS_MAX)
        _within("--workers", self.workers, 1, WORKERS_MAX)
        _one_of("--decides", self.decides, get_args(Deciding))
        _one_of("--effect", self.effect, get_args(Effect))
        if self.seed < 0:
            message = f"--seed {self.seed} must not be negative"
            raise InvalidInput(message)
        if self.kill_count and self.order_count < ORDERS_A_KILL * self.kill_count:
            quick = " with --quick" if self.is_quick else ""
            message = (
                f"--orders {self.orders}{quick} is too few for --kills {self.kills}: "
                f"{ORDERS_A_KILL} orders a kill are needed, so that there is work left to be killed at"
            )
            raise InvalidInput(message)

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


def _within(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        message = f"{option} {value} must be between {low:,} and {high:,}"
        raise InvalidInput(message)


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        message = f"{option} {value!r} is not one of {', '.join(map(repr, known))}"
        raise InvalidInput(message)
