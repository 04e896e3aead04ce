"""The strategy that sells by a library of functions, beside what the tests of all strategies ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

from bench.sections import Section
from bench.strategies.base import Refused, Sold, StrategyContext
from bench.strategies.one_script import RedisFunction
from segmented.models import Order
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer


def test_the_library_is_loaded_once_an_order_is_one_call_of_a_function_and_nothing_is_left(
    private_valkey: ValkeyServer,
) -> None:
    url = private_valkey.url
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as client:
        context = StrategyContext(store=store, engine=None, segments=1, buyers=1, section=Section("none"), url=url)
        strategy = RedisFunction(context)
        strategy.open("bench-functions", 2)
        assert len(client.function_list("bench_functions")) == 1
        client.config_resetstat()
        assert [type(strategy.buy(Order(order_id, 1))) for order_id in "1213"] == [Sold, Sold, Sold, Refused]
        strategy.cancel(Order("1", 1))
        calls = {name: one["calls"] for name, one in client.info("commandstats").items()}
        assert calls["cmdstat_fcall"] == 5
        assert not {"cmdstat_function|load", "cmdstat_eval", "cmdstat_evalsha"} & set(calls)
        assert strategy.judge([]).sold_ids == frozenset("2")
        strategy.clear()
        strategy.close()
        assert (client.function_list(), client.keys("*functions*")) == ([], [])
