"""The laboratory: a lock under test, callers that want it, the servers behind it and proxies that can fail.

Nothing here or in the rows imports this library, or anything but Python and redis-py: the same rows run in the
environment of every peer.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Self

import redis

from tests.conformance.locks.contender import Client, Contender, Handle, Hold, Maybe, NotOffered
from tests.support.contract.locks.parties import CALL_SECONDS, Call, CallRunner, Loop, TaskRunner, ThreadRunner
from tests.support.contract.locks.rows import must
from tests.support.proxy import RedisProxy

SOON: Final = 5.0
"""Seconds: a bound for what takes milliseconds, generous on a busy machine."""
PATIENCE: Final = 60.0
"""Seconds that waiters wait."""
REST_SECONDS: Final = 0.25
"""How long a waiter of a library that says nothing is given to come to rest."""
REST_SECONDS_MAX: Final = 30.0
"""After which waiters of a library that says so have not come to rest."""
LOOK_SECONDS: Final = 0.002
WORDS_MAX: Final = 160
MADE_UP_NAME: Final = re.compile(r"\S*lab-\d+-\d+\S*")

_names = itertools.count()


class Proxies:
    """A proxy before each server: what is asked of it is asked of all of them at once."""

    def __init__(self, servers: Sequence[str]) -> None:
        """Create a proxy for each of the servers at these URLs."""
        self.each = [RedisProxy(server) for server in servers]
        self.urls = [proxy.url for proxy in self.each]

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return the method of this name, called on every proxy."""

        def call(*arguments: object, **named: object) -> None:
            for proxy in self.each:
                getattr(proxy, name)(*arguments, **named)

        return call

    def close(self) -> None:
        """Close every proxy."""
        for proxy in self.each:
            proxy.__exit__()

    @property
    def swallowed(self) -> int:
        """How many replies were lost."""
        return sum(proxy.swallowed for proxy in self.each)

    @property
    def answered(self) -> int:
        """How many requests were answered in the server's place."""
        return sum(proxy.answered for proxy in self.each)

    def is_holding(self) -> bool:
        """Return whether each proxy holds something."""
        return all(proxy.holding.is_set() for proxy in self.each)

    def delay(self, seconds: float) -> None:
        """Pass each request on this much later."""
        for proxy in self.each:
            proxy.delay_seconds = seconds


