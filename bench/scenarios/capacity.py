"""A closed loop as a locustfile: buyers order again at once, in one process or in any number of workers.

    locust -f bench/scenarios/capacity.py --headless -u 64 -r 1000 --segments 16 --hold 20 --seconds 10

It measures capacity, not what users experience: for that use flash_sale.py. The measured time begins when all buyers
have started and the warm-up has passed, and ends after `--seconds` or with the last unit. Without SEGMENTED_URL a
private Valkey is started, which workers on other machines cannot reach.

At the end the sale is checked; if a guarantee was broken, the exit code is 1 and there is no rate.
"""

from __future__ import annotations

from bench.load.scenario import OrderingUser, Scenario  # first: it imports Locust, which patches sockets for gevent


class Buyer(OrderingUser):
    """A buyer of this sale."""

    scenario = Scenario(is_open=False)
