"""The web server of `segmented watch --web` and `segmented exporter`: a page, its events, metrics and health."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import json
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import typer
import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.plans import run_async
from segmented.stores.redis import AsyncRedisStore
from segmented.watch.reading import OVERDUE_OUTBOX_MS, as_json, known_plan, readings_plan, worker_json, workers_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from segmented.watch.reading import PoolReading

PASSWORD_BYTES: Final = 18
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SHUTDOWN_SECONDS: Final = 2
READ_SECONDS_MAX: Final = 2.0
"""Seconds for a reading of all pools, after which the server counts as away: a probe waits no longer."""
PACE_READINGS: Final = 5
"""Intervals after which a reading is too old to say a rate since."""
AWAY: Final = "the stock server does not answer"
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Watcher:
    """Reads the pools for all browsers and scrapes together: at most one reading per `every` seconds."""

    def __init__(self, store: AsyncRedisStore, named: Sequence[str], every: float) -> None:
        """Watch the named pools, or all that were opened on the server."""
        self._store, self._named, self.every = store, list(named), every
        self._guard = asyncio.Lock()
        self._read_at = float("-inf")
        self._before: dict[str, PoolReading] = {}
        self._similar: dict[str, tuple[str, ...]] = {}
        self.readings: tuple[PoolReading, ...] | None = None
        """The last reading; None if the server did not answer."""
        self.event = "{}"
        """The last reading as JSON, with rates since the one before."""

    async def refresh(self) -> None:
        """Read again, if the last reading is older than `every`."""
        async with self._guard:
            now = asyncio.get_running_loop().time()
            if now < self._read_at + self.every:
                return
            try:
                async with asyncio.timeout(READ_SECONDS_MAX):
                    skus = self._named or await run_async(known_plan(), self._store)
                    found = await run_async(readings_plan(skus, self._similar), self._store)
                before = self._before if now < self._read_at + PACE_READINGS * self.every else {}
                pools = [as_json(one, before.get(one.sku)) for one in found.pools]
                workers = {"line": workers_line(found.workers), "each": [worker_json(one) for one in found.workers]}
                self.event = json.dumps({"pools": pools, "workers": workers})
                self._before = {one.sku: one for one in found.pools}
                self.readings = found.pools
            except (StoreUnavailable, TimeoutError):
                self.readings = None
                self.event = json.dumps({"error": AWAY})
            except SegmentedError as error:
                self.readings = None
                self.event = json.dumps({"error": str(error)})
            self._read_at = asyncio.get_running_loop().time()


def application(watcher: Watcher, is_over: Callable[[], bool], how: Serving) -> Starlette:
    """Create the application. Its streams end once `is_over` returns True."""

    async def page(_: Request) -> Response:
        return HTMLResponse(files("segmented.watch").joinpath("page.html").read_text("utf-8"), headers=HEADERS)

    async def events(_: Request) -> Response:
        return StreamingResponse(_stream(watcher, is_over), media_type="text/event-stream", headers=HEADERS)

    async def metrics(_: Request) -> Response:
        await watcher.refresh()
        return Response(exposition(watcher.readings), media_type=CONTENT_TYPE)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        await watcher.refresh()
        if watcher.readings is None:
            return JSONResponse({"is_ready": False, "reason": AWAY}, status_code=503)
        due = {one.sku: max((each.outbox_age_ms for each in one.activities), default=0) for one in watcher.readings}
        late = {sku: age for sku, age in due.items() if age > how.stalled_after * 1_000}
        content: dict[str, Any] = {"is_ready": not late, "oldest_due_ms": max(due.values(), default=0)}
        if late:
            sku = max(late, key=late.__getitem__)
            content["reason"] = f"no worker takes the submitted orders of {', '.join(map(repr, sorted(late)))}: {sku!r}"
            content["reason"] += f" has one that has been due for {late[sku] / 1_000:,.0f} s"
        return JSONResponse(content, status_code=503 if late else 200)

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    if how.has_page:
        routes += [Route("/", page), Route("/events", events)]

    return Starlette(routes=routes)


async def _stream(watcher: Watcher, is_over: Callable[[], bool]) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    while not is_over():
        await watcher.refresh()
        yield f"data: {watcher.event}\n\n"
        await asyncio.sleep(watcher.every)


class Guard:
    """Refuses requests that a foreign page could make in a visitor's browser, and those without the password.

    A page of another site can point a name of its own at this address (DNS rebinding): so the Host header has to be a
    loopback name, or beyond loopback an address or the given name; and an Origin has to be this server's. (Starlette's
    TrustedHostMiddleware takes a list of names, and cannot accept every address.)
    """

    def __init__(self, app: ASGIApp, host: str, password: str | None) -> None:
        """Guard an application that listens on `host`; None: it asks for no password."""
        self._app, self._host, self._password = app, host, password

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 or 401, or pass the request on."""
        if scope["type"] == "http":
            # /healthz says nothing of a pool, and a probe cannot always give a password
            refusal = None if scope["path"] == "/healthz" else self._refusal(Headers(scope=scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return PlainTextResponse(f"this server is not called {host!r}: use the address that it printed\n", 403)
        if origin is not None and origin.partition("://")[2] != host:
            return PlainTextResponse("another site's page may not read this\n", 403)
        if self._password is None or self._is_known(headers.get("authorization", "")):
            return None
        asked = {"WWW-Authenticate": 'Basic realm="segmented", charset="UTF-8"'}
        return PlainTextResponse("a password is needed: the one that the command was given, or printed\n", 401, asked)

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]").lower()
        if name in LOOPBACK_NAMES or name == self._host.lower():
            return True
        with suppress(ValueError):
            return self._password is not None and bool(ipaddress.ip_address(name))
        return False

    def _is_known(self, authorization: str) -> bool:
        with suppress(ValueError):  # not base64, or not UTF-8
            scheme, _, said = authorization.partition(" ")
            given = base64.b64decode(said if scheme.lower() == "basic" else "", validate=True).decode()
            return hmac.compare_digest(given.partition(":")[2].encode(), (self._password or "").encode())
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The pools to serve, and the address to serve them on."""

    url: str
    skus: tuple[str, ...]
    every: float
    host: str
    port: int
    has_page: bool
    stalled_after: float = OVERDUE_OUTBOX_MS / 1_000
    """Seconds for which a submitted order may be due before /readyz answers 503."""
    password: str | None
    """None: one is made and printed if the address is not a loopback one."""


def serve(how: Serving) -> None:
    """Serve until Ctrl-C or SIGTERM. Raises InvalidInput if the address cannot be listened on."""
    with _listening(how.host, how.port) as listener:
        address, port = listener.getsockname()[:2]
        is_open = not ipaddress.ip_address(address).is_loopback
        made = secrets.token_urlsafe(PASSWORD_BYTES) if is_open and how.password is None else None
        shown = f"[{address}]" if ":" in address else address
        typer.echo(f"http://{shown}:{port}{'/' if how.has_page else '/metrics'}  (Ctrl-C ends this)")
        if made is not None:
            typer.echo(f"user: any, password: {made}")
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(listener, how, how.password or made))


async def _serve(listener: socket.socket, how: Serving, password: str | None) -> None:
    async with AsyncRedisStore(how.url) as store:
        watcher = Watcher(store, how.skus, how.every)
        app = application(watcher, lambda: server.should_exit, how)
        config = uvicorn.Config(
            Guard(app, how.host, password),
            lifespan="off",
            log_level="warning",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            ws="none",
        )
        server = uvicorn.Server(config)
        await server.serve(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise InvalidInput(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or --port; 0 is a free one"
        ) from None


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
METRICS: Final = {
    "segmented_server_up": ("Whether the stock server answered the last reading: 1 or 0.", ()),
    "segmented_pool_readable": ("Whether the pool is open and can be read: 1 or 0.", ("sku",)),
    "segmented_pool_closed": ("Whether the pool was closed: 1 or 0.", ("sku",)),
    "segmented_pool_frozen": ("Whether the pool lost changes and answers no order: 1 or 0.", ("sku",)),
    "segmented_units": ("Units of the pool by state: available, reserved or confirmed.", ("sku", "state")),
    "segmented_units_stocked": ("Units ever added to the pool and not withdrawn.", ("sku",)),
    "segmented_orders": ("Orders that the pool has a record of.", ("sku",)),
    "segmented_segments": ("Segments of the pool.", ("sku",)),
    "segmented_segments_held": ("Segments whose lock is held.", ("sku",)),
    "segmented_segments_empty": ("Segments without a free unit.", ("sku",)),
    "segmented_processes_waiting": ("Processes that wait for a segment.", ("sku",)),
    "segmented_holds_overdue": ("Holds that have ended and were not swept yet.", ("sku",)),
    "segmented_holds_due_soon": ("Holds that end within 10 seconds.", ("sku",)),
    "segmented_outbox_orders": ("Submitted orders that no worker has finished.", ("sku",)),
    "segmented_outbox_due": ("Submitted orders that the next sweep publishes again.", ("sku",)),
    "segmented_outbox_due_seconds": ("How long the first order of the outbox has been due.", ("sku",)),
    "segmented_dead_orders": ("Orders that workers gave up.", ("sku",)),
}
"""Each metric, all of them gauges: what it says, and its labels."""


def exposition(readings: Sequence[PoolReading] | None) -> bytes:
    """Return the readings in Prometheus' text format; None: the stock server did not answer."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings(readings))
    return generate_latest(registry)


class _Readings:
    def __init__(self, readings: Sequence[PoolReading] | None) -> None:
        self._readings = readings

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in METRICS.items()}
        families["segmented_server_up"].add_metric((), 0 if self._readings is None else 1)
        for reading in self._readings or ():
            for name, labels, value in _samples(reading):
                families[name].add_metric((reading.sku, *labels), value)
        return families.values()


