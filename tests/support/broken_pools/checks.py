"""What a pool must do, one function for a row of the catalogue of problems; each fails with an AssertionError."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tests.support.broken_pools.stands import oversleep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broken_pools.stands import CheckedPool

CLICKS: Final = 100
THREADS: Final = 16


def no_refusal_before_the_last_unit(pool: CheckedPool) -> None:
    """Row 1: many customers, one unit each; at the first refusal nothing is left."""
    pool.open(200, 20)
    sold = 0
    while pool.buy(f"order {sold}", 1, f"customer {sold % 37}"):
        sold += 1
        assert sold <= 200, "oversold"
    assert (sold, pool.left()) == (200, 0), "refused while units were left"


def remainders_are_gathered(pool: CheckedPool) -> None:
    """Row 2: twenty segments with one unit each sell 15, refuse 6, and sell 5."""
    pool.open(20, 20)
    assert pool.buy("fifteen", 15, "ann"), "15 of 20 were refused"
    assert pool.left() == 5, "15 were sold and 15 are not gone"
    assert not pool.buy("six", 6, "bob"), "oversold"
    assert pool.buy("five", 5, "cleo"), "the last 5 were refused"
    assert pool.left() == 0, "5 were sold and 5 are not gone"


def a_large_order_takes_exactly_its_units(pool: CheckedPool) -> None:
    """Row 3: 50 units from segments of 30 each."""
    pool.open(300, 10)
    assert pool.buy("large", 50, "ann"), "50 of 300 were refused"
    assert pool.left() == 250, "50 were sold and 50 are not gone"


def a_resize_revives_nothing(pool: CheckedPool) -> None:
    """Row 9: after another split no more is sold than there was."""
    pool.open(100, 10)
    assert all(pool.buy(f"before {number}", 1, f"customer {number}") for number in range(60)), "refused"
    pool.resize(7)
    assert pool.left() == 40, "a resize changed how many are left"
    pool.resize(10)
    sold = sum(pool.buy(f"after {number}", 1, f"customer {number}") for number in range(60))
    assert sold <= 40, "sold units were sold again"


def an_overslept_holder_loses_no_sale(pool: CheckedPool) -> None:
    """Row 16: a holder sleeps beyond its lease, another buys meanwhile, and both sales count."""
    pool.open(10, 1)

    def meanwhile() -> None:
        oversleep()
        assert pool.buy("second", 3, "bob"), "refused"

    assert pool.buy("first", 2, "ann", meanwhile), "refused"
    assert pool.left() == 5, "5 were sold and 5 are not gone"


def a_duplicate_click_takes_nothing(pool: CheckedPool) -> None:
    """Row 25: one order, sent a hundred times at once."""
    pool.open(CLICKS, 4)
    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(lambda _: pool.buy("the order", 1, "ann"), range(CLICKS)))
    assert all(answers), "a repeat was refused"
    assert pool.left() == CLICKS - 1, "a repeat took units"


def every_sale_is_a_unit_gone(pool: CheckedPool) -> None:
    """Row 36: orders of 1 to 5 until all is gone; sold and left are the stock, and a refusal is true."""
    pool.open(150, 7)
    sold = 0
    for number in range(90):
        quantity = 1 + number % 5
        if pool.buy(f"order {number}", quantity, f"customer {number % 11}"):
            sold += quantity
        else:
            assert pool.left() < quantity, "refused while units were left"
        assert sold + pool.left() == 150, "sold and left are not the stock"


CHECKS: Final[Mapping[str, Callable[[CheckedPool], None]]] = {
    check.__name__: check
    for check in (
        no_refusal_before_the_last_unit,
        remainders_are_gathered,
        a_large_order_takes_exactly_its_units,
        a_resize_revives_nothing,
        an_overslept_holder_loses_no_sale,
        a_duplicate_click_takes_nothing,
        every_sale_is_a_unit_gone,
    )
}


def failed_by(make_stand: Callable[[], CheckedPool]) -> dict[str, str]:
    """Return what a new pool says in each check that it fails."""
    failed: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(make_stand())
        except AssertionError as error:
            failed[name] = str(error).splitlines()[0]
    return failed
