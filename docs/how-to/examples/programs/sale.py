"""Set a sale up and take it down: open, restock, close, give open holds back, check the books, list who got what.

SHOP_REDIS is the URL of the stock server. Run it with: python sale.py open, python sale.py end
Install: pip install . in the checkout.
"""

from __future__ import annotations

import csv
import os
import sys
from datetime import timedelta

from segmented import Pool, PoolState, RedisStore
from segmented.errors import PoolDiffers, PoolMissing

STOCK = 500
SEGMENTS = 20


def begin(pool: Pool) -> None:
    """Open the sale. A second start finds it open, and one with other numbers says which differ."""
    try:
        opened = pool.open(stock=STOCK, segments=SEGMENTS)
    except PoolDiffers as error:
        sys.exit(str(error))
    told(opened.state)


def restock(pool: Pool, delivery: str, units: int) -> None:
    """Add a delivery, once, however often this is run."""
    print(pool.restock(units, restock_id=delivery))


def end(pool: Pool) -> None:
    """Close the sale, check its books and write who got what."""
    pool.close()  # reserved orders can still be confirmed
    pool.expire()  # holds that have ended
    report = pool.audit()
    if not report.is_clean:
        sys.exit(f"the books differ: {report}")
    told(pool.state())
    writer = csv.writer(sys.stdout)
    writer.writerow(["order", "customer", "units"])
    writer.writerows((one.order_id, one.customer_id, one.quantity) for one in pool.orders(state="confirmed"))


def told(state: PoolState) -> None:
    """Print the numbers of the sale."""
    print(f"{state.condition}: {state.available} free, {state.reserved} reserved, {state.confirmed} sold")


if __name__ == "__main__":
    with RedisStore(os.environ["SHOP_REDIS"]) as store:
        poster = Pool(store, "poster", hold=timedelta(minutes=10))
        try:
            match sys.argv[1:]:
                case ["open"]:
                    begin(poster)
                case ["restock", delivery, units]:
                    restock(poster, delivery, int(units))
                case ["end"]:
                    end(poster)
                case _:
                    sys.exit("usage: sale.py open | restock DELIVERY UNITS | end")
        except PoolMissing as error:
            sys.exit(str(error))
