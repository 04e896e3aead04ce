"""One trial: a sale, one fault at a random moment of it, recovery, the sale of the rest, and the verdict.

The operator opens the pool, has it sell again after a loss, and sells the rest at the end. It does what
docs/how-to/recover-a-pool.md says: a frozen pool is rebuilt from its order database, or thawed with the number of
orders that customers have; a pool whose keys are gone is opened again in the next epoch with the rest.
"""

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from segmented.errors import AcknowledgementUnknown, PoolMissing, PoolNotFrozen, PoolVanished, SegmentedError
from segmented.models import Decided, Order, PoolState, Settled, SoldOut
from segmented.orders import Gate, connect, rebuild, reopen_gated
from segmented.orders.sale import cancel_order, expire_voided
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.torture.durability.buyer import (
    HOLD,
    SEGMENTS,
    SKU,
    THREADS,
    Assignment,
    be_buyer,
    be_worker,
    shop_pool,
    take,
)
from tests.torture.durability.cells import CLIENT_KILL, WORKER_KILL, Cell
from tests.torture.durability.deployment import Deployment, deployed
from tests.torture.durability.journal import Ack, Journal, JournalReader
from tests.torture.judge import Evidence, TrialVerdict, judge
from tests.torture.preload import Library
from tests.torture.supervisor import AGAIN_SECONDS, Processes, connected

REST_SECONDS: Final = 30.0
"""Maximum duration of the sale of the rest."""
HELD_SECONDS: Final = HOLD + 2.0
"""Time for reserved units of killed calls to come back. On a server whose clock is behind they take longer."""


class Operator:
    """Works with stores of its own, which have not seen what the buyers have."""

    def __init__(self, url: str, database: str | None, stock: int, *, profile: str | None = None) -> None:
        """Work on the pool at `url`, opened with `profile` and decided by `database` if there is one."""
        self._stack = ExitStack()
        self._url = url
        self._database = database
        self._stock = stock
        self._profile = profile
        self._epoch = 1
        self.acks: list[Ack] = []
        """Orders that the operator sold at the end."""

    def __enter__(self) -> Self:
        """Connect to the order database."""
        self._gate = None
        if self._database is not None:
            self._gate = self._stack.enter_context(Gate(connect(self._database)))
            self._gate.create()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._stack.close()

    def open(self) -> None:
        """Open the pool."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            if self._gate is None:
                pool.open(stock=self._stock, segments=SEGMENTS, profile=self._profile)
            else:
                Pool(pool.store, pool.sku, gate=self._gate).open(stock=self._stock, segments=SEGMENTS)

    def kept(self) -> set[str]:
        """Read from the ledger which orders the stock's server has as confirmed."""
        with connected(self._url) as store, suppress(PoolMissing):
            ledger = shop_pool(store).read_ledger()
            return {entry.order_id or "" for entry in ledger if entry.kind == "confirmed"}
        return set()

    def recover(self, acks: Iterable[Ack]) -> str:
        """Have the pool sell again, and return what was done. `acks` are the orders that customers have."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            try:
                state = pool.state()
            except (PoolMissing, PoolVanished):
                return self._reopen(store, acks)
            if state.frozen is None:
                return "nothing"
            self._epoch = max(self._epoch, state.epoch, state.frozen[0]) + 1
            with suppress(PoolNotFrozen):
                if self._gate is not None:
                    rebuild(pool, self._gate)
                    return "rebuilt"
                pool.thaw(sold=self._sold(acks))
                return "thawed"
            return "nothing"

    def _reopen(self, store: RedisStore, acks: Iterable[Ack]) -> str:
        pool = shop_pool(store)
        self._epoch += 1
        if self._gate is not None:
            if self._gate.totals(SKU).sold >= self._stock:
                return "nothing"
            reopen_gated(pool, self._gate, segments=SEGMENTS, epoch=self._epoch)
        else:
            left = self._stock - self._sold(acks)
            if left <= 0:
                return "nothing"
            pool.open(stock=left, segments=SEGMENTS, epoch=self._epoch, profile=self._profile)
        return "reopened"

    def _sold(self, acks: Iterable[Ack]) -> int:
        """Count the orders that customers have, and those that the server still has: one may lack its answer."""
        return len({ack.order_id for ack in acks} | self.kept())

    def sell_rest(self, left: Iterable[str]) -> int:
        """Cancel the orders whose buyers gave up, sell what is free, and return how many units are still reserved."""
        with connected(self._url) as store:
            pool = shop_pool(store)
            for order_id in left:
                with suppress(SegmentedError):
                    if self._gate is None:
                        pool.cancel(order_id)
                    else:
                        cancel_order(pool, self._gate, Order(order_id))
            began = time.monotonic()
            number = 0
            while True:
                if self._gate is None:
                    pool.expire()
                else:
                    expire_voided(pool, self._gate)
                answer = take(pool, self._gate, f"rest-{number}")
                if isinstance(answer, Settled | Decided):
                    number += 1
                    if answer.state == "confirmed":
                        self.acks.append(Ack(time.monotonic(), answer.order_id, answer.quantity))
                    continue
                state: PoolState = pool.state()
                seconds = time.monotonic() - began
                is_over = state.reserved == 0 or seconds > HELD_SECONDS
                if (isinstance(answer, SoldOut) and is_over) or seconds > REST_SECONDS:
                    return state.reserved
                time.sleep(AGAIN_SECONDS)


PROCESSES: Final = 2
WORKERS: Final = 2
STOCK: Final = 600
FAULT_SHARES: Final = (0.15, 0.6)
"""Between these shares of the stock, drawn at random, the fault comes."""
PREPARED_SHARES: Final = (0.5, 1.0)
"""Between these shares of that a replica is cut off, or a copy of the data is made: a few orders are lost, or many."""
UNKNOWN_CALLS: Final = 20
"""Calls whose outcome is unknown after which a fault comes: a pool that waits for a cut-off replica sells nothing."""
TICK: Final = 0.01
TRIAL_SECONDS: Final = 200.0
NOTICED_SECONDS: Final = 10.0
"""Time for all threads to stop selling, so that an operator can count. A thread may wait for a dead call's lease."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """The verdict on a trial, and what happened in it."""

    verdict: TrialVerdict
    recoveries: tuple[str, ...]
    bytes_cut: int
    failures: Mapping[str, int]
    """Failed calls of buyers, by error."""
    failed_s_max: float
    """Seconds that the longest of them took."""

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return self.verdict.as_json() | {
            "recoveries": list(self.recoveries),
            "bytes_cut": self.bytes_cut,
            "failures": dict(self.failures),
            "failed_s_max": self.failed_s_max,
        }


