"""Whatever another program has written under our keys, a call answers, or raises one of our errors; it never hangs.

Each seed takes the keys from the middle of a story, damages some of them, and makes calls. The full ring takes the
first half of the seeds: about 7,500 calls, from fresh seeds in every run.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

import pytest
import redis

from segmented import protocol as op
from segmented.dedup import Dedup
from segmented.errors import PoolDrifted, SegmentedError, StoreRefused, StoreUnavailable
from segmented.keys import lock_keys, once_keys, read_write_keys, shard_keys
from segmented.locks import FairLock, Lock, ReadWriteLock, ReentrantLock, Semaphore, single_flight
from segmented.models import Order
from segmented.models.dedup import RecordName
from segmented.protocol import LeadBeat, ReadBeat
from segmented.servers import ValkeyServer
from segmented.stock import Carts, Pool
from segmented.stores.redis import RedisStore
from tests.support.sim.seeds import each_seed
from tests.support.written.bench import Stand, Step
from tests.support.written.stories import ONE, STORIES

CHANGES_MAX: Final = 3
TEXTS: Final = (
    *(
        b"",
        b"nan",
        b"inf",
        b"-inf",
        b"-1",
        b"0",
        b"1",
        b"00",
        b"1e400",
        b"0x10",
        b" 1",
        b"9" * 12,
        b"9" * 15,
        b"9" * 20,
    ),
    *(b"9" * 5_000, b"\xff\xfe", b"\x00", b"{", b"null", b"[" * 20_000, b'{"a":' * 20_000, b"[1, 2]", b'"x"', b"a b c"),
    *("é\t\n".encode(), b"\t" * 30, b"-", b"r", b"1-1", b"*", b"%", b"read", b"write", b"unknown"),
)


def damage(random: Random, server: redis.Redis) -> list[tuple[Any, ...]]:
    """Damage some of the keys; returns the commands, for a failure's message."""
    done = []
    keys: Any = sorted(server.keys("*"))
    for _ in range(random.randint(1, CHANGES_MAX)):
        if keys:
            command = _change(random, server, random.choice(keys))
            server.execute_command(*command)
            done.append(command)
    return done


def _change(random: Random, server: redis.Redis, key: bytes) -> tuple[Any, ...]:
    if random.random() < 0.03:
        return ("DEL", key)
    found: Any
    match server.type(key):
        case b"hash":
            found = server.hgetall(key)
            field = random.choice([*sorted(found), b"stray"])
            return ("HSET", key, field, _text(random, found.get(field, b"")))
        case b"zset":
            found = server.zrange(key, 0, -1)
            member = random.choice([*found, _text(random, b"stray")[:200]])
            return ("ZADD", key, random.choice(["inf", "-inf", "0", "1e300", "-5", "1.5"]), member)
        case b"string":
            return ("SET", key, _text(random, server.get(key)), "KEEPTTL")
        case b"stream":
            found = server.xrange(key)
            if found and random.random() < 0.5:
                return ("XDEL", key, random.choice(found)[0])
            fields = random.sample(["kind", "at_us", "lines", "chain", "by", "x"], random.randint(1, 6))
            return ("XADD", key, "*", *(part for name in fields for part in (name, _text(random, b"opened")[:200])))
    return ("EXISTS", key)


def _text(random: Random, was: Any) -> bytes:  # noqa: ANN401  # bytes, which redis-py cannot know
    text = bytes(was)
    match random.randrange(6):
        case 0:
            return text[: random.randint(0, len(text))]
        case 1:
            return text + b"\t" + random.choice(TEXTS)[:50]
        case 2 if b"\t" in text:
            parts = text.split(b"\t")
            parts[random.randrange(len(parts))] = random.choice(TEXTS)[:50]
            return b"\t".join(parts)
        case 3:
            return random.randbytes(random.randint(0, 40))
    return random.choice(TEXTS)


def corrupt_call(random: Random, stand: Stand, steps: list[Step]) -> tuple[Step, list[tuple[Any, ...]]]:
    """Set the keys to those before a random step, and damage them."""
    step = random.choice(steps)
    stand.set(step.before)
    return step, damage(random, stand.server)


