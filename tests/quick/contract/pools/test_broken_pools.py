"""The checks of the catalogue tell our pool from those that public samples describe."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import redis

from segmented.stores.redis import RedisStore
from tests.support.broken_pools.checks import CHECKS, failed_by
from tests.support.broken_pools.stands import CarefulPool, LibraryPool
from tests.support.broken_pools.variants import (
    AbsoluteWrite,
    HashedByCustomer,
    LateDuplicateCheck,
    RevivingResize,
    ZeroedRemainder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED_BY: dict[type[CarefulPool], dict[str, str]] = {
    CarefulPool: {},
    ZeroedRemainder: {
        "no_refusal_before_the_last_unit": "oversold",
        "remainders_are_gathered": "15 were sold and 15 are not gone",
        "a_large_order_takes_exactly_its_units": "50 were sold and 50 are not gone",
        "a_resize_revives_nothing": "sold units were sold again",
        "every_sale_is_a_unit_gone": "sold and left are not the stock",
    },
    RevivingResize: {
        "a_resize_revives_nothing": "a resize changed how many are left",
    },
    HashedByCustomer: {
        "no_refusal_before_the_last_unit": "refused while units were left",
        "remainders_are_gathered": "15 of 20 were refused",
        "a_large_order_takes_exactly_its_units": "50 of 300 were refused",
        "every_sale_is_a_unit_gone": "refused while units were left",
    },
    AbsoluteWrite: {
        "an_overslept_holder_loses_no_sale": "5 were sold and 5 are not gone",
    },
    LateDuplicateCheck: {
        "a_duplicate_click_takes_nothing": "a repeat took units",
    },
}
"""Which checks each one fails, and what they say."""

_names = itertools.count()


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url, decode_responses=True) as server:
        yield server


@pytest.mark.parametrize("check", CHECKS)
def test_our_pool_passes_each_check(valkey_url: str, check: str) -> None:
    with RedisStore.from_url(valkey_url) as store:
        pool = LibraryPool(store, f"ours-{next(_names)}")
        CHECKS[check](pool)
        assert pool.pool.audit().is_clean


@pytest.mark.parametrize("kind", FAILED_BY, ids=lambda kind: kind.__name__)
def test_a_broken_pool_fails_the_checks_of_what_is_broken_and_no_others(
    server: redis.Redis, kind: type[CarefulPool]
) -> None:
    assert failed_by(lambda: kind(server, f"theirs-{next(_names)}")) == FAILED_BY[kind]
