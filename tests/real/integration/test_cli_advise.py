"""`segmented advise --measure` against a real server: it finds its numbers, and leaves nothing behind."""

import json
from typing import Final

from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support.command_line import ran_apart

HOLD: Final = "60s"
"""Longer than any round trip, also on a machine that stands still now and then: so segments pay in any case."""
SALE: Final = ("advise", "--workers", "32", "--stock", "10000", "--quantity", "1-5")


def test_a_measurement_fills_in_the_round_trip_and_the_servers_time(valkey: ValkeyServer) -> None:
    done = ran_apart(*SALE, "--hold", HOLD, "--measure", "--json", "-", url=valkey.url)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    measured = found["measured"]
    filled_in = ("round_trip", "server_time")
    assert [found["workload"][name] for name in filled_in] == [measured[name] for name in filled_in]
    assert 0 < measured["round_trip"] < 60  # seconds, not milliseconds
    assert 0 < measured["server_time"] < 60
    assert measured["orders"] >= 1
    assert found["segments"] > 1
    with RedisStore.from_url(valkey.url) as store:
        assert store.client.keys("*") == []