def asked_of(story: str, store: RedisStore) -> dict[str, Callable[[], object]]:
    """Return what a program may ask of the keys of a story, by name."""
    match story:
        case "locks":
            return _of_locks(store)
        case "caches":
            flight = single_flight(store, keep=60, timeout=0.05)("c")(lambda: "loaded")
            return {"single_flight": flight}
        case "once":
            return _of_once(store)
        case "beat":
            return {"read": partial(store.execute, ReadBeat("app")), "lead": partial(store.execute, LeadBeat("app", 6))}
        case _:
            return _of_pool(store, ONE if story == "shards" else "poster")


def _of_locks(store: RedisStore) -> dict[str, Callable[[], object]]:
    kinds: dict[str, Any] = {
        "lock": Lock(store, "n", ttl=60),
        "reentrant": ReentrantLock(store, "re", ttl=60),
        "fair": FairLock(store, "fa", ttl=60),
        "semaphore": Semaphore(store, "semaphore-permit", permits=2, ttl=60),
        "read": ReadWriteLock(store, "rw", ttl=60).read,
        "write": ReadWriteLock(store, "rw", ttl=60).write,
    }

    def taken_and_given_back(lock: Any) -> None:  # noqa: ANN401  # the locks have no common class
        lease = lock.try_acquire()
        if lease:
            lease.release()

    return {name: partial(taken_and_given_back, lock) for name, lock in kinds.items()}


def _of_once(store: RedisStore) -> dict[str, Callable[[], object]]:
    dedup = Dedup(store, "app", ttl=60)
    return {
        "call": lambda: dedup.call("k", lambda: 1),
        "read": lambda: dedup.read("k"),
        "free": lambda: dedup.free("k"),
    }


def _of_pool(store: RedisStore, sku: str) -> dict[str, Callable[[], object]]:
    pool, carts = Pool(store, sku), Carts(store)
    return {
        "state": pool.state,
        "audit": pool.audit,
        "repair": lambda: pool.repair(pool.audit(), yes=True),
        "ledger": lambda: list(pool.read_ledger()),
        "orders": lambda: list(pool.orders()),
        "order": lambda: pool.order("a"),
        "reserve": lambda: pool.reserve(Order("new", 1, "ann")),
        "cancel": lambda: pool.cancel("a"),
        "confirm": lambda: pool.confirm_many(["a", "b", "g"]),
        "expire": pool.expire,
        "trim": lambda: pool.trim_ledger(keep=1),
        "resize": lambda: pool.resize(5),
        "restock": lambda: pool.restock(1, restock_id="new"),
        "handle": lambda: pool.handle("a").refresh(),
        "cart": lambda: carts.read("c1", home=sku),
        "carts": lambda: carts.unfinished(sku),
        "finish": lambda: carts.finish(sku),
        "close": pool.close,
    }


PATIENCE: Final = 60.0
"""Seconds after which a call hangs: far more than a machine that stands still adds to one."""
STATES: Final = 5
CALLS: Final = 4
HUGE: Final = ("999999999999", "9" * 500, "nan", "")

_steps: dict[tuple[str, str], list[Step]] = {}


@pytest.fixture
def server(valkey: ValkeyServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey.url) as client:
        yield client


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(unhurried(valkey.url), patience=PATIENCE) as made:
        yield made


def unhurried(url: str) -> str:
    """Return the address for a client that does not take a server for dead which stands still for a while."""
    return f"{url}&socket_timeout={PATIENCE:g}"


@pytest.mark.fuzz
@each_seed(12)
def test_a_call_on_damaged_keys_answers_or_raises_one_of_our_errors(
    valkey_server: ValkeyServer, server: redis.Redis, seed: int
) -> None:
    random, stand = Random(seed), Stand(server)
    name = random.choice(list(STORIES))
    if (valkey_server.url, name) not in _steps:
        _steps[valkey_server.url, name] = stand.steps(STORIES[name])
    with RedisStore.from_url(unhurried(valkey_server.url), patience=PATIENCE) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a lease that could not be released
        for _ in range(STATES):
            step, done = corrupt_call(random, stand, _steps[valkey_server.url, name])
            asked = asked_of(name, store)
            names = random.sample(sorted(asked), min(CALLS - 1, len(asked)))
            calls = {step.name: lambda step=step: store.execute(step.operation)} | {each: asked[each] for each in names}
            for what, call in calls.items():
                outcome_of(call, f"{what} after {str(done)[:2_000]}", may_be_late=what == "single_flight")


