"""What a pool must do, one function for a row of the catalogue of problems; each fails with an AssertionError."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tests.support.broken_pools.stands import oversleep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.broken_pools.stands import Stand

CLICKS: Final = 100
THREADS: Final = 16


def no_refusal_before_the_last_unit(stand: Stand) -> None:
    """Row 1: many customers, one unit each; at the first refusal nothing is left."""
    stand.open(200, 20)
    sold = 0
    while stand.buy(f"order {sold}", 1, f"customer {sold % 37}"):
        sold += 1
        assert sold <= 200, "oversold"
    assert (sold, stand.left()) == (200, 0), "refused while units were left"


def remainders_are_gathered(stand: Stand) -> None:
    """Row 2: twenty segments with one unit each sell 15, refuse 6, and sell 5."""
    stand.open(20, 20)
    assert stand.buy("fifteen", 15, "ann"), "15 of 20 were refused"
    assert stand.left() == 5, "15 were sold and 15 are not gone"
    assert not stand.buy("six", 6, "bob"), "oversold"
    assert stand.buy("five", 5, "cleo"), "the last 5 were refused"
    assert stand.left() == 0, "5 were sold and 5 are not gone"


def a_large_order_takes_exactly_its_units(stand: Stand) -> None:
    """Row 3: 50 units from segments of 30 each."""
    stand.open(300, 10)
    assert stand.buy("large", 50, "ann"), "50 of 300 were refused"
    assert stand.left() == 250, "50 were sold and 50 are not gone"


def a_resize_revives_nothing(stand: Stand) -> None:
    """Row 9: after another split no more is sold than there was."""
    stand.open(100, 10)
    assert all(stand.buy(f"before {number}", 1, f"customer {number}") for number in range(60)), "refused"
    stand.resize(7)
    assert stand.left() == 40, "a resize changed how many are left"
    stand.resize(10)
    sold = sum(stand.buy(f"after {number}", 1, f"customer {number}") for number in range(60))
    assert sold <= 40, "sold units were sold again"


def an_overslept_holder_loses_no_sale(stand: Stand) -> None:
    """Row 16: a holder sleeps beyond its lease, another buys meanwhile, and both sales count."""
    stand.open(10, 1)

    def meanwhile() -> None:
        oversleep()
        assert stand.buy("second", 3, "bob"), "refused"

    assert stand.buy("first", 2, "ann", meanwhile), "refused"
    assert stand.left() == 5, "5 were sold and 5 are not gone"


def a_duplicate_click_takes_nothing(stand: Stand) -> None:
    """Row 25: one order, sent a hundred times at once."""
    stand.open(CLICKS, 4)
    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(lambda _: stand.buy("the order", 1, "ann"), range(CLICKS)))
    assert all(answers), "a repeat was refused"
    assert stand.left() == CLICKS - 1, "a repeat took units"


def every_sale_is_a_unit_gone(stand: Stand) -> None:
    """Row 36: orders of 1 to 5 until all is gone; sold and left are the stock, and a refusal is true."""
    stand.open(150, 7)
    sold = 0
    for number in range(90):
        quantity = 1 + number % 5
        if stand.buy(f"order {number}", quantity, f"customer {number % 11}"):
            sold += quantity
        else:
            assert stand.left() < quantity, "refused while units were left"
        assert sold + stand.left() == 150, "sold and left are not the stock"


CHECKS: Final[Mapping[str, Callable[[Stand], None]]] = {
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


def failed_by(make_stand: Callable[[], Stand]) -> dict[str, str]:
    """Return what a new stand says in each check that it fails."""
    failed: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(make_stand())
        except AssertionError as error:
            failed[name] = str(error).splitlines()[0]
    return failed
