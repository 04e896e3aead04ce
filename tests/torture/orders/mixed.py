"""`torture orders --mix`: payments in foreign transactions, declines, changes, returns and abandoned orders.

Each of two fleets has a pool, a queue, workers with a step that declines some orders, and buyers. Workers, buyers and
the broker are killed. The judge reads the buyers' logs, plain SQL and plain Redis.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
import sqlalchemy
from sqlalchemy import text

from bench.conditions import server_conditions
from segmented.errors import InvalidInput, SegmentedError
from segmented.orders import Gate
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.servers.rabbitmq import RabbitServer
from tests.torture.event_log import LogTail, number_of, order_id
from tests.torture.options import require_one_of, require_seed, require_within
from tests.torture.orders.mixed_buyer import RETURNED, Buying, be_buyer, is_declined, kept_units, kind_of
from tests.torture.orders.run import environment_of
from tests.torture.orders.workers import be_beat, be_worker
from tests.torture.report import Report
from tests.torture.supervisor import Processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Display, Progress

FLEETS: Final = ("a", "b")
BUYERS: Final = 2
"""Processes of each fleet."""
STOCK_PERMILLE: Final = 700
UNITS_MEAN: Final = 2
TICK: Final = 0.02
STALLED_SECONDS: Final = 120.0
BROKERS: Final = ("redis", "rabbitmq")
STEP: Final = "tests.torture.orders.mixed_buyer:decide"
INVOICES: Final = "CREATE TABLE invoices (sku VARCHAR(64), order_id VARCHAR(64), units BIGINT)"
MUST_BE_ZERO: Final = {
    "lost": "lost (accepted or paid, not decided so)",
    "wrongly_sold": "sold though declined, refused, refunded or abandoned",
    "invoices": "sold orders without exactly one invoice",
    "invoiced_unsold": "invoices of orders that were not sold",
    "units": "orders with other units than they kept",
    "oversold": "oversold, units",
    "differing": "SQL and Redis differ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MixOptions:
    """The options of a run."""

    orders: int
    kills: int
    broker: str
    workers: int
    seed: int

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--orders", self.orders, 100, 1_000_000)
        require_within("--kills", self.kills, 0, self.orders // 100)
        require_within("--workers", self.workers, 1, 16)
        require_one_of("--broker", self.broker, BROKERS)
        require_seed(self.seed)
        if self.broker == "rabbitmq" and not RabbitServer.is_installed():
            message = "--broker rabbitmq needs RabbitMQ: apt-get install rabbitmq-server"
            raise InvalidInput(message)

    @property
    def of_fleet(self) -> int:
        """How many orders each fleet gets."""
        return self.orders // len(FLEETS)

    @property
    def stock(self) -> int:
        """Units of each pool: too few, so that some orders are refused."""
        return self.of_fleet * UNITS_MEAN * STOCK_PERMILLE // 1_000


def torture_mixed(options: MixOptions, display: Display) -> Report:
    """Run on embedded servers. Raises SegmentedError if a process ends that the run did not kill."""
    with tempfile.TemporaryDirectory(prefix="segmented-torture-") as name, ExitStack() as stack:
        folder = Path(name)
        progress = stack.enter_context(display.strategy("torture orders --mix"))
        stock = stack.enter_context(ValkeyServer.start())
        database = stack.enter_context(PostgresServer.start(max_connections=40 + 10 * options.workers)).url
        rabbit: RabbitServer | None = None
        if options.broker == "rabbitmq":
            rabbit = RabbitServer(folder / "rabbit")
            stack.callback(rabbit.end)
            rabbit.start()
        broker = stack.enter_context(ValkeyServer.start()).url if rabbit is None else rabbit.url
        environment = environment_of(stock.url, broker, database) | {"SEGMENTED_STEP": STEP}
        own = sqlalchemy.make_url(database).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        with RedisStore.from_url(stock.url) as store, Gate(database) as gate:
            gate.create()
            for fleet in FLEETS:
                Pool(store, fleet, gate=gate).open(stock=options.stock, segments=8, queue=fleet, step=STEP)
        engine = sqlalchemy.create_engine(own)
        with engine.begin() as connection:
            connection.execute(text(INVOICES))
        engine.dispose()
        processes = stack.enter_context(Processes(folder, environment))
        run = MixedRun(options, processes, progress, folder, stock.url, database, own, rabbit)
        run.start()
        run.inject_faults()
        conditions = {
            **server_conditions(stock.url, "celery", "kombu"),
            "options": asdict(options) | {"stock": options.stock},
        }
        return run.report(conditions)


@dataclass(slots=True)
class MixedRun:
    """One run on started servers."""

    options: MixOptions
    processes: Processes
    progress: Progress
    folder: Path
    server: str
    database: str
    own: str
    rabbit: RabbitServer | None
    starts: dict[int, Callable[[], None]] = field(default_factory=dict)
    """How to start each process again, by its number."""
    answers: dict[tuple[str, int], str] = field(default_factory=dict)
    """What each order's buyer was told, by fleet and number."""
    tails: list[tuple[str, LogTail]] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def start(self) -> None:
        """Start all processes."""
        for fleet in FLEETS:
            for number in range(self.options.workers):
                self._start("worker", fleet, be_worker, f"{fleet}-{number}")
            for number in range(BUYERS):
                log = str(self.folder / f"buyer-{fleet}-{number}.log")
                buying = Buying(self.server, self.own, fleet, number + 1, BUYERS, self.options.of_fleet, log)
                self.tails.append((fleet, LogTail(Path(log))))
                self._start("buyer", fleet, be_buyer, buying)
            self._start("beat", fleet, be_beat)

    def _start(self, role: str, fleet: str, target: Callable[..., None], *arguments: object) -> None:
        number = self.processes.start(
            target, *arguments, name=role, may_end=role == "buyer", variables={"SEGMENTED_QUEUE": fleet}
        )
        self.starts[number] = lambda: self._start(role, fleet, target, *arguments)
        if role == "beat":
            del self.starts[number]

    def inject_faults(self) -> None:
        """Kill processes while the orders come, and wait until none is undecided."""
        chance, began = random.Random(self.options.seed), time.monotonic()
        due = [round(self.options.orders * (kill + 1) / (self.options.kills + 1)) for kill in range(self.options.kills)]
        total, changed, left = len(FLEETS) * self.options.of_fleet, began, -1
        while True:
            before = len(self.answers), left
            self._read()
            left = self._undecided() if len(self.answers) == total else -1
            if (len(self.answers), left) != before:
                changed = time.monotonic()
            self.progress("orders and kills", len(self.answers), total)
            if not left or time.monotonic() - changed > STALLED_SECONDS:
                break
            if due and len(self.answers) >= due[0]:
                due.pop(0)
                self._kill(chance, is_broker=self.rabbit is not None and len(due) % 20 == 10)
            time.sleep(TICK)
        self.seconds = time.monotonic() - began

    def _kill(self, chance: random.Random, *, is_broker: bool) -> None:
        if is_broker and self.rabbit is not None:
            self.rabbit.kill()
            self.rabbit.start()
            self.killed["broker"] += 1
            return
        alive = [number for number in self.processes.running if number in self.starts]
        number = chance.choice(alive)
        self.processes.kill(number)
        self.killed["processes"] += 1
        self.starts.pop(number)()

    def _read(self) -> None:
        for sentence in self.processes.crashes():
            raise SegmentedError(sentence)
        for fleet, tail in self.tails:
            for line in tail.lines():
                number, answer = line.split(" ", 1)
                self.answers[fleet, int(number)] = answer

    def _undecided(self) -> int:
        """Count the orders that wait for a worker or hold units, as Redis itself has them."""
        with redis.Redis.from_url(self.server, decode_responses=True) as server:
            keys = [f"seg:{{{fleet}:0}}:{key}" for fleet in FLEETS for key in ("outbox", "holds")]
            left = sum(int(server.zcard(key)) for key in keys)
        return left or len(sql_rows(self.database, "SELECT 1 FROM segmented_returns WHERE state = 'begun'"))

    def report(self, conditions: dict[str, Any]) -> Report:
        """Stop all processes, and judge every order."""
        self.progress("counting", 0, 1)
        self.processes.ask_to_stop()
        self.processes.join(20.0)
        found = self._judged()
        counts = {name: len(wrong) for name, wrong in found.items()}
        broken = [
            f"{MUST_BE_ZERO[name]}: {len(wrong):,}, must be 0 ({'; '.join(wrong[:5])})"
            for name, wrong in found.items()
            if wrong
        ]
        told = Counter(answer for answer in self.answers.values())
        figures = {**told, **self.killed, "seconds": round(self.seconds, 1)}
        rows = [
            *((f"orders {answer}", f"{count:,}") for answer, count in sorted(told.items())),
            *((f"killed: {name}", f"{count:,}") for name, count in sorted(self.killed.items())),
            ("seconds", f"{self.seconds:.1f}"),
            ("orders/s, kills included", f"{self.options.orders / self.seconds:,.0f}"),
        ]
        zeros = [(label, f"{counts[name]:,}") for name, label in MUST_BE_ZERO.items()]
        return Report(
            benchmark="torture-orders-mix",
            broken=broken,
            must_be_zero=counts,
            figures={} if broken else figures,
            conditions=conditions,
            heads=("", f"mix, {self.options.broker}"),
            rows=[*rows, *zeros],
        )

    def _judged(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in MUST_BE_ZERO}
        rows = {
            (sku, order_id): (state, units)
            for sku, order_id, state, units in sql_rows(
                self.database, "SELECT sku, order_id, state, quantity FROM segmented_orders"
            )
        }
        back = Counter(tuple(row) for row in sql_rows(self.database, "SELECT sku, order_id FROM segmented_returns"))
        invoices = Counter(tuple(row) for row in sql_rows(self.database, "SELECT sku, order_id FROM invoices"))
        for fleet in FLEETS:
            for number in range(1, self.options.of_fleet + 1):
                order, answer = (fleet, order_id(number)), self.answers.get((fleet, number), "nothing")
                judge_order(found, order, answer, rows.get(order), back=back[order], invoices=invoices[order])
            sold = sum(units for (sku, _), (state, units) in rows.items() if (sku, state) == (fleet, "confirmed"))
            found["oversold"] += [f"{sold:,} of {self.options.stock:,}"] * (sold > self.options.stock)
        try:
            judged(self.server, self.database)
        except AssertionError as error:
            found["differing"].append(str(error)[:500])
        return found


def judge_order(
    found: dict[str, list[str]],
    order: tuple[str, str],
    answer: str,
    row: tuple[str, int] | None,
    *,
    back: int,
    invoices: int,
) -> None:
    """Compare what the buyer was told of an order with SQL: its row, its returns and its invoices."""
    number = number_of(order[1])
    kind, (state, units) = kind_of(number), row or ("none", 0)
    is_sold = state == "confirmed"
    should_be = answer == "sold" or (answer == "accepted" and not is_declined(number))
    said = f"{order[1]} of {order[0]} ({kind}): told {answer}, in SQL {state}"
    if should_be != is_sold:
        found["lost" if should_be else "wrongly_sold"].append(said)
    if is_sold and units != kept_units(number):
        found["units"].append(f"{said} with {units} units instead of {kept_units(number)}")
    if back != (kind == RETURNED and is_sold):
        found["units"].append(f"{said}, returned {back} times")
    if invoices != (is_sold and kind != "submitted"):
        found["invoices" if is_sold else "invoiced_unsold"].append(f"{said}, {invoices} invoices")