def run_trial(cell: Cell, seed: str, libraries: Mapping[Library, Path]) -> TrialRecord:
    """Run one trial on servers of its own. Raises SegmentedError if it cannot be judged."""
    chance = random.Random(f"{cell.name}/{seed}")
    with tempfile.TemporaryDirectory(prefix="segmented-durability-") as name:
        folder = Path(name)
        database = f"sqlite:///{folder / 'orders.sqlite'}" if cell.profile.is_gated else None
        with (
            deployed(cell, folder, libraries) as deployment,
            Operator(deployment.url, database, STOCK, profile=cell.profile.pool_profile) as operator,
        ):
            operator.open()
            deployment.settle()
            has_workers = cell.fault is WORKER_KILL
            with Buyers(folder, deployment.url, database, has_workers=has_workers) as buyers:
                return _Trial(cell, deployment, operator, buyers, chance).run(folder / "orders.sqlite")


class Buyers:
    """The buying processes of one trial, and its workers. As a context manager, it leaves none behind."""

    def __init__(self, folder: Path, url: str, database: str | None, *, has_workers: bool = False) -> None:
        """Start no process yet; journals are kept in `folder`. With workers, orders are submitted to them."""
        self.journals = [folder / f"journal-{number}" for number in range(PROCESSES)]
        self._assignments = [
            Assignment(number, url, database, str(journal), is_submitting=has_workers)
            for number, journal in enumerate(self.journals)
        ]
        self._processes = Processes(folder)
        self._buying: dict[int, int] = {}
        self._workers: list[int] = []
        self._worker_count = WORKERS if has_workers else 0

    def __enter__(self) -> Self:
        """Start all of them."""
        for assignment in self._assignments:
            number = self._processes.start(be_buyer, assignment, name="buying process", may_end=True)
            self._buying[assignment.process] = number
        for _ in range(self._worker_count):
            self._workers.append(self._processes.start(be_worker, self._assignments[0], name="worker"))
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining ones."""
        self._processes.__exit__()

    @property
    def running(self) -> list[int]:
        """The numbers of the buying processes that were not killed."""
        return sorted(self._buying)

    @property
    def are_done(self) -> bool:
        """Return whether all that were not killed have ended. Raises SegmentedError if one failed."""
        self._processes.require_alive()
        return not set(self._buying.values()) & set(self._processes.running)

    def kill(self, number: int) -> None:
        """Kill one buying process."""
        self._processes.kill(self._buying.pop(number))

    def kill_worker(self) -> None:
        """Kill one worker."""
        self._processes.kill(self._workers.pop())


class _Trial:
    def __init__(
        self, cell: Cell, deployment: Deployment, operator: Operator, buyers: Buyers, chance: random.Random
    ) -> None:
        self._cell = cell
        self._deployment = deployment
        self._operator = operator
        self._buyers = buyers
        self._chance = chance
        self._reader = JournalReader(buyers.journals)
        self._until = time.monotonic() + TRIAL_SECONDS
        self._recoveries: list[str] = []

    def run(self, database: Path) -> TrialRecord:
        acks_at_fault = int(STOCK * self._chance.uniform(*FAULT_SHARES))
        prepared = acks_at_fault * self._chance.uniform(*PREPARED_SHARES)
        self._wait(lambda journal: len(journal.acks) >= prepared, "what precedes the fault")
        self._deployment.prepare()
        prepared_at, in_flight = time.monotonic(), THREADS * len(self._buyers.running)

        def is_due(journal: Journal) -> bool:
            """Return whether orders were sold that had not even begun when what precedes the fault was done."""
            since = sum(ack.at > prepared_at for ack in journal.acks)
            return (len(journal.acks) >= acks_at_fault and since > in_flight) or _is_stalled(journal)

        self._wait(is_due, "the fault")
        time.sleep(self._chance.uniform(0, TICK))
        fault_at, back_at = self._inject()
        kept = self._operator.kept()
        self._recover(back_at)
        held = self._operator.sell_rest(self._reader.journal.left)
        journal = self._reader.read()
        evidence = Evidence(
            stock=STOCK,
            fault_at=fault_at,
            back_at=back_at,
            acks=[*journal.acks, *self._operator.acks],
            noticed=journal.noticed,
            kept=kept,
            rows=confirmed_rows(database) if self._cell.profile.is_gated else None,
            held=held,
            undecided=journal.left if self._cell.fault is WORKER_KILL else (),
            failed_s_max=journal.failed_s_max,
        )
        return TrialRecord(
            judge(evidence),
            tuple(self._recoveries),
            self._deployment.bytes_cut,
            dict(journal.failures),
            journal.failed_s_max,
        )

    def _inject(self) -> tuple[float, float]:
        """Inject the fault; return when it came, and when there was a server again."""
        if self._cell.fault in {CLIENT_KILL, WORKER_KILL}:
            at = time.monotonic()
            if self._cell.fault is CLIENT_KILL:
                self._buyers.kill(self._chance.choice(self._buyers.running))
            else:
                self._buyers.kill_worker()
            return at, at
        self._deployment.kill()
        at = time.monotonic()
        self._deployment.bring_back()
        return at, time.monotonic()

    def _recover(self, back_at: float) -> None:
        """Have the pool sell again after every loss that a process notices, until the buyers have bought everything."""
        recovered_at = back_at
        while not self._buyers.are_done:
            journal = self._look("the end of the sale")
            if any(at > recovered_at for at in journal.noticed_last.values()):
                self._wait_stopped(recovered_at)
                self._recoveries.append(self._operator.recover(self._reader.read().acks))
                recovered_at = time.monotonic()
            time.sleep(TICK)
        self._reader.read()

    def _wait_stopped(self, since: float) -> None:
        """Wait until every thread has stopped selling: an answer that is not noted yet would not be counted."""
        wanted = {f"{process}.{thread}" for process in self._buyers.running for thread in range(THREADS)}
        until = time.monotonic() + NOTICED_SECONDS
        while time.monotonic() < until:
            journal = self._look("the buyers to stop")
            stopped = {thread for thread, at in journal.noticed_last.items() if at > since} | journal.over
            if wanted <= stopped:
                return
            time.sleep(TICK)

    def _wait(self, is_so: Callable[[Journal], bool], what: str) -> None:
        while not is_so(self._look(what)):
            if self._buyers.are_done:
                raise SegmentedError(f"{self._cell.name}: everything was sold before {what}")
            time.sleep(TICK / 4)

    def _look(self, what: str) -> Journal:
        if time.monotonic() > self._until:
            found = self._reader.journal
            raise SegmentedError(
                f"{self._cell.name}: not over after {TRIAL_SECONDS:g} s, waiting for {what}: {len(found.acks)} orders "
                f"acknowledged, recoveries {self._recoveries}, failed calls {found.failures}"
            )
        return self._reader.read()


def _is_stalled(journal: Journal) -> bool:
    """Return whether nothing is acknowledged any more, because the replica that would do it is cut off."""
    return journal.failures.get(AcknowledgementUnknown.__name__, 0) >= UNKNOWN_CALLS


def confirmed_rows(database: Path) -> dict[str, int]:
    """Read the confirmed orders from an SQLite database, with the module of the standard library."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT order_id, quantity FROM segmented_orders WHERE state = 'confirmed'")
        return dict(found.fetchall())
