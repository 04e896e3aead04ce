"""One run of `torture rebuild`: a sale, a server that forgets the last part of it, rebuilds, and the exact books.

The server forgets as it does when an operator restores an old copy: its data is copied in the sale, it is killed later,
and is started with the copy. Each round does so again with the same copy, and rebuilds in the next epoch.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.conditions import server_conditions
from bench.proof.durability.server import StockServer
from bench.proof.rebuilds.books import postgresql_version, read_books, wrong_after_rebuild, wrong_at_end
from bench.proof.rebuilds.neighbour import Addresses, Neighbour
from bench.proof.rebuilds.options import SEGMENTS, SKU, order_id
from bench.proof.rebuilds.preparing import HOLD, sell_after_copy, sell_rest, sell_until_copy
from bench.proof.rebuilds.results import RebuildResults, Round
from segmented.errors import PoolFrozen, SegmentedError
from segmented.models import Order, Settled, SoldOut
from segmented.orders import Gate, audit_both, connect, open_gated, rebuild, take_order, verify
from segmented.servers import PostgresServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from bench.display import Display, Progress
    from bench.proof.rebuilds.options import RebuildOptions
    from segmented.models import PoolState

CONNECTIONS: Final = 16
REPEATED: Final = 100
"""Lost orders that are taken again after the last rebuild."""


def torture_rebuild(options: RebuildOptions, display: Display) -> RebuildResults:
    """Run on servers of its own. Raises SegmentedError if the sale cannot be made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-rebuild-")))
        progress = stack.enter_context(display.strategy("rebuild"))
        database = stack.enter_context(PostgresServer.start(max_connections=CONNECTIONS)).url
        server = stack.enter_context(StockServer.start(folder / "stock", fsync=None, has_port=False))
        engine = connect(database, pool_size=2)
        gate = stack.enter_context(Gate(engine))
        gate.create()
        return _Run(options, server, folder / "copy", Addresses(server.url, database), gate, engine, progress).run()


class _Run:
    def __init__(  # what a run has started, each once
        self,
        options: RebuildOptions,
        server: StockServer,
        copy: Path,
        addresses: Addresses,
        gate: Gate,
        engine: Engine,
        progress: Progress,
    ) -> None:
        self._options, self._sale = options, options.sale
        self._server, self._copy, self._addresses = server, copy, addresses
        self._gate, self._engine = gate, engine
        self._progress = progress
        self._wrong: list[str] = []

    def run(self) -> RebuildResults:
        conditions = server_conditions(self._server.url)
        conditions["versions"]["postgresql"] = postgresql_version(self._engine)
        self._sell()
        rounds = []
        for number in range(1, self._options.round_count + 1):
            self._progress("rebuilds", number - 1, self._options.round_count)
            self._forget()
            rounds.append(self._round(number))
        self._finish()
        return RebuildResults(
            options=self._options,
            rounds=rounds,
            wrong=self._wrong,
            conditions=conditions | {"options": {"orders": self._options.orders, "rounds": len(rounds)}},
        )

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
            with Neighbour(self._addresses, f"neighbour-{number}") as neighbour:
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
