"""Claims and runs that lapsed, were overtaken or were replaced: what is said of them afterwards, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.models import Lost, Released
from segmented.models.dedup import Freed, KeyClaimed
from segmented.once_keys import once_keys
from tests.support.contract.dedup.dedup_calls import Calls
from tests.support.contract.dedup.dedup_desk import SHORT, SHORT_MS, KeyClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side


def test_a_claim_that_lapsed_is_no_replay_for_its_own_message(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.claim("a") == KeyClaimed(replay=False)


def test_a_seat_that_lapsed_is_not_what_an_operator_frees(side: Side) -> None:
    client = KeyClient(side)
    client.claim("a", wait_ms=SHORT_MS)
    side.pass_time(SHORT)
    assert client.free() == Freed(None, None)


def test_a_holder_that_was_overtaken_has_not_announced_a_later_retry(side: Side) -> None:
    client = KeyClient(side)
    client.token("a", "first", ttl_ms=SHORT_MS)
    side.pass_time(SHORT)
    client.token("a", "second")
    assert client.abandon("a", "second", next_attempt=1) == Released()
    assert client.abandon("a", "first", next_attempt=1) == Released()  # it may be its own, whose reply was lost
    assert client.abandon("a", "first", next_attempt=2) == Lost()


def test_the_key_for_a_provider_is_the_same_in_each_attempt(side: Side) -> None:
    calls = Calls(side)
    first = calls.run("order-1")
    first.abandon()
    second = calls.run("order-1")
    assert second.fencing_token > first.fencing_token
    assert second.provider_key("charge") == first.provider_key("charge") == f"{first.key}-charge"


def test_a_token_is_one_past_the_last_where_the_servers_clock_is_behind_it(plain_redis_side: Side) -> None:
    client = KeyClient(plain_redis_side)
    ahead = client.token("a") + 60_000_000
    plain_redis_side.raw().hset(client.record_key, "token", ahead)
    client.abandon("a")
    assert client.token("b") == ahead + 1


@pytest.mark.parametrize("end", ["finish", "abandon", "cancel", "free"])
def test_who_waits_for_a_run_is_woken_by_its_end(plain_redis_side: Side, end: str) -> None:
    client = KeyClient(plain_redis_side)
    token = client.token("a")
    ends: dict[str, Callable[[], object]] = {
        "finish": lambda: client.finish("a", token),
        "abandon": lambda: client.abandon("a"),
        "cancel": lambda: client.cancel("a", is_dead=True),
        "free": client.free,
    }
    assert is_told(client, ends[end])


def is_told(client: KeyClient, end: Callable[[], object]) -> bool:
    """Return whether whoever listens at the key hears of its end."""
    with client.side.raw().pubsub() as heard:
        heard.subscribe(once_keys(client.record.namespace, client.key).freed)
        assert heard.get_message(timeout=30)["type"] == "subscribe"
        end()
        return heard.get_message(timeout=30) is not None
