"""Connections to Redis: addresses that are told apart, links, clusters and dialects."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from pydantic import SecretStr
from redis import asyncio as redis_asyncio
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from segmented import RedisStore
from segmented.celery.settings import WorkerSettings
from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable, WrongKind
from segmented.masking import masked
from segmented.orders import connect
from segmented.protocol import AcquireLock
from segmented.protocol.wire import Dialect, Exchange, Peer, Send, dialect_of
from segmented.stores.redis import AsyncRedisStore
from segmented.stores.redis.addresses import Host
from segmented.stores.redis.cluster_map import (
    PAUSE_MIN,
    REDIRECTIONS_MAX,
    Attempts,
    ClusterMap,
    Look,
    Rest,
    Visit,
    asking,
    shares,
    slot_for,
    way,
)
from segmented.stores.redis.edge import Eviction, check_server, our_error
from segmented.stores.redis.exchange import packed
from tests.support.odd_urls import leaks, odd_urls


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"redis_version": "6.2.14"}, "speaks Redis 6.2.14; 7.0 or newer is needed (Valkey: any)"),
        ({"redis_version": "255.255.255"}, None),  # a build from the source
        ({"redis_version": None}, "answers INFO with something else: is it a proxy?"),
        ({"redis_version": "unstable"}, "speaks Redis unstable; 7.0 or newer is needed (Valkey: any)"),
        ({"cluster_enabled": 1, "server_mode": None, "redis_mode": None}, "is a node of a cluster: give redis+cluster"),
        ({"server_mode": "sentinel"}, "is a Sentinel: give redis+sentinel://HOST:PORT/SERVICE"),
        ({"role": "slave"}, "is a replica, which takes no locks and no stock: give its master's address"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_what_a_server_says_of_itself_is_judged_word_by_word(
    valkey_url: str, changed: dict[str, object], says: str | None, *, encoded: bool
) -> None:
    """INFO of a real server, with other words in it, as text or as bytes."""
    with redis.Redis.from_url(valkey_url) as server:
        found: Any = server.info()
    found = {name: value for name, value in (found | changed).items() if value is not None}
    if encoded:
        found = {name: value.encode() if isinstance(value, str) else value for name, value in found.items()}
    if says is None:
        check_server("here", found, is_cluster=False, eviction=Eviction())
        return
    with pytest.raises(InvalidInput) as caught:
        check_server("here", found, is_cluster=False, eviction=Eviction())
    assert str(caught.value).startswith(f"the server at here {says}")


def test_a_store_on_a_cluster_in_an_event_loop_needs_redis_py_8() -> None:
    is_new = int(version("redis").partition(".")[0]) >= 8
    with nullcontext() if is_new else pytest.raises(InvalidInput, match="needs redis-py 8 or newer"):
        AsyncRedisStore(redis_asyncio.RedisCluster("127.0.0.1", 1))


EVICTS = "the server at here has maxmemory-policy volatile-lru, which may evict locks and stock, so a lock"
HIDES = "the server at here does not report its maxmemory-policy: make sure that it is noeviction"


@pytest.mark.parametrize(
    ("policy", "warned", "refused"),
    [("noeviction", "", False), ("volatile-lru", EVICTS, True), ("", HIDES, False)],
)
def test_a_policy_is_a_warning_and_one_that_evicts_is_a_refusal_of_pools(
    caplog: pytest.LogCaptureFixture, policy: str, warned: str, *, refused: bool
) -> None:
    eviction = Eviction()
    eviction.note("here", policy)
    assert bool(eviction.refusal) is refused
    if eviction.warning:
        for _ in range(3):
            eviction.check(AcquireLock("door", "holder", 1_000))
    assert [line.startswith(warned) for line in caplog.messages] == ([True] if warned else [])


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


ONE, TWO, THREE = Host("10.0.0.1", 1), Host("10.0.0.2", 2), Host("10.0.0.3", 3)
ROWS = [
    [5461, 10922, [b"10.0.0.2", 2, b"id2", []], [b"10.0.0.5", 5, b"id5", []]],
    [0, 5460, [b"10.0.0.1", 1, b"id1", []], [b"10.0.0.4", 4, b"id4", []]],
    [10923, 16383, ["10.0.0.3", 3, "id3", []]],
]


@pytest.fixture
def known() -> ClusterMap:
    made = ClusterMap([ONE])
    made.replace(ROWS, asked=ONE)
    return made


# --- the map ---


def test_whom_to_ask_masters_first_and_who_failed_last(known: ClusterMap) -> None:
    four, five = Host("10.0.0.4", 4), Host("10.0.0.5", 5)
    assert known.hosts() == [ONE, TWO, THREE, five, four]
    assert known.hosts(last=TWO) == [ONE, THREE, five, four, TWO]


# --- the way of a request ---


def walk(known: ClusterMap, happenings: list[object], slot: int = 0) -> list[object]:
    """Take a request's steps; each happening is what the next `Visit` meets, or what changes the map at a look."""
    steps: list[object] = []
    going = way(known, slot)
    step = next(going)
    try:
        while True:
            steps.append(step)
            if not isinstance(step, Visit):
                if isinstance(step, Look) and happenings and callable(happenings[0]):
                    happenings.pop(0)()  # type: ignore[operator]  # it is callable
                step = next(going)
            else:
                met = happenings.pop(0)
                step = going.throw(met) if isinstance(met, Exception) else going.send(met)
    except StopIteration as stop:
        steps.append(stop.value)
    return steps


