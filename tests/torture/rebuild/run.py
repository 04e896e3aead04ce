"""One run of `torture rebuild`: a sale, a server that forgets the last part of it, rebuilds, and the exact books.

The server forgets as it does when an operator restores an old copy: its data is copied in the sale, it is killed later,
and is started with the copy. Each round does so again with the same copy, and rebuilds in the next epoch.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from bench.clusters import StockServer
from bench.conditions import server_conditions
from segmented.errors import PoolFrozen, SegmentedError
from segmented.models import Order, Settled, SoldOut
from segmented.orders import Gate, audit_both, connect, open_gated, rebuild, take_order, verify
from segmented.servers import PostgresServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.torture.judge import wrong_after_rebuild, wrong_at_end
from tests.torture.rebuild.neighbour import Addresses, Neighbour
from tests.torture.rebuild.sale import HOLD, SEGMENTS, SKU, order_id, sell_after_copy, sell_rest, sell_until_copy
from tests.torture.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from bench.display import Display, Progress
    from segmented.models import PoolState
    from tests.torture.rebuild.neighbour import Sample
    from tests.torture.rebuild.sale import RebuildOptions, Sale

CONNECTIONS: Final = 16
REPEATED: Final = 100
"""Lost orders that are taken again after the last rebuild."""


def torture_rebuild(options: RebuildOptions, display: Display) -> Report:
    """Run on servers of its own. Raises SegmentedError if the sale cannot be made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-rebuild-")))
        progress = stack.enter_context(display.strategy("rebuild"))
        database = stack.enter_context(PostgresServer.start(max_connections=CONNECTIONS)).url
        server = stack.enter_context(StockServer.start(folder / "stock", fsync=None, has_port=False))
        engine = connect(database, pool_size=2)
        gate = stack.enter_context(Gate(engine))
        gate.create()
        return _Run(options, server, folder, Addresses(server.url, database), gate, engine, progress).run()


class _Run:
    def __init__(  # what a run has started, each once
        self,
        options: RebuildOptions,
        server: StockServer,
        folder: Path,
        addresses: Addresses,
        gate: Gate,
        engine: Engine,
        progress: Progress,
    ) -> None:
        self._options, self._sale = options, options.sale
        self._server, self._folder, self._addresses = server, folder, addresses
        self._copy = folder / "copy"
        self._gate, self._engine = gate, engine
        self._progress = progress
        self._wrong: list[str] = []

    def run(self) -> Report:
        conditions = server_conditions(self._server.url)
        conditions["versions"]["postgresql"] = postgresql_version(self._engine)
        self._sell()
        rounds = []
        for number in range(1, self._options.round_count + 1):
            self._progress("rebuilds", number - 1, self._options.round_count)
            self._forget()
            rounds.append(self._round(number))
        self._finish()
        options = {"options": {"orders": self._options.orders, "rounds": len(rounds)}}
        return report_of(self._sale, rounds, self._wrong, conditions | options)

    def _sell(self) -> None:
        sale = self._sale
        with RedisStore.from_url(self._server.url) as store:
            pool = Pool(store, SKU, hold=HOLD)
            open_gated(pool, self._gate, stock=sale.stock, segments=SEGMENTS)
            sell_until_copy(
                pool, self._gate, sale, lambda done: self._progress("orders confirmed", done, sale.confirmed)
            )
            self._server.ask("SAVE")
            self._copy.mkdir()
            (self._server.data / "dump.rdb").rename(self._copy / "dump.rdb")
            sell_after_copy(pool, self._gate, sale)

    def _forget(self) -> None:
        self._server.kill()
        self._server.replace_data(self._copy)
        self._server.restart()

    def _round(self, number: int) -> Round:
        with RedisStore.from_url(self._server.url) as store:
            pool = Pool(store, SKU, hold=HOLD)
            self._require_frozen(pool)
            with Neighbour(self._folder, self._addresses, f"neighbour-{number}") as neighbour:
                steady_from = time.monotonic()
                time.sleep(self._options.steady_seconds)
                began = time.monotonic()
                rebuild(pool, self._gate)
                ended = time.monotonic()
                samples = neighbour.stop()
            books = read_books(self._engine, SKU)
            self._wrong += wrong_after_rebuild(self._sale, number, numbers(pool.state()), books)
        return Round(began, ended, steady_from, samples)

    def _require_frozen(self, pool: Pool) -> None:
        try:
            verify(pool, self._gate)
        except PoolFrozen:
            return
        message = "the server forgot orders, and the pool was not frozen"
        raise SegmentedError(message)

    def _finish(self) -> None:
        """Take lost orders again, sell the rest, and compare both sides order by order."""
        with RedisStore.from_url(self._server.url) as store:
            pool = Pool(store, SKU, hold=HOLD)
            for number in self._sale.forgotten[:REPEATED]:
                again = take_order(pool, self._gate, Order(order_id(number)), timeout=0)
                if not isinstance(again, Settled) or (again.state, again.replay) != ("confirmed", True):
                    self._wrong.append(f"lost order {order_id(number)} was taken again and got {again}")
            self._progress("the rest", 0, 1)
            sell_rest(pool, self._gate, self._sale)
            last = take_order(pool, self._gate, Order("one too many"), timeout=0)
            if not isinstance(last, SoldOut):
                self._wrong.append(f"an order for more than there is got {last}")
            books = read_books(self._engine, SKU)
            self._wrong += wrong_at_end(self._sale, numbers(pool.state()), books)
            self._progress("audit", 0, 1)
            report = audit_both(pool, self._gate)
            self._wrong += [f"audit: {difference}" for difference in report.differences]


