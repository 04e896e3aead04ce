"""The order database is enough: the stock's server says nonsense in mid-sale, and no unit is sold beyond the quota.

A process sells from the pool, and logs a word and an order id a line: `body` before the work on an order, `sold` after
its answer, and `superseded` or `frozen` for the errors. An order whose body has run is not taken again, whatever its
answer was.
"""

import multiprocessing
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine, text

from segmented import Order, Pool, RedisStore, Settled, SoldOut, protocol as op
from segmented.errors import GrantSuperseded, InvalidInput, PoolFrozen, SegmentedError
from segmented.keys import shard_keys
from segmented.orders import Gate, audit_both, connect, rebuild
from segmented.orders.sale import cancel_order, take_order
from segmented.servers import ValkeyServer

SKU: Final = "mug"
ORDERS_PER_STORE: Final = 50
"""A new store has seen no token, and believes the server."""
SELLER_PAUSE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Seller:
    """The addresses of one selling process. It ends when the file `stop` exists."""

    number: int
    url: str
    database: str
    log: str
    stop: str


def be_seller(seller: Seller) -> None:
    """Sell until the stop is set."""
    log = os.open(seller.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    numbers = count()
    order_id = f"{seller.number}-{next(numbers)}"
    with Gate(connect(seller.database)) as gate:
        while not Path(seller.stop).exists():
            with RedisStore.from_url(seller.url) as store:
                pool = Pool(store, SKU, ttl=0.5)
                for _ in range(ORDERS_PER_STORE):
                    if sell_one(pool, gate, order_id, log):
                        order_id = f"{seller.number}-{next(numbers)}"


def sell_one(pool: Pool, gate: Gate, order_id: str, log: int) -> bool:
    """Take an order once; return whether its body has run, or it has its answer."""
    has_run: list[str] = []

    def note(word: str) -> None:
        os.write(log, f"{word} {order_id}\n".encode())

    def body(_: object) -> None:
        has_run.append(order_id)
        note("body")

    try:
        answer = take_order(pool, gate, Order(order_id), timeout=0.2, body=body)
    except GrantSuperseded:
        note("superseded")
    except PoolFrozen:
        note("frozen")
        with suppress(SegmentedError):
            rebuild(pool, gate)
    except SegmentedError as error:
        note(type(error).__name__)
    else:
        if isinstance(answer, Settled):
            note("sold" if answer.state == "confirmed" else answer.state)
            return True
        threading.Event().wait(SELLER_PAUSE)
    return bool(has_run)


STOCK: Final = 200
SEGMENTS: Final = 4
SELLERS: Final = 3
SEEN_MIN: Final = 5
"""How often each consequence is to be seen before the nonsense ends."""
NONSENSE_SECONDS: Final = 150.0
"""Maximum duration of the nonsense."""
PAUSE: Final = 0.02
SEEN: Final = ("sold", "superseded", "frozen")
AHEAD: Final = 2_000_000_000_000_000
"""A fencing token ahead of every server's clock in microseconds; the tokens after it are behind it."""
END_SECONDS: Final = 100.0


@pytest.fixture
def order_database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    """The judge's own connection to the database."""
    engine = connect(order_database, pool_size=1)
    yield engine
    engine.dispose()


def test_no_unit_is_sold_beyond_the_quota_and_no_body_runs_twice_for_any_answer(
    valkey: ValkeyServer, gate: Gate, engine: Engine, order_database: str, tmp_path: Path
) -> None:
    """The provider's server answers anything at all, or nothing."""
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        Pool(pool.store, pool.sku, gate=gate).open(stock=STOCK, segments=SEGMENTS)
        log, stop = tmp_path / "log", tmp_path / "stop"
        sellers = [Seller(number, valkey.url, order_database, str(log), str(stop)) for number in range(SELLERS)]
        processes = [started(seller) for seller in sellers]
        most_sold = write_nonsense(store, engine, log)
        stop.touch()
        for process in processes:
            process.join(END_SECONDS)
            assert process.exitcode == 0
        assert most_sold <= STOCK

        lines = log.read_text().splitlines()
        found = Counter(line.partition(" ")[0] for line in lines)
        assert min(found[word] for word in SEEN) >= SEEN_MIN, found
        bodies = Counter(line.split()[1] for line in lines if line.startswith("body "))
        assert set(bodies.values()) == {1}

        sell_rest(pool, gate)
        sold = confirmed_rows(engine)
        assert sum(sold.values()) == STOCK
        assert {bodies[order_id] for order_id in sold if not order_id.startswith("rest-")} == {1}
        assert {line.split()[1] for line in lines if line.startswith("sold ")} <= sold.keys()
        assert (pool.state().confirmed, pool.state().available, pool.state().reserved) == (STOCK, 0, 0)
        both = audit_both(pool, gate)
        assert both.is_clean, both.differences


def started(seller: Seller) -> ForkServerProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "psycopg"])
    process = context.Process(target=be_seller, args=(seller,), daemon=True)
    process.start()
    return process


def write_nonsense(store: RedisStore, engine: Engine, log: Path) -> int:
    """Multiply the stock by ten, and set tokens ahead and back, again and again; return the most units ever sold."""
    keys, client, chance = shard_keys(SKU), store.client, random.Random(19)
    most, until = 0, time.monotonic() + NONSENSE_SECONDS
    while time.monotonic() < until:
        found = Counter(line.partition(" ")[0] for line in log.read_text().splitlines()) if log.exists() else Counter()
        if min(found[word] for word in SEEN) >= SEEN_MIN:
            break
        what = chance.choice(["stock", "stock", "ahead", "back"])
        if what == "stock":
            client.hset(keys.meta, "available", str(10 * STOCK))
            client.hset(keys.stock, mapping={str(segment): str(10 * STOCK // SEGMENTS) for segment in range(SEGMENTS)})
        else:
            client.hset(keys.meta, "fence", str(AHEAD if what == "ahead" else 1))
        most = max(most, sum(confirmed_rows(engine).values()))
        threading.Event().wait(PAUSE)
    return most


def sell_rest(pool: Pool, gate: Gate) -> None:
    """Freeze and rebuild the pool, cancel what was left in the middle, and sell all that is unsold."""
    with suppress(InvalidInput):  # it is frozen already
        pool.store.execute(op.FreezePool(SKU, pool.state().epoch))
    rebuild(pool, gate)
    cursor, ids = pool.store.execute(op.ScanKey(SKU, "holds", 0))
    assert cursor == 0
    for order_id, _ in ids:
        with suppress(SegmentedError):
            cancel_order(pool, gate, Order(order_id))
    rest = pool.state().available
    for number in range(rest):
        assert isinstance(take_order(pool, gate, Order(f"rest-{number}"), timeout=60), Settled)
    assert isinstance(take_order(pool, gate, Order("one too many"), timeout=0), SoldOut)


def confirmed_rows(engine: Engine) -> dict[str, int]:
    """Read the units of the confirmed orders with plain SQL."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT order_id, quantity FROM segmented_orders WHERE state = 'confirmed'"))
        return {row.order_id: row.quantity for row in found}
