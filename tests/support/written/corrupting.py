"""Random damage to the keys of a story, and what a program may ask of them afterwards."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import redis

from segmented.dedup import Dedup
from segmented.locks import FairLock, Lock, ReadWriteLock, ReentrantLock, Semaphore, single_flight
from segmented.models import Order
from segmented.protocol import LeadBeat, ReadBeat
from segmented.stock import Carts, Pool
from segmented.stores.redis import RedisStore
from tests.support.written.bench import Stand, Step
from tests.support.written.stories import ONE

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
        "semaphore": Semaphore(store, "se", permits=2, ttl=60),
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