def numbers(state: PoolState) -> dict[str, int]:
    """Return the numbers of a pool's state that are judged."""
    return {name: getattr(state, name) for name in ("confirmed", "reserved", "available", "lost", "epoch")}


_ROWS = text("SELECT count(*), sum(quantity) FROM segmented_orders WHERE sku = :sku AND state = 'confirmed'")
_SEGMENTS = text("SELECT sum(quota), sum(sold), min(epoch), max(epoch) FROM segmented_segments WHERE sku = :sku")


def read_books(engine: Engine, sku: str) -> dict[str, int]:
    """Read what the database has sold of a sku."""
    with engine.connect() as connection:
        orders, units = connection.execute(_ROWS, {"sku": sku}).one()
        quota, sold, lowest, highest = connection.execute(_SEGMENTS, {"sku": sku}).one()
    found: dict[str, Any] = {
        "confirmed_orders": orders,
        "confirmed_units": units,
        "quota": quota,
        "sold": sold,
        "lowest_epoch": lowest,
        "highest_epoch": highest,
    }
    return {name: int(value or 0) for name, value in found.items()}


def postgresql_version(engine: Engine) -> str:
    """Return the version of the database server."""
    with engine.connect() as connection:
        return str(connection.execute(text("SHOW server_version")).scalar_one())


REBUILD_SECONDS_MAX: Final = 30.0
P99_RATIO_MAX: Final = 2.0
SAMPLES_MIN: Final = 1_000
"""Minimum number of orders for a p99 that is judged: ten are beyond it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One rebuild, and the other sale before and during it."""

    began: float
    """Monotonic seconds."""
    ended: float
    steady_from: float
    samples: Sequence[Sample]

    @property
    def seconds(self) -> float:
        """Duration of the rebuild."""
        return self.ended - self.began

    @property
    def steady(self) -> list[float]:
        """Latencies of the orders that were confirmed before the rebuild began."""
        return [took for due, took in self.samples if due >= self.steady_from and due + took <= self.began]

    @property
    def during(self) -> list[float]:
        """Latencies of the orders that were under way at any time of the rebuild."""
        return [took for due, took in self.samples if due < self.ended and due + took > self.began]


def report_of(sale: Sale, rounds: Sequence[Round], wrong: Sequence[str], conditions: dict[str, Any]) -> Report:
    """Return the report; `wrong` has a sentence per number that is not exact."""
    steady = [took for one in rounds for took in one.steady]
    during = [took for one in rounds for took in one.during]
    seconds_max = max(one.seconds for one in rounds)
    is_p99_judged = min(len(steady), len(during)) >= SAMPLES_MIN
    broken = list(wrong)
    if seconds_max >= REBUILD_SECONDS_MAX:
        broken.append(f"a rebuild took {seconds_max:.1f} s, the bound is {REBUILD_SECONDS_MAX:g} s")
    if is_p99_judged and p99(during) >= P99_RATIO_MAX * p99(steady):
        broken.append(
            f"the other sale's p99 was {p99(during):.2f} ms during rebuilds and {p99(steady):.2f} ms "
            f"before them, the bound is a ratio of {P99_RATIO_MAX:g}"
        )
    figures = {
        "confirmed": sale.confirmed,
        "reserved": sale.reserved,
        "forgotten": len(sale.finished) + len(sale.cancelled) + sale.lost,
        "rebuilds": len(rounds),
        "seconds": [round(one.seconds, 3) for one in rounds],
        "seconds_median": round(median(one.seconds for one in rounds), 2),
        "seconds_max": round(seconds_max, 2),
        "others_steady": len(steady),
        "others_steady_p99_ms": round(p99(steady), 2),
        "others_during": len(during),
        "others_during_p99_ms": round(p99(during), 2),
        "others_p99_ratio": round(p99(during) / p99(steady), 2) if steady else 0.0,
        "is_p99_judged": is_p99_judged,
    }
    few = f"Fewer than {SAMPLES_MIN:,} orders of the other sale: its p99 is not judged. Give more --rounds."
    return Report(
        benchmark="torture-rebuild",
        broken=broken,
        figures=figures,
        conditions=conditions,
        rows=[(name.replace("_", " "), f"{value}") for name, value in figures.items()],
        notes=() if is_p99_judged else (few,),
    )


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile in milliseconds, by nearest rank; 0 without a value."""
    if not seconds:
        return 0.0
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)] * 1_000


WIDTH: Final = 120


def paragraph(results: dict[str, Any]) -> str:
    """Return the paragraph, as it stands on the page."""
    found: dict[str, Any] = results["figures"] | results["conditions"]
    words = (
        f"`segmented torture rebuild` made a pool with {found['confirmed']:,} confirmed and {found['reserved']:,} "
        f"reserved orders, let its server forget what happened to {found['forgotten']:,} orders, and rebuilt it, "
        f"{found['rebuilds']} times: in {found['seconds_median']:.2f} s (median), {found['seconds_max']:.2f} s at most."
        f" The p99 of orders of another pool on the same servers was {found['others_during_p99_ms']:,.1f} ms meanwhile,"
        f" and {found['others_steady_p99_ms']:,.1f} ms before. {found['cores']} cores for everything "
        f"({found['cpu_model']}), load {found['load_before']:g} at the beginning."
    )
    return f"{fill(words, WIDTH, break_on_hyphens=False)}\n"
