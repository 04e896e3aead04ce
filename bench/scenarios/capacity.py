"""Buyers who order again at once, as a locustfile: a closed loop, in one process or in any number of workers.

    locust -f bench/scenarios/capacity.py --headless -u 64 -r 1000 --segments 16 --hold 20 --seconds 10

It measures capacity, and says nothing of what users feel: for that there is flash_sale.py. The time that counts begins
once all buyers are there and the warm-up has passed, and ends with `--seconds` or the last unit. Without SEGMENTED_URL
a private Valkey is started, which workers on other machines cannot reach.

When the sale ends, its books are checked; if a promise was broken, the exit code is 1 and there is no rate.
"""

from __future__ import annotations

from bench.load.scenario import OrderingUser, Scenario  # first: it brings Locust in, which patches sockets for gevent


class Buyer(OrderingUser):
    """A buyer of this sale."""

    scenario = Scenario(is_open=False)
