"""A sale as a Locust test: handlers of Locust's events in a master, a worker, or the only process.

The coordinating process opens the stock and announces the sale with the options that Locust sends to its workers. Each
worker sells its share and sends its call log at the end; then the coordinator checks the sale. With one process the
share is the whole sale.
"""

from __future__ import annotations

import itertools
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
from locust import User, events, task
from locust.exception import StopUser
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, WorkerRunner
from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError

from bench.engine.cell import schedule_of
from bench.engine.measurement import Dispatcher
from bench.engine.sale import Sale
from bench.load.page import guard_page
from bench.load.plan import Plan, SaleCoordinator, Servers, add_options, add_own, cell_of, connect_strategy
from bench.load.results import add_tabs, as_text, tables, write
from bench.load.tally import Counter, DelayMeter, Tally, Window, call_log_of
from bench.results import check_writable
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment

    from bench.load.plan import ConnectedStrategy, Result

    Fire = Callable[[str, float, Exception | None], None]
    """Called for each call with its name, milliseconds, and failure."""


UNFINISHED_SECONDS: Final = 0.05
ORDERS_A_SHARE: Final = 10**12


class Shed(Exception):
    """The maximum number of orders was under way."""


class Failed(Exception):
    """An order had no answer."""


class Seller:
    """Sells a share of a sale."""

    def __init__(self, plan: Plan, share: int, fire: Fire, *, connected: ConnectedStrategy | None = None) -> None:
        """Join the plan's sale; with `connected`, use that strategy, which has opened the sale."""
        self.plan, self._fire = plan, fire
        cell = plan.share
        self._owned: ConnectedStrategy | None = None
        if connected is None:
            connected = self._owned = connect_strategy(plan, buyers=cell.buyers)
            connected.strategy.join(plan.sku, plan.stock)
        self.sale = Sale(cell, connected.strategy, numbered_from=share * ORDERS_A_SHARE)
        self.sale.after = self._fire_call
        self.is_open = cell.loop == "open"
        self.window = Window()
        self._counter = Counter(self.sale.recorder, is_open=self.is_open)
        self._cpu_before = time.process_time()
        self._delay = None if self.is_open else DelayMeter()
        self._dispatcher: Dispatcher | None = None
        self._planned = self._shed_fired = 0
        if self.is_open:
            schedule = schedule_of(cell, warm_up=plan.warm_up, seconds=plan.seconds, seed=plan.seed_of(share))
            self._planned = len(schedule) * cell.batch
            self._dispatcher = Dispatcher(self.sale, schedule.tolist(), under_way_max=cell.buyers)

    def start(self) -> None:
        """Start the arrivals; in a closed loop start the measured time, since all buyers have started."""
        began = time.monotonic()
        if self._dispatcher is not None:
            self._dispatcher.start()
            began = self._dispatcher.began
        self.window = Window(began + self.plan.warm_up, began + self.plan.warm_up + self.plan.seconds)

    @property
    def is_over(self) -> bool:
        """Return whether all arrivals were handled; in a closed loop, whether time or stock has run out."""
        if self._dispatcher is not None:
            return self._dispatcher.is_over
        return self.sale.over.is_set() or time.monotonic() >= self.window.end

    def close(self) -> None:
        """Start no more orders, and wait for those under way."""
        self.window.end = min(self.window.end, time.monotonic())
        if self._dispatcher is not None:
            self._dispatcher.stop(self.plan.drain)
            return
        self.sale.is_closing = True
        until = time.monotonic() + self.plan.drain
        while self.sale.unfinished_count and time.monotonic() < until:
            gevent.sleep(UNFINISHED_SECONDS)

    def leave(self) -> None:
        """Close the connections."""
        if self._delay is not None:
            self._delay.stop()
        if self._owned is not None:
            self._owned.close()

    def tally(self) -> Tally:
        """Return the figures so far."""
        if not self.is_open and self.sale.sold_out_at is not None:
            self.window.end = min(self.window.end, self.sale.sold_out_at)
        shed = 0 if self._dispatcher is None else len(self._dispatcher.shed_at) * self.sale.cell.batch
        self._fire_shed(shed)
        now = time.monotonic()
        if self._delay is not None:
            self._counter.look_at_delay(self.window, self._delay.taken(), now=now)
        self._counter.tally.cpu_s = time.process_time() - self._cpu_before
        return self._counter.look(
            self.window,
            now=now,
            planned=self._planned if self.is_open else self.sale.order_count,
            sent=self.sale.order_count,
            shed=shed,
        )

    def call_log(self) -> dict[str, Any]:
        """Return the call log for the checker; unfinished orders count as failed."""
        return call_log_of(self.sale.recorder) | {"unfinished": self.sale.unfinished_count}

    def _fire_call(self, asked: float, done: float, *_: object) -> None:
        recorder = self.sale.recorder
        began = recorder.intended[-1] if self.is_open else asked
        failure = Failed(recorder.failures[-1]) if recorder.failed[-1] else None
        name = "Sold" if recorder.sold[-1] else "SoldOut" if recorder.sold_out[-1] else "Failed"
        self._fire(name, (done - began) * 1_000, failure)

    def _fire_shed(self, shed: int) -> None:
        while self._shed_fired < shed:
            self._shed_fired += self.sale.cell.batch
            self._fire("Shed", 0.0, Shed("as many orders as allowed were under way"))