def outcome_of(call: Callable[[], object], told: str, *, may_be_late: bool = False) -> None:
    """Make a call; any error but ours fails the test, and so does a server that does not answer in time."""
    said = ""
    try:
        call()
    except Exception as error:
        is_late = isinstance(error, StoreUnavailable) and not may_be_late
        if is_late or not isinstance(error, SegmentedError):
            error.add_note(told)
            raise
        said = str(error)
    assert "user_script" not in said, told
    assert "\n" not in said, told


@pytest.mark.parametrize("value", HUGE, ids=lambda value: f"{value[:9]}-{len(value)}")
@pytest.mark.parametrize("field", ["segment_count", "sequence", "fence"])
def test_a_number_of_a_pool_that_cannot_be_hangs_no_call(
    store: RedisStore, server: redis.Redis, field: str, value: str
) -> None:
    for name, call in asked_of("pool", store).items():
        server.flushdb()
        with RedisStore(server) as other:
            pool = Pool(other, "poster")
            pool.open(stock=10, segments=4)
            pool.reserve(Order("a", 2))
        server.hset(shard_keys("poster").meta, field, value)
        outcome_of(call, name)


@pytest.mark.parametrize("mode", ["", "garbage", "reads", "\x00"])
def test_a_mode_that_cannot_be_read_lets_nobody_in(store: RedisStore, server: redis.Redis, mode: str) -> None:
    lock = ReadWriteLock(store, "x", ttl=60)
    with lock.write.acquire():
        server.hset(read_write_keys("x").lock, "mode", mode)
        for side in (lock.write, lock.read):
            with pytest.raises(
                StoreRefused, match=r"^mode of key 'seg:lock:\{x\}' cannot be read: another program wrote"
            ):
                side.try_acquire()
        server.hset(read_write_keys("x").lock, "mode", "write")


@pytest.mark.parametrize("until", ["nan", "inf", "", "-1", "x"])
def test_a_run_whose_end_cannot_be_read_does_not_run_again(store: RedisStore, server: redis.Redis, until: str) -> None:
    record = RecordName("app", "k")
    store.execute(op.BeginRun(record, "m1", "h", "p", "task", 60_000, 60_000))
    server.hset(once_keys("app", "k").record, "run_until", until)
    for message in ("m1", "m2"):
        with pytest.raises(
            StoreRefused, match=r"^run_until of key 'seg:once:.*' cannot be read: another program wrote it"
        ):
            store.execute(op.BeginRun(record, message, "i", "p", "task", 60_000, 60_000))


@pytest.mark.parametrize("fence", ["", "0", "nan", "00", "-1", "x"])
def test_a_fence_that_cannot_be_read_accepts_no_token(store: RedisStore, server: redis.Redis, fence: str) -> None:
    store.execute(op.FencedSet("door", "new", 10))
    server.set("{door}:fence", fence)
    with pytest.raises(StoreRefused, match=r"^token of key '.*' cannot be read: another program wrote it"):
        store.execute(op.FencedSet("door", "stale", 5))
    assert server.get("door") == b"new"


@pytest.mark.parametrize("token", ["", "nan", "inf", "x", "-1"])
def test_a_lock_whose_last_token_cannot_be_read_is_not_granted(
    store: RedisStore, server: redis.Redis, token: str
) -> None:
    server.hset(lock_keys("x").fence, "token", token)
    with pytest.raises(StoreRefused, match=r"^token of key 'seg:lock:\{x\}:fence' cannot be read"):
        store.execute(op.AcquireLock("x", "h", 60_000))
    assert not server.exists(lock_keys("x").lock)


@pytest.mark.parametrize("record", ["r\t2", "r\t2\t0\t2\t\t\t\t\t\t\t\tx", "r\t99999999999999999999\t0\t2", "\xff"])
def test_a_record_that_cannot_be_read_stops_no_other_order(store: RedisStore, server: redis.Redis, record: str) -> None:
    pool = Pool(store, "poster")
    pool.open(stock=10, segments=2)
    pool.reserve(Order("a", 2))
    server.hset(shard_keys("poster").orders, "a", record)
    server.zadd(shard_keys("poster").holds, {"a": 1})  # long due
    with pytest.raises(PoolDrifted):
        pool.confirm("a")
    pool.reserve(Order("b", 8))
    pool.expire()
    pool.confirm("b")
    assert pool.state().confirmed == 8
    assert pool.repair(pool.audit(), yes=True).is_clean
