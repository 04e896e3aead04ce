"""A true open loop as a locustfile: orders arrive by a schedule, in one process or in any number of workers.

    locust -f bench/scenarios/flash_sale.py --headless --rate 400 --arrivals spike --segments 16 --hold 20

Arrivals are a Poisson process, or the spike of a flash sale; each starts at its intended time, whatever
happened to earlier ones, and its response time counts from then. Users have no meaning here: `-u` may be left out.
Workers share the rate. Without SEGMENTED_URL a private Valkey is started, which workers on other machines cannot reach.

At the end the sale is checked; if a guarantee was broken, the exit code is 1 and there is no rate.
"""

from __future__ import annotations

from bench.load.scenario import IdleUser, Scenario  # first: it imports Locust, which patches sockets for gevent

scenario = Scenario(is_open=True)


class FlashSale(IdleUser):
    """The user that Locust requires."""