def test_after_an_ask_the_next_error_begins_at_the_owner_again(known: ClusterMap) -> None:
    error = TryAgainError("TRYAGAIN")
    steps = walk(known, [AskError("0 10.0.0.2:2"), error, "reply"])
    assert steps == [Visit(ONE), Visit(TWO, is_asking=True), Rest(PAUSE_MIN, error), Visit(ONE), "reply"]


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        OSError("reset"),
        BusyLoadingError("LOADING"),
        ClusterDownError("CLUSTERDOWN"),
        MasterDownError("MASTERDOWN"),
        ReadOnlyError("READONLY"),
    ],
)
def test_when_the_owner_is_away_the_map_is_looked_at_and_a_new_owner_asked_at_once(
    known: ClusterMap, error: Exception
) -> None:
    version = known.version
    assert walk(known, [error, lambda: known.move(0, THREE), "reply"]) == [
        Visit(ONE),
        Look(version, apart_from=ONE),
        Visit(THREE),
        "reply",
    ]


def test_when_nobody_has_taken_over_yet_it_pauses_and_asks_again(known: ClusterMap) -> None:
    error, look = redis.ConnectionError("refused"), Look(known.version, apart_from=ONE)
    steps = walk(known, [error, error, error, "reply"])
    at_once, later = [Visit(ONE), look], [Visit(ONE), look, Rest(0.02, error), Visit(ONE), look, Rest(0.04, error)]
    assert steps == [*at_once, *later, Visit(ONE), "reply"]


def test_two_nodes_that_point_at_each_other_are_left_alone_for_a_while(known: ClusterMap) -> None:
    errors: list[object] = [
        MovedError(f"0 10.0.0.{2 - turn % 2}:{2 - turn % 2}") for turn in range(REDIRECTIONS_MAX + 1)
    ]
    steps = walk(known, [*errors, "reply"])
    rests = [index for index, step in enumerate(steps) if isinstance(step, Rest)]
    assert len(rests) == 1
    assert sum(isinstance(step, Visit) for step in steps[: rests[0]]) == REDIRECTIONS_MAX + 1


def test_a_slot_without_an_owner_is_looked_for() -> None:
    fresh = ClusterMap([ONE])
    assert walk(fresh, [lambda: fresh.replace(ROWS, asked=ONE), "reply"]) == [Look(0), Visit(ONE), "reply"]


@pytest.mark.parametrize(
    "error",
    [NoScriptError("NOSCRIPT"), ResponseError("WRONGTYPE"), NoPermissionError("NOPERM"), AuthenticationError("x")],
)
def test_a_refusal_is_raised_at_once(known: ClusterMap, error: Exception) -> None:
    with pytest.raises(type(error)):
        walk(known, [error])


