"""Orders that arrive by a schedule, as a locustfile: a true open loop, in one process or in any number of workers.

    locust -f bench/scenarios/flash_sale.py --headless --rate 400 --arrivals spike --segments 16 --hold 20

Arrivals are a Poisson process, or the spike of a flash sale; each is started at its intended time, whatever became of
those before it, and its response counts from then. Users mean nothing here: `-u` may be left out. Workers share the
rate. Without SEGMENTED_URL a private Valkey is started, which workers on other machines cannot reach.

When the sale ends, its books are checked; if a promise was broken, the exit code is 1 and there is no rate.
"""

from __future__ import annotations

from bench.load.scenario import IdleUser, Scenario  # first: it brings Locust in, which patches sockets for gevent

scenario = Scenario(is_open=True)


class FlashSale(IdleUser):
    """A user that Locust wants to have."""