REQUEST_TYPE: Final = "order"
POLL_SECONDS: Final = 0.1
SPARE_SECONDS: Final = 15.0
"""Seconds for workers to start, to send their call logs, and to write them."""
EXIT_BROKEN: Final = 1
EXIT_BAD_INPUT: Final = 2
CLOSE: Final = "segmented_close"
OVER: Final = "segmented_over"
NOTES: Final = "segmented_notes"


class Scenario:
    """The part of a test that runs in one process."""

    def __init__(self, *, is_open: bool) -> None:
        """Register handlers of Locust's events."""
        self._is_open = is_open
        self._servers = Servers()
        self._ending, self._judging = threading.Lock(), threading.Lock()
        self.coordinator: SaleCoordinator | None = None
        """Set in the coordinating process."""
        self.seller: Seller | None = None
        """Set in a process that sells."""
        self._finished: list[Result] = []
        guard_page()
        for event, listener in (
            (events.init_command_line_parser, lambda parser, **_: add_options(parser, is_open=is_open)),
            (events.init, self._init),
            (events.test_start, self._start),
            (events.spawning_complete, self._all_are_there),
            (events.test_stopping, self._stopping),
            (events.test_stop, self._stopped),
            (events.report_to_master, self._report),
            (events.worker_report, self._on_report),
        ):
            event.add_listener(listener)  # type: ignore[no-untyped-call]  # Locust has no types for it

    # --- Locust's events, in the order in which they happen ---

    def _init(self, environment: Environment, **_: object) -> None:
        self._environment = environment
        self._named: str = getattr(environment.parsed_options, "strategy", "")
        gevent.signal_handler(signal.SIGINT, _interrupt)
        # Registered after the runner's listener, so called before it: call logs are sent before a worker disconnects.
        environment.events.quitting.add_listener(self._quitting)  # type: ignore[no-untyped-call]  # as above
        runner, options = environment.runner, environment.parsed_options
        if isinstance(runner, WorkerRunner):
            runner.register_message(CLOSE, lambda **_: self._end_share(), concurrent=True)
            return
        if isinstance(runner, MasterRunner):
            runner.register_message(OVER, self._on_over)
            runner.register_message(NOTES, self._on_notes)
        if environment.web_ui is not None:
            add_tabs(environment.web_ui, tables(self._with_newest_figures, self._finished))
        if options is not None and not options.processes:  # forked workers cannot exit before they have a master
            try:
                self._check(environment, options)
            except InvalidInput as error:
                sys.stderr.write(f"{error}\n")
                sys.exit(EXIT_BAD_INPUT)

    def _check(self, environment: Environment, options: Any) -> None:  # noqa: ANN401  # a namespace that Locust fills
        add_own(self._named)
        cell_of(options, is_open=self._is_open)
        if options.sale_json:
            check_writable(Path(options.sale_json), option="--sale-json")
        self._servers.check()
        if environment.web_ui is not None:
            _check_port(environment.web_ui.host, environment.web_ui.port)

    def _start(self, environment: Environment, **_: object) -> None:
        options: Any = environment.parsed_options
        try:
            if isinstance(environment.runner, WorkerRunner):
                self._join(Plan.model_validate_json(options.segmented_plan), environment.runner.client_id)
            else:
                self._open(environment.runner, options)
        except (SegmentedError, RedisError, SQLAlchemyError) as error:
            self._give_up(str(error) or type(error).__name__)

    def _all_are_there(self, **_: object) -> None:
        if self.seller is not None and not self._is_open and self.seller.window.begin == float("inf"):
            self.seller.start()

    def _stopping(self, environment: Environment, **_: object) -> None:
        if self.coordinator is not None:
            self.coordinator.is_ending = True
        if isinstance(environment.runner, MasterRunner):
            environment.runner.send_message(CLOSE)
        else:
            self._end_share()

    def _stopped(self, **_: object) -> None:
        with self._judging:  # a test may be stopped twice at once: by its end and by a key
            coordinator = self.coordinator
            if coordinator is None or coordinator.result is not None:
                return
            until = time.monotonic() + coordinator.plan.drain + SPARE_SECONDS
            while self._awaited(coordinator) - coordinator.call_logs.keys() and time.monotonic() < until:
                gevent.sleep(POLL_SECONDS)
            try:
                self._say(coordinator.judge())
            except (SegmentedError, RedisError, SQLAlchemyError) as error:
                self.coordinator = None
                self._give_up(f"the sale could not be checked: {error}")
            finally:
                coordinator.close()

    def _say(self, result: Result) -> None:
        self._finished.append(result)
        options: Any = self._environment.parsed_options
        shown = sys.stderr if options.sale_json == "-" else sys.stdout
        shown.write(as_text(result) + "\n")
        shown.flush()
        if result.broken or result.void:
            self._environment.process_exit_code = EXIT_BROKEN
        if options.sale_json:
            try:
                write(result, Path(options.sale_json))
            except InvalidInput as error:
                self._give_up(f"--sale-json: {error}")

    def _quitting(self, environment: Environment, **_: object) -> None:
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            self._end_share()
            return
        if isinstance(runner, MasterRunner):
            runner.stop(send_stop_to_client=False)
        elif runner is not None:
            runner.stop()
        self._servers.stop()

    # --- the coordinating process ---

    def _open(self, runner: Any, options: Any) -> None:  # noqa: ANN401  # Locust's
        add_own(self._named)
        cell = cell_of(options, is_open=self._is_open)
        if isinstance(runner, MasterRunner):
            shares = tuple(worker.id for worker in runner.clients.ready)
        else:
            shares = (runner.client_id,)
        self.coordinator = coordinator = SaleCoordinator.open(cell, self._servers, options=options, shares=shares)
        options.segmented_plan = coordinator.plan.model_dump_json()
        if isinstance(runner, LocalRunner):
            self._begin(Seller(coordinator.plan, 0, self._fire, connected=coordinator.connected))
        gevent.spawn(self._end_in_time, coordinator)

    def _end_in_time(self, coordinator: SaleCoordinator) -> None:
        """Stop the test when all sellers have finished, or well after the planned time."""
        plan = coordinator.plan
        until = time.monotonic() + plan.warm_up + plan.seconds + plan.drain + SPARE_SECONDS
        while (
            coordinator is self.coordinator
            and self._awaited(coordinator) - coordinator.over
            and (not self._is_open or time.monotonic() < until)
        ):
            gevent.sleep(POLL_SECONDS)
        options: Any = self._environment.parsed_options
        runner = self._environment.runner
        is_deserted = not self._awaited(coordinator)  # Locust has then stopped the test, and would go on without one
        while is_deserted and coordinator is self.coordinator and coordinator.result is None:
            gevent.sleep(POLL_SECONDS)
        if coordinator is not self.coordinator or runner is None or (coordinator.is_ending and not is_deserted):
            return
        if options.headless:
            runner.quit()
        else:
            runner.stop()

    def _awaited(self, coordinator: SaleCoordinator) -> set[str]:
        """Return the sellers of the sale, without the workers that Locust misses: a killed one never reports."""
        runner = self._environment.runner
        shares = set(coordinator.plan.shares)
        if not isinstance(runner, MasterRunner):
            return shares
        return shares & {one.id for one in runner.clients.all if one.state != STATE_MISSING}

    def _on_over(self, msg: Any, **_: object) -> None:  # noqa: ANN401  # Locust's message
        if self.coordinator is not None and msg.data["sku"] == self.coordinator.plan.sku:
            self.coordinator.over.add(msg.node_id)

    def _on_report(self, client_id: str, data: dict[str, Any]) -> None:
        said, sale = data.get("segmented"), self.coordinator
        if said and sale is not None and said["sku"] == sale.plan.sku and client_id not in sale.call_logs:
            sale.tallies[client_id] = Tally.from_message(said["tally"])

    def _on_notes(self, msg: Any, **_: object) -> None:  # noqa: ANN401  # Locust's message
        if self.coordinator is not None and msg.data["sku"] == self.coordinator.plan.sku:
            self.coordinator.tallies[msg.node_id] = Tally.from_message(msg.data["tally"])
            self.coordinator.call_logs[msg.node_id] = msg.data["books"]

    def _with_newest_figures(self) -> SaleCoordinator | None:
        """Return the sale for Locust's page, with the newest figures if this process also sells."""
        if self.coordinator is not None and self.seller is not None:
            self.coordinator.tallies[self.coordinator.plan.shares[0]] = self.seller.tally()
        return self.coordinator

    def _give_up(self, reason: str) -> None:
        sys.stderr.write(f"{reason}\n")
        environment = self._environment
        environment.process_exit_code = EXIT_BAD_INPUT
        options: Any = environment.parsed_options
        if environment.runner is not None and not isinstance(environment.runner, WorkerRunner):
            gevent.spawn(environment.runner.quit if options.headless else environment.runner.stop)

    # --- a process that sells ---

    def _join(self, plan: Plan, share: str) -> None:
        if share in plan.shares:  # a late worker has no share of this sale
            self._begin(Seller(plan, plan.shares.index(share), self._fire))

    def _begin(self, seller: Seller) -> None:
        self.seller = seller
        if self._is_open:
            seller.start()
        gevent.spawn(self._announce_end, seller)

    def _announce_end(self, seller: Seller) -> None:
        while seller is self.seller and not seller.is_over:
            gevent.sleep(POLL_SECONDS)
            seller.tally()  # so that Locust's page shows shed orders
        runner = self._environment.runner
        if isinstance(runner, WorkerRunner):
            runner.send_message(OVER, {"sku": seller.plan.sku})
        elif self.coordinator is not None:
            self.coordinator.over.update(self.coordinator.plan.shares)

    def _report(self, data: dict[str, Any], **_: object) -> None:
        if self.seller is not None:
            data["segmented"] = {"sku": self.seller.plan.sku, "tally": self.seller.tally().as_message()}

    def _end_share(self) -> None:
        with self._ending:
            seller = self.seller
            if seller is None:
                return
            seller.close()
            tally, call_log = seller.tally(), seller.call_log()
            self.seller = None
            runner = self._environment.runner
            if isinstance(runner, WorkerRunner):
                runner.send_message(NOTES, {"sku": seller.plan.sku, "tally": tally.as_message(), "books": call_log})
            elif self.coordinator is not None:
                share = self.coordinator.plan.shares[0]
                self.coordinator.tallies[share], self.coordinator.call_logs[share] = tally, call_log
            seller.leave()

    def _fire(self, name: str, milliseconds: float, failure: Exception | None) -> None:
        self._environment.events.request.fire(  # type: ignore[no-untyped-call]  # Locust has no types for it
            request_type=REQUEST_TYPE,
            name=name,
            response_time=milliseconds,
            response_length=0,
            exception=failure,
            context={},
        )


class IdleUser(User):
    """A user that does nothing: arrivals come from a schedule, not from users."""

    abstract = True

    @task
    def wait(self) -> None:
        """Wait until the test stops."""
        gevent.sleep(1)


class OrderingUser(User):
    """A user that orders again at once, until the sale closes."""

    abstract = True
    scenario: Scenario
    numbers = itertools.count()

    @task
    def buy(self) -> None:
        """Process one order after another."""
        seller, number = self.scenario.seller, next(self.numbers)
        while seller is not None and not seller.sale.is_closing:
            seller.sale.call(number)
        raise StopUser


def _check_port(host: str, port: int) -> None:
    """Check that Locust's page can use the port. Raises InvalidInput."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise InvalidInput(
            f"--web-port {port}: name another port for Locust's page, or add --headless: {error.strerror or error}"
        ) from error


def _interrupt() -> None:
    """Interrupt the main greenlet; Python's own handler might interrupt an order."""
    hub = gevent.get_hub()
    if hub.parent is not None:
        hub.loop.run_callback(hub.parent.throw, KeyboardInterrupt)
