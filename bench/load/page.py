"""Locust's own page: access to it, the pool of a locustfile on it while it sells, and the verdict at the end.

The page serves this machine only, unless the user says otherwise, and no page of another site can use it. Locust
listens on all interfaces by default, answers any Host and Origin, and takes every option of its command line as a field
of `/swarm`, also those that name a file. A page of another site could so start tests and overwrite files.

The verdict compares a shop's answers to its buyers with the records of its pool.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from flask import Response, request
from locust import events
from locust.argument_parser import ui_extra_args_dict
from locust.runners import WorkerRunner

from bench.load.results import PageTable, add_tabs
from segmented.errors import SegmentedError
from segmented.files import said_in_file
from segmented.masking import masked
from segmented.plans import run_sync
from segmented.stock import find_pool
from segmented.stores.redis import RedisStore
from segmented.watch.reading import PoolReading, reading_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

    from segmented.models import OrderRecord
    from segmented.stock import AuditReport, Pool, ShardedAuditReport, ShardedPool

LOOPBACK: Final = "127.0.0.1"
FIELDS: Final = frozenset({"user_count", "spawn_rate", "host", "run_time", "user_classes", "shape_class", "profile"})
"""Fields of Locust's own page."""


def guard_page() -> None:
    """Register handlers of Locust's events, in a locustfile."""
    events.init_command_line_parser.add_listener(_listen_here)  # type: ignore[no-untyped-call]  # Locust has no types for it
    events.init.add_listener(_guard_requests)  # type: ignore[no-untyped-call]  # as above


def _listen_here(parser: LocustArgumentParser, **_: object) -> None:
    """Let page and master listen on this machine only, unless their options say otherwise."""
    parser.set_defaults(web_host=LOOPBACK, master_bind_host=LOOPBACK)


def _guard_requests(environment: Environment, **_: object) -> None:
    web_ui = environment.web_ui
    if web_ui is None or web_ui.app is None:
        return
    names = {"localhost", socket.gethostname(), socket.getfqdn(), web_ui.host} - {""}

    @web_ui.app.before_request
    def refuse() -> Response | None:
        why = wrong_host(request.host, names) or wrong_origin(request.headers.get("Origin"), request.host)
        if not why and request.method == "POST" and request.path.endswith("/swarm"):
            why = wrong_fields(request.form, ui_extra_args_dict())
        return Response(f"{why}\n", status=403, mimetype="text/plain") if why else None


def wrong_host(host: str, names: Iterable[str]) -> str | None:
    """Return why a request is refused: its Host is neither an address nor a name of this machine."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if name.casefold() not in {one.casefold() for one in names}:
            return f"the host {name!r} is not a name of this machine: use its address, or give the name with --web-host"
    return None


def wrong_origin(origin: str | None, host: str) -> str | None:
    """Return why a request is refused: a page of another site sent it."""
    if origin is None or urlsplit(origin).netloc.casefold() == host.casefold():
        return None
    return f"the request is of a page at {origin!r}, and this page is at {host!r}"


def wrong_fields(given: Iterable[str], known: Iterable[str]) -> str | None:
    """Return why a start is refused: it has fields that the page does not show, such as names of files."""
    foreign = sorted(set(given) - FIELDS - set(known))
    return f"the page has no field {', '.join(foreign)}: give it on the command line" if foreign else None


# --- the pool ---

URL: Final = "SEGMENTED_URL"
DEFAULT_URL: Final = "redis://localhost:6379/0"
EXIT_BROKEN: Final = 1
_POOL: Final = {
    "stocked": "Stock",
    "available": "Left",
    "reserved": "On hold",
    "confirmed": "Sold",
    "held": "Segments locked",
    "condition": "State",
    "verdict": "Books",
}
_SEGMENTS: Final = {"segment": "Segment", "left": "Left", "lock": "Lock"}

_log = logging.getLogger(__name__)
_guard = threading.Lock()
_stores: list[RedisStore] = []


def url() -> str:
    """Return the address of the pool's server, which the environment or a file names."""
    return said_in_file(URL) or os.environ.get(URL) or DEFAULT_URL


def host() -> str:
    """Return that address without its password: Locust shows it as the host, and so asks for none."""
    return masked(url())


def store() -> RedisStore:
    """Return this process's store; the first caller connects it, and the others wait."""
    with _guard:
        if not _stores:
            _stores.append(RedisStore.from_url(url()))
        return _stores[0]