VALKEY = [["delifeq", 3], None, None]
REDIS = [None, ["delex", -2], None]
TAIR = [None, None, ["cad", 3]]


@pytest.mark.parametrize(
    ("reply", "dialect"),
    [
        (VALKEY, Dialect.VALKEY),
        (REDIS, Dialect.REDIS),
        (TAIR, Dialect.TAIR),
        ([["delifeq", 3], ["delex", -2], None], Dialect.VALKEY),
        ([None, None, None], Dialect.SCRIPT),
        ([[], [], []], Dialect.SCRIPT),
        ({b"delifeq": ["delifeq"]}, Dialect.VALKEY),
        ({"delifeq": None, "delex": ["delex"]}, Dialect.REDIS),
        ([["delifeq", 3]], Dialect.SCRIPT),
        (PermissionError("no COMMAND for this account"), Dialect.SCRIPT),
    ],
)
def test_the_reply_names_the_dialect_and_anything_unclear_means_scripts(reply: object, dialect: Dialect) -> None:
    assert dialect_of(reply) is dialect


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        (Dialect.VALKEY, b"*3\r\n$7\r\nDELIFEQ\r\n$1\r\nk\r\n$1\r\nv\r\n"),
        (Dialect.REDIS, b"*4\r\n$5\r\nDELEX\r\n$1\r\nk\r\n$4\r\nIFEQ\r\n$1\r\nv\r\n"),
        (Dialect.TAIR, b"*3\r\n$3\r\nCAD\r\n$1\r\nk\r\n$1\r\nv\r\n"),
    ],
)
def test_a_compare_and_delete_is_these_bytes(dialect: Dialect, raw: bytes) -> None:
    assert packed([dialect.compare_and_delete("k", "v")]) == raw


SET_IFEQ = b"*7\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$4\r\nIFEQ\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n30000\r\n"


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        (Dialect.VALKEY, SET_IFEQ),
        (Dialect.REDIS, SET_IFEQ),
        (Dialect.TAIR, b"*6\r\n$3\r\nCAS\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n30000\r\n"),
    ],
)
def test_a_renewal_is_these_bytes_and_always_carries_its_end(dialect: Dialect, raw: bytes) -> None:
    assert packed([dialect.compare_and_keep("k", "v", 30_000)]) == raw


STOCK = "redis://127.0.0.1:1/0"
URLS = odd_urls()


def store(url: str) -> str:
    with RedisStore.from_url(url) as found:
        return repr(found)


def asynchronous(url: str) -> str:
    async def run() -> str:
        async with await AsyncRedisStore.from_url(url) as found:
            return repr(found)

    return asyncio.run(run())


def database(url: str) -> str:
    engine = connect(url, pool_size=1, timeout=1)
    engine.dispose()
    return repr(engine)


def worker_stock(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(url), broker=SecretStr("amqp://127.0.0.1:1")))


def worker_broker(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(STOCK), broker=SecretStr(url)))


def worker_database(url: str) -> str:
    return repr(WorkerSettings(url=SecretStr(STOCK), database=SecretStr(url), broker_on_stock_server=True))


USES: list[Callable[[str], str]] = [store, asynchronous, database, worker_stock, worker_broker, worker_database]


def test_no_odd_address_is_shown_with_its_password() -> None:
    assert len(URLS) >= 400
    assert [url for url in URLS if leaks(masked(url))] == []


def test_a_password_that_looks_like_an_option_of_a_broker_is_not_shown() -> None:
    with pytest.raises(InvalidInput) as refused:
        WorkerSettings(url=SecretStr(STOCK), broker=SecretStr("redis+socket://:hunter2?sesame"))
    assert "sesame" not in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_whatever_uses_an_odd_address_shows_no_password(
    use: Callable[[str], str], caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path of SQLite is a file here
    caplog.set_level(logging.DEBUG)
    shown: dict[str, str] = {}
    for url in URLS:
        caplog.clear()
        try:
            text = use(url)
        except Exception as error:  # noqa: BLE001  # any error may show it
            text = "".join((*traceback.format_exception(error), repr(error)))
        shown[url] = text + caplog.text
    assert {url: text for url, text in shown.items() if leaks(text)} == {}
