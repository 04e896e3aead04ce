"""A pool, its real workers and the checks at the end: for fault tests of submitted orders."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis
from celery import Celery

from segmented import protocol as op
from segmented.celery.messages import TASK, Envelope
from segmented.models import Order
from segmented.models.submitted import Submitted
from segmented.orders import Gate
from segmented.stock import EnvelopePublisher, OrderHandle, Outbox, Pool
from segmented.stock.outbox import SweepTerms, sweep
from segmented.testing.plugin import WorkerFactory
from segmented.testing.worker_process import WorkerProcess
from tests.support.paths import ROOT
from tests.support.processes import Logged
from tests.support.workers.order_step import FOLDER, STEP, runs
from tests.support.workers.selling import until

QUEUE: Final = "segmented"
AGAIN: Final = 1.0
"""Seconds after which an order that nobody finished is published again, unless a test says otherwise."""
BETWEEN_SWEEPS: Final = 0.2
DECIDED_SECONDS: Final = 150.0


@dataclass(frozen=True, slots=True)
class Mode:
    """How the orders of a test are decided."""

    decides: Any
    is_gated: bool = False
    has_step: bool = False

    def __str__(self) -> str:
        return f"{self.decides}{', gated' * self.is_gated}{', with a step' * self.has_step}"


AT_ONCE: Final = Mode("at acceptance")
WITH_STEP: Final = Mode("at acceptance", has_step=True)
IN_WORKER: Final = Mode("in the worker")
GATED: Final = Mode("in the worker", is_gated=True)
GATED_AT_ONCE: Final = Mode("at acceptance", is_gated=True)
STEP_IN_WORKER: Final = Mode("in the worker", has_step=True)


class OrderSystem:
    """One pool and its workers; the test itself publishes and sweeps, unless it starts beat."""

    def __init__(  # noqa: PLR0913  # the parts that fixtures make
        self,
        mode: Mode,
        pool: Pool,
        gate: Gate | None,
        *,
        app: Celery,
        messages: redis.Redis,
        start: WorkerFactory,
        folder: Path,
        publish_after: float,
        environment: Mapping[str, str],
    ) -> None:
        self.mode, self.gate, self.app, self.messages, self.folder = mode, gate, app, messages, folder
        self._start = start
        self._publish_after = publish_after
        self.publisher = EnvelopePublisher(self.send)
        self.pool = Pool(pool.store, pool.sku, outbox=Outbox(self.publisher, mode.decides, publish_after))
        self.stock = pool.state().available
        self.quantities: dict[str, int] = {}
        self.environment = {FOLDER: str(folder), "SEGMENTED_PUBLISH_AFTER": str(publish_after), **environment}
        if mode.has_step:
            self.environment["SEGMENTED_STEP"] = STEP

    # --- what happens ---

    def worker(self, app: str = "segmented.celery.app", **options: Any) -> WorkerProcess:  # noqa: ANN401  # the factory's
        environment = {**self.environment, **options.pop("environment", {})}
        return self._start(app, environment=environment, **options)

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.app.send_task(TASK, (Envelope(sku, tuple(order_ids)).body(),), queue=QUEUE)

    @contextmanager
    def beat(self) -> Iterator[None]:
        """Have a real beat send the periodic tasks."""
        words = [sys.executable, "-m", "celery", "-A", "segmented.celery.app", "beat", "--loglevel", "WARNING"]
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT)}
        started = Logged([*words, "--pidfile="], self.folder / "beat-said", cwd=ROOT, environment=environment)
        try:
            yield
        finally:
            started.kill()

    def submit(self, orders: Iterable[tuple[str, int]], *, envelopes_of: int = 1_000) -> list[OrderHandle]:
        """Submit orders, so many in an envelope, and return their handles."""
        asked = [Order(order_id, quantity) for order_id, quantity in orders]
        self.quantities |= {order.order_id: order.quantity for order in asked}
        handles: list[OrderHandle] = []
        for first in range(0, len(asked), envelopes_of):
            for answer in self.pool.submit_many(asked[first : first + envelopes_of]):
                if isinstance(answer, Exception):
                    raise answer
                handles.append(answer)
            if envelopes_of < len(asked):
                until(lambda: "0 waiting" in repr(self.publisher))  # each page goes by itself
        return handles

    def submitting(self, folder: Path, *order_ids: str) -> int:
        """Submit orders from a program of their own, and return its exit code."""
        words = (str(folder), self.pool.sku, self.mode.decides, *order_ids)
        return subprocess.run(
            [sys.executable, "-m", "tests.support.workers.order_submitter", *words],
            cwd=ROOT,
            env={**os.environ, **self.environment, "PYTHONPATH": str(ROOT)},
            check=False,
            timeout=DECIDED_SECONDS,
        ).returncode

    def sweep(self) -> None:
        """Publish again what is due, as a worker's own sweep does."""
        terms = SweepTerms(base=self._publish_after, most=2 * self._publish_after)
        sweep(self.pool.store.execute, self.pool.sku, self.publisher, terms=terms)

    def flag(self, name: str, text: str = "") -> None:
        """Tell the step what to do."""
        (self.folder / name).write_text(text)

    def unflag(self, name: str) -> None:
        (self.folder / name).unlink()

    # --- what can be seen ---

    def submitted(self) -> dict[str, Submitted]:
        ids = tuple(self.quantities)
        pages = [ids[first : first + 1_000] for first in range(0, len(ids), 1_000)]
        found = [one for page in pages for one in self.pool.store.execute(op.ReadSubmitted(self.pool.sku, page))]
        return {one.order_id: one for one in found}

    def states(self) -> dict[str, str]:
        return {order_id: one.state for order_id, one in self.submitted().items()}

    def undecided(self) -> list[str]:
        return [order_id for order_id, state in self.states().items() if state in {"queued", "reserved"}]

    def until_decided(self, *, sweeping: bool = True) -> float:
        """Wait until every order is decided, sweeping meanwhile; return how long that took."""
        began_at, swept_at = time.monotonic(), 0.0

        def is_so() -> bool:
            nonlocal swept_at
            if sweeping and time.monotonic() > swept_at + BETWEEN_SWEEPS:
                self.sweep()
                swept_at = time.monotonic()
            return not self.undecided()

        until(is_so, seconds=DECIDED_SECONDS)
        return time.monotonic() - began_at

    def runs(self, what: str = "effect") -> Counter[str]:
        return runs(self.folder, what)

    def in_hand(self) -> int:
        """Return how many messages no worker has acknowledged."""
        return self.messages.hlen("unacked")

    # --- what must be so at the end ---

    def check(self, *, refused: Iterable[str] = (), dead: Iterable[str] = ()) -> None:
        """Every accepted order was decided once, the sums are exact, and nothing waits."""
        refused, dead = set(refused), set(dead)
        sold = {one: number for one, number in self.quantities.items() if one not in refused | dead}
        found = self.states()
        at_the_door = refused if self.mode.decides == "at acceptance" else set()
        assert {one: state for one, state in found.items() if state != "confirmed"} == {
            **dict.fromkeys(refused, "refused"),
            **dict.fromkeys(at_the_door, "unknown"),
            **dict.fromkeys(dead, "dead"),
        }
        state = self.pool.state()
        held = sum(self.quantities[one] for one in dead)
        assert (state.confirmed, state.reserved) == (sum(sold.values()), held)
        assert state.available == self.stock - sum(sold.values()) - held
        outbox = self.pool.store.execute(op.ReadOutbox(self.pool.sku))
        assert (outbox.waiting, outbox.dead) == (0, len(dead))
        confirmed = [str(entry.order_id) for entry in self.pool.read_ledger() if entry.kind == "confirmed"]
        assert sorted(confirmed) == sorted(sold)
        assert self.pool.audit().is_clean
        if self.gate is not None:
            rows = [(row.order_id, row.quantity) for row in self.gate.each_order(self.pool.sku)]
            assert sorted(rows) == sorted(sold.items())
            assert self.gate.totals(self.pool.sku).sold == state.confirmed