class PoolPage:
    """Shows a pool on Locust's page, and judges it when the test stops. Only the master or single process does both."""

    def __init__(
        self, environment: Environment, broken: Callable[[Pool | ShardedPool], list[str]] = lambda _: []
    ) -> None:
        """Add the tabs. `broken` returns a sentence for each broken promise that an audit does not see."""
        self._environment, self._broken = environment, broken
        self.verdict = ""
        """One sentence; empty until the test has ended."""
        if environment.web_ui is not None:
            pool = PageTable("Pool", _POOL, lambda: pool_rows(self._read(), self.verdict))
            segments = PageTable("Segments", _SEGMENTS, lambda: segment_rows(self._read()))
            add_tabs(environment.web_ui, {"pool": pool, "segments": segments})

    @property
    def sku(self) -> str:
        """Return the pool that the test sells."""
        options: Any = self._environment.parsed_options
        return str(options.sku)

    def judge(self) -> None:
        """Audit the pool, which may still sell, and log the verdict in one line."""
        if isinstance(self._environment.runner, WorkerRunner):
            return
        try:
            pool = find_pool(store(), self.sku)
            broken = self._broken(pool)
            report = pool.audit()
        except SegmentedError as error:  # such as no pool: a busy machine may use up --run-time on the start
            self._conclude(f"not audited: {error}", is_kept=False)
            return
        broken += findings(report)
        state = report.state
        kept = (
            f"{state.confirmed:,} of {state.stocked:,} units sold, {state.reserved:,} on hold, {state.available:,} "
            "left: none oversold, no drift"
        )
        self._conclude("; ".join(broken) or kept, is_kept=not broken)

    def _conclude(self, verdict: str, *, is_kept: bool) -> None:
        self.verdict = verdict
        _log.log(logging.INFO if is_kept else logging.ERROR, "pool %s: %s", self.sku, verdict)
        if not is_kept:
            self._environment.process_exit_code = EXIT_BROKEN

    def _read(self) -> PoolReading:
        try:
            return run_sync(reading_plan(self.sku), store())
        except SegmentedError as error:
            return PoolReading(self.sku, 0.0, note=str(error))


def findings(report: AuditReport | ShardedAuditReport) -> list[str]:
    """Return what an audit found, one sentence each."""
    found = [f"{report.oversold:,} units oversold"] if report.oversold else []
    found += [f"{report.refused_wrongly:,} orders refused although units were free"] if report.refused_wrongly else []
    if report.drift_count:
        found.append(
            f"{report.drift_count:,} differences between the ledger and the pool, the first: {report.drift[0].detail}"
        )
    return found


def pool_rows(reading: PoolReading, verdict: str) -> list[dict[str, Any]]:
    """Return the row of the pool, or why it could not be read."""
    if reading.state is None:
        return [{"condition": reading.note, "verdict": verdict}]
    state = reading.state
    units = {name: getattr(state, name) for name in ("stocked", "available", "reserved", "confirmed", "condition")}
    held = f"{sum(reading.held)} of {len(state.stock)}"
    return [{**units, "held": held, "verdict": verdict or "audited when the test stops"}]


def segment_rows(reading: PoolReading) -> list[dict[str, Any]]:
    """Return a row a segment: units left, and whether its lock is held."""
    if reading.state is None:
        return []
    rows = zip(reading.state.stock, reading.held, strict=False)  # a pool may be resized between the two reads
    return [
        {"segment": segment, "left": left, "lock": "held" if is_held else "free"}
        for segment, (left, is_held) in enumerate(rows)
    ]


# --- the shop's answers ---

NAMED: Final = 3
"""Orders that a sentence names."""
HOLDS_UNITS: Final = ("reserved", "confirmed")


@dataclass(slots=True)
class Answers:
    """Order ids by the shop's answer."""

    sold: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def take(self) -> dict[str, list[str]]:
        """Return the ids since the last call, as a worker sends them to its master."""
        taken = {"sold": self.sold, "refused": self.refused, "unknown": self.unknown}
        self.sold, self.refused, self.unknown = [], [], []
        return taken

    def add(self, taken: Mapping[str, Sequence[str]]) -> None:
        """Add the ids of another process."""
        self.sold += taken.get("sold", ())
        self.refused += taken.get("refused", ())
        self.unknown += taken.get("unknown", ())

    def __str__(self) -> str:
        """Return the counts."""
        return f"{len(self.sold):,} sold, {len(self.refused):,} refused, {len(self.unknown):,} unknown"


def broken_books(answers: Answers, orders: Iterable[OrderRecord]) -> list[str]:
    """Return a sentence for each promise that the shop broke: an order that it called sold, or not sold, wrongly."""
    states = {one.order_id: one.state for one in orders}
    sold_twice = len(answers.sold) - len(set(answers.sold))
    unsold = [one for one in answers.sold if states.get(one) != "confirmed"]
    held = [one for one in answers.refused if states.get(one) in HOLDS_UNITS]
    broken = [f"{sold_twice:,} order ids were answered as sold more than once"] if sold_twice else []
    if unsold:
        broken.append(
            f"{len(unsold):,} orders were answered as sold, and the pool has not sold them: {_named(unsold, states)}"
        )
    if held:
        broken.append(f"{len(held):,} orders were refused, and hold units of the pool: {_named(held, states)}")
    return broken


def _named(ids: Sequence[str], states: Mapping[str, str]) -> str:
    named = ", ".join(f"{one} ({states.get(one, 'unknown to it')})" for one in ids[:NAMED])
    return named + (", ..." if len(ids) > NAMED else "")