class Lab:
    """One lock under one row."""

    def __init__(self, contender: Contender, urls: Sequence[str], *, is_thorough: bool = False) -> None:
        """Test `contender` on servers of its own or shared ones; names are new in every lab."""
        self.contender = contender
        self.is_thorough = is_thorough
        """Is there time for long runs?"""
        self.short_wait = 1 if is_thorough else 0.15
        """Seconds that a waiter waits who is to give up; thorough ones are whole, as one library takes no other."""
        self.name = f"lab-{os.getpid()}-{next(_names):06}"
        self.soon = SOON
        """Seconds within which a row waits for what should take milliseconds."""
        self.slack = 0.0
        """Seconds that a row allows beyond its own bounds, where a busy machine is to decide nothing."""
        self._urls = list(urls)[: contender.servers]
        self.servers = [redis.Redis.from_url(url, decode_responses=True) for url in self._urls]
        self._loop = Loop() if contender.is_async else None
        self._runners: list[CallRunner] = []
        self._clients: list[Client] = []
        self._handles: list[Handle] = []
        self._proxies: Proxies | None = None
        self._main_runner = self._runner()
        self.near = self.connect()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the runners, close what was opened, and remove what was left on the servers."""
        if self._proxies is not None:
            self._proxies.close()
        for runner in self._runners[1:]:
            runner.end()
        for client in self._clients:
            with suppress(Exception):  # some libraries say good-bye on the lines that were cut
                self._do(self.contender.close, client)
        self._main_runner.end()
        if self._loop is not None:
            self._loop.close()
        for server in self.servers:
            left = server.keys(f"*{self.name}*")
            if left:
                server.delete(*left)
            server.close()

    # --- what the lock offers ---

    def require(self, *offers: str) -> None:
        """Go on if the lock offers all of these; raises NotOffered."""
        for offer in offers:
            if offer not in self.contender.offers:
                raise NotOffered(self.contender.why_not[offer])

    # --- clients, handles, callers ---

    def connect(self) -> Client:
        """Make one more client, as another process would have it."""
        return self._connected(self._urls)

    def connect_far(self) -> Client:
        """Make a client behind the proxies, and have it used once, so that the next request is the one meant."""
        client = self._connected(self.proxies.urls)
        hold = self._do(self.contender.try_acquire, self._do(self.contender.make, client, f"{self.name}-warm", None))
        must(hold is not None, "a free lock was not obtained")
        self._do(self.contender.release, hold)
        return client

    @property
    def proxies(self) -> Proxies:
        """Return a proxy for each server; raises NotOffered for a lock that goes to no server."""
        self.require("wire")
        if self._proxies is None:
            self._proxies = Proxies(self._urls)
        return self._proxies

    def lock(self, *, ttl: float | None = None, client: Client | None = None) -> Handle:
        """Make a handle; without `ttl` its leases live as long as the library has them live unasked."""
        return self._kept(self.contender.make, client or self.near, self.name, ttl)

    def lock_of_its_own(self, number: int, *, ttl: float, client: Client | None = None) -> Handle:
        """Make a handle of another lock, one for each number."""
        return self._kept(self.contender.make, client or self.near, f"{self.name}-{number}", ttl)

    def locks_left(self, numbers: int) -> int:
        """Return how many of those locks are held on a server."""
        keys = [self.contender.key(f"{self.name}-{number}") for number in range(numbers)]
        return max(server.exists(*keys) for server in self.servers)

    def rival(self, *, ttl: float | None = None, client: Client | None = None) -> Handle:
        """Make a handle of what must not be held together with `lock`."""
        return self._kept(self.contender.make_rival, client or self.near, self.name, ttl)

    def renewing_lock(self, *, ttl: float, client: Client | None = None) -> Handle:
        """Make a handle whose leases are renewed in the background."""
        self.require("background")
        return self._kept(self.contender.make_renewing, client or self.near, self.name, ttl)

    def made(self, make: Callable[..., Handle], *arguments: object) -> Handle:
        """Make a handle in any other way the contender has."""
        return self._kept(make, self.near, self.name, *arguments)

    def caller(self) -> Caller:
        """Return a new holder to be: a thread of its own, or a task of its own."""
        return Caller(self._runner(), self.contender)

    # --- the lease, behind its holder's back ---

    def lapse(self, hold: Hold) -> None:
        """End the lease on the server as its time would; its holder notices nothing."""
        try:
            self._do(self.contender.lapse, hold)
        except NotImplementedError:
            for server in self.servers:
                server.pexpire(self.contender.key(self.name), 1)
        self.pause(0.005)

    def take_away(self, hold: Hold) -> None:
        """End the lease at once; its holder notices nothing."""
        try:
            self._do(self.contender.take_away, hold)
        except NotImplementedError:
            for server in self.servers:
                server.delete(self.contender.key(self.name))

    def lose_inside(self, hold: Hold) -> Maybe:
        """Do as `take_away` does, from the body of a `with` statement, where the clerk must not be waited for."""
        try:
            return self.contender.take_away(hold)
        except NotImplementedError:
            for server in self.servers:
                server.delete(self.contender.key(self.name))

    # --- what others see ---

    def is_open(self, handle: Handle | None = None) -> bool:
        """Does a newcomer get the lock (or what `handle` is of) now? It gives it back."""
        newcomer = self.caller()
        hold = newcomer.try_acquire(self.lock() if handle is None else handle)
        if hold is None:
            return False
        newcomer.release(hold)
        return True

    def key_lives_ms(self) -> list[int]:
        """Return the milliseconds that the lock's key has to live on each server that has it; -1 for no end."""
        self.require("wire")
        lives = [server.pttl(self.contender.key(self.name)) for server in self.servers]
        return [life for life in lives if life != -2]  # the server's word for "no such key"

    def is_kept(self) -> bool:
        """Is the lock's key on most servers?"""
        return len(self.key_lives_ms()) > len(self.servers) // 2

    def commands_run(self) -> int:
        """Return how many commands the servers have run so far."""
        return sum(server.info("stats")["total_commands_processed"] for server in self.servers)

    @contextmanager
    def noting_requests(self) -> Iterator[list[str]]:
        """Note the commands about this lock that clients send to the servers; those of scripts are not among them."""
        requests: list[str] = []
        with ExitStack() as stack:
            monitors = [stack.enter_context(server.monitor()) for server in self.servers]
            yield requests
            for server, monitor in zip(self.servers, monitors, strict=True):
                end = f"{self.name}-noted"
                server.echo(end)
                while end not in (found := monitor.next_command())["command"]:
                    if self.name in found["command"] and found["client_type"] != "lua":
                        requests.append(found["command"])

    def forget_everything(self) -> None:
        """Delete every key of the lock, as a failover to an empty server would."""
        self.require("wire")
        for server in self.servers:
            keys = server.keys(f"*{self.name}*")
            if keys:
                server.delete(*keys)

    # --- time ---

    def taking(self) -> bytes:
        """Return the pattern of the request that takes the lock."""
        return b"(?s)" + self.contender.taking + b".*" + self.name.encode()

    def settle(self, waiters: int, client: Client | None = None, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Return once so many waiters of a client have come to rest, as far as the library lets that be known."""
        try:
            self.wait_until(
                lambda: unless() or self._do(self.contender.rest, client or self.near, waiters),
                "its waiters do not come to rest",
                seconds=REST_SECONDS_MAX,
            )
        except NotImplementedError:
            self.pause(REST_SECONDS)

    def pause(self, seconds: float) -> None:
        """Let time pass that the row is about."""
        threading.Event().wait(seconds)

    def wait_until(self, is_so: Callable[[], object], otherwise: str, *, seconds: float | None = None) -> None:
        """Wait until something is so; the row has failed, for this reason, if it is not in time."""
        end = time.monotonic() + (self.soon if seconds is None else seconds)
        while not is_so():
            must(time.monotonic() < end, otherwise)
            self.pause(LOOK_SECONDS)

    def wait_until_renewed(self) -> None:
        """Wait until the lease lives for longer again than it did."""
        lives: list[int] = []

        def is_so() -> bool:
            lives.append(min(self.key_lives_ms(), default=0))
            return lives[-1] > min(lives)

        self.wait_until(is_so, "the lease is renewed no more")

    @contextmanager
    def wall_clock_off_by(self, seconds: float) -> Iterator[None]:
        """Have this process's wall clock be wrong; the servers' is right."""
        right, right_ns = time.time, time.time_ns
        time.time, time.time_ns = lambda: right() + seconds, lambda: right_ns() + round(seconds * 1e9)
        try:
            yield
        finally:
            time.time, time.time_ns = right, right_ns

    # --- inside ---

    def _connected(self, urls: Sequence[str]) -> Client:
        client = self._do(self.contender.connect, urls)
        self._clients.append(client)
        return client

    def _runner(self) -> CallRunner:
        runner: CallRunner = ThreadRunner() if self._loop is None else TaskRunner(self._loop.loop)
        self._runners.append(runner)
        return runner

    def _kept(self, make: Callable[..., Handle], *arguments: object) -> Handle:
        # One library releases what its garbage collector finds: a living program still refers to its locks.
        self._handles.append(self._do(make, *arguments))
        return self._handles[-1]

    def _do(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  # the library's own
        return self._main_runner.start(function, *arguments).result(CALL_SECONDS)


class Caller:
    """One thread or task of the test, and its calls on locks."""

    def __init__(self, runner: CallRunner, contender: Contender) -> None:
        """Make every call on `runner`."""
        self._runner, self._contender = runner, contender

    def start_acquire(self, handle: Handle, wait: float = PATIENCE) -> Call:
        """Begin to wait for the lock."""
        return self._runner.start(self._contender.acquire, handle, wait)

    def start_trying(self, handle: Handle) -> Call:
        """Begin one try."""
        return self._runner.start(self._contender.try_acquire, handle)

    def cancel(self) -> None:
        """Cancel the call under way."""
        self._runner.cancel()

    def try_acquire(self, handle: Handle) -> Hold | None:
        """Try once."""
        return self.start_trying(handle).result(CALL_SECONDS)

    def take(self, handle: Handle) -> Hold:
        """Take a lock that is free."""
        hold = self.try_acquire(handle)
        must(hold is not None, "a free lock was not obtained")
        return hold

    def release(self, hold: Hold) -> None:
        """Give it back."""
        self.do(self._contender.release, hold)

    def error_of_release(self, hold: Hold) -> BaseException | None:
        """Give it back, and return what that raised."""
        return self.error_of(self._contender.release, hold)

    def error_of_renewal(self, hold: Hold, ttl: float) -> BaseException | None:
        """Ask for more time, and return what that raised."""
        return self.error_of(self._contender.renew, hold, ttl)

    def start(self, function: Callable[..., Any], *arguments: object) -> Call:
        """Begin a call of anything in this thread or task."""
        return self._runner.start(function, *arguments)

    def do(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  # the library's own
        """Call anything in this thread or task."""
        return self.start(function, *arguments).result(CALL_SECONDS)

    def error_of(self, function: Callable[..., Any], *arguments: object) -> BaseException | None:
        """Call anything, and return what it raised."""
        return self.start(function, *arguments).exception(CALL_SECONDS)


def told(error: BaseException) -> str:
    """Name an error in a sentence, without what differs from run to run."""
    text = MADE_UP_NAME.sub("NAME", str(error)).rstrip(".")
    is_short = text and len(text) <= WORDS_MAX and "<" not in text
    return f"{type(error).__name__}: {text}" if is_short else type(error).__name__