def _samples(reading: PoolReading) -> Iterator[tuple[str, tuple[str, ...], float]]:
    state, found = reading.state, as_json(reading)
    yield "segmented_pool_readable", (), int(state is not None)
    if state is None:
        return
    yield "segmented_pool_closed", (), int(state.is_closed)
    yield "segmented_pool_frozen", (), int(state.frozen is not None)
    for name in ("available", "reserved", "confirmed"):
        yield "segmented_units", (name,), found[name]
    yield "segmented_units_stocked", (), state.stocked
    yield "segmented_orders", (), state.order_count
    yield "segmented_segments", (), state.segment_count
    yield "segmented_segments_held", (), len(found["held"])
    yield "segmented_segments_empty", (), state.stock.count(0)
    yield "segmented_processes_waiting", (), found["processes_waiting"]
    yield "segmented_holds_overdue", (), found["holds_overdue"]
    yield "segmented_holds_due_soon", (), found["holds_due_soon"]
    yield "segmented_outbox_orders", (), found["outbox"]["orders"]
    yield "segmented_outbox_due", (), found["outbox"]["due"]
    yield "segmented_outbox_due_seconds", (), found["outbox"]["due_since_ms"] / 1_000
    yield "segmented_dead_orders", (), found["outbox"]["dead"]
