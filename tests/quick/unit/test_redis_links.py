"""What the links need around exchanges, without a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable, WrongKind
from segmented.protocol import AcquireLock
from segmented.protocol.wire import Dialect, Peer, Send
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.addresses import Host
from segmented.stores.redis.cluster_exchange import Attempts, asking, shares, slot_for
from segmented.stores.redis.cluster_map import ClusterMap
from segmented.stores.redis.edge import our_error

if TYPE_CHECKING:
    from segmented.protocol.wire import Exchange


SOME: Final = Peer(Dialect.SCRIPT)


def two_rounds(log: list[Any], _: Peer, attempt: int) -> Exchange[str]:
    log.append(attempt)
    log.append((yield Send((("GET", "a"), ("GET", "b")), patience=2.0)))
    log.append((yield Send((("GET", "c"),))))
    return "done"


# --- ASKING ---


def test_asking_comes_right_before_each_command_and_its_replies_are_left_out() -> None:
    log: list[Any] = []
    going = asking(two_rounds(log, SOME, 1))
    assert next(going) == Send([("ASKING",), ("GET", "a"), ("ASKING",), ("GET", "b")], 2.0)
    assert going.send(["OK", "1", "OK", "2"]) == Send([("ASKING",), ("GET", "c")], 0.0)
    with pytest.raises(StopIteration) as stop:
        going.send(["OK", "3"])
    assert stop.value.value == "done"
    assert log == [1, ["1", "2"], ["3"]]


def test_an_error_in_the_exchange_ends_asking_too() -> None:
    def fails() -> Exchange[None]:
        yield Send((("GET", "a"),))
        raise moved

    moved = MovedError("1 host:2")
    going = asking(fails())
    next(going)
    with pytest.raises(MovedError):
        going.send(["OK", "1"])


# --- attempts over several nodes ---


def test_attempts_are_numbered_on_over_lost_replies_but_not_over_refusals() -> None:
    log: list[Any] = []
    attempts: Attempts[str] = Attempts(partial(two_rounds, log))
    for make, error in (
        (attempts.direct, redis.ConnectionError("lost")),
        (attempts.direct, MovedError("1 host:2")),
        (attempts.asking, redis.TimeoutError("lost")),
        (attempts.direct, ResponseError("no")),
    ):
        next(make(SOME, 1))
        attempts.failed(error)
    next(attempts.direct(SOME, 1))
    assert log == [1, 2, 2, 3, 3]


def test_a_link_that_tries_twice_counts_twice() -> None:
    log: list[Any] = []
    attempts: Attempts[str] = Attempts(partial(two_rounds, log))
    for attempt in (1, 2):
        next(attempts.direct(SOME, attempt))
    attempts.failed(redis.ConnectionError("lost twice"))
    next(attempts.direct(SOME, 1))
    assert log == [1, 2, 3]


def test_a_link_that_loses_one_reply_and_is_refused_then_has_lost_one() -> None:
    log: list[Any] = []
    attempts: Attempts[str] = Attempts(partial(two_rounds, log))
    for attempt in (1, 2):
        next(attempts.direct(SOME, attempt))
    attempts.failed(ReadOnlyError("demoted in between"))
    next(attempts.direct(SOME, 1))
    assert log == [1, 2, 2]


def test_a_node_that_could_not_be_reached_at_all_has_lost_no_reply() -> None:
    log: list[Any] = []
    attempts: Attempts[str] = Attempts(partial(two_rounds, log))
    attempts.failed(redis.ConnectionError("refused"))
    next(attempts.direct(SOME, 1))
    assert log == [1]


# --- batches ---


def test_a_batch_is_divided_among_owners_and_cut_to_size() -> None:
    known = ClusterMap([Host("one", 1)])
    known.replace([[0, 8191, ["one", 1]], [8192, 16383, ["two", 2]]], asked=Host("one", 1))
    operations = [AcquireLock(f"lock{number}", "a", 1_000) for number in range(20)]
    found = shares(known, operations, size_max=4)
    assert sorted(place for _, places in found for place in places) == list(range(20))
    assert all(len(places) <= 4 for _, places in found)
    for slot, places in found:
        assert {known.owner(slot_for(operations[place])) for place in places} == {known.owner(slot)}


def test_slots_without_an_owner_are_asked_for_one_by_one() -> None:
    operations = [AcquireLock(f"lock{number}", "a", 1_000) for number in range(3)]
    assert len(shares(ClusterMap([Host("one", 1)]), operations, size_max=4)) == 3


# --- errors ---


@pytest.mark.parametrize(
    "error",
    [
        ReadOnlyError("You can't write against a read only replica."),
        ClusterDownError("The cluster is down"),
        MasterDownError("Link with MASTER is down"),
        BusyLoadingError("Redis is loading the dataset in memory"),
        TryAgainError("Multiple keys request during rehashing of slot"),
        MovedError("1 host:2"),
        AskError("1 host:2"),
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        OSError("reset"),
    ],
)
def test_a_server_that_cannot_do_it_now_is_unavailable(error: Exception) -> None:
    found = our_error(error, "redis://host")
    assert isinstance(found, StoreUnavailable)
    assert str(found).startswith("redis://host ")


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (AuthenticationError("WRONGPASS"), StoreRefused),
        (NoPermissionError("NOPERM"), StoreRefused),
        (ResponseError("ERR unknown command"), StoreRefused),
        (ResponseError("WRONGTYPE Operation against a key"), WrongKind),
    ],
)
def test_a_server_that_never_will_has_refused(error: Exception, ours: type[Exception]) -> None:
    assert type(our_error(error, "redis://host")) is ours


# --- patience ---


@pytest.mark.parametrize("patience", [-1.0, float("nan"), float("inf")])
def test_patience_is_a_number_of_seconds(patience: float) -> None:
    for make in (
        lambda: RedisStore(redis.Redis(), patience=patience),
        lambda: AsyncRedisStore(redis_asyncio.Redis(), patience=patience),
    ):
        with pytest.raises(InvalidInput, match="patience is a number of seconds"):
            make()
