"""A strategy names what it needs and does not have."""

from __future__ import annotations

import pytest

from bench.sections import Section
from bench.strategies import STRATEGIES
from bench.strategies.base import StrategyContext
from bench.strategies.library_lock import needed
from segmented.errors import InvalidInput
from segmented.stores.redis import RedisStore

IN_SQL = [name for name, strategy in STRATEGIES.items() if strategy.needs_database]


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"^global-it needs the package no_such_one: install segmented-locks\[bench\]$"
    ):
        needed("global-it", "no_such_one")


@pytest.mark.parametrize("name", IN_SQL)
def test_a_strategy_in_sql_asks_for_postgresql(name: str, valkey_url: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        context = StrategyContext(store=store, engine=None, segments=1, buyers=1, section=Section("none"))
        with pytest.raises(InvalidInput, match=f"^{name} needs an order database at postgresql://$"):
            STRATEGIES[name](context)
