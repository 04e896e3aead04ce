"""One server of a deployment: the real program on a loopback port, to kill, to pause and to start again.

Each has a guard of its own (`segmented.servers`), so that none outlives the tests, whatever becomes of them.
"""

import random
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import redis
from redis.exceptions import RedisError

from bench.clusters import CLASH, LOOPBACK, PORTS, STARTS_MAX, StockServer
from segmented.errors import InvalidInput
from segmented.servers.embedded import Command, Stops, Supervised
from segmented.servers.folders import private_folder
from segmented.servers.valkey import SOCKET_NAME, answers, configuration

KILL: Final = Stops(((signal.SIGKILL, 5.0),))
"""Nothing is kept, and a paused server would not hear anything else."""
EVENTUALLY_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.01


class Node(StockServer):
    """A server on a port (and, for its own start, on a socket) that forgets everything; it ends with `stop`."""

    name: ClassVar[str] = "Node"
    ports: Mapping[str, int]
    """By the directives that name them."""

    @classmethod
    def start(  # type: ignore[override]  # another program, and nothing kept
        cls,
        program: Path,
        directives: Mapping[str, str] | None = None,
        *,
        port_directives: Sequence[str] = ("port",),
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start `program` with lines of its configuration file; each of `port_directives` gets a free port.

        The first of those is the node's `port`. `options` follow the configuration file on the command line.
        `environment` takes the place of the quiet one that servers are started with.
        """
        for attempt in range(1, STARTS_MAX + 1):
            ports = dict(zip(port_directives, free_ports(len(port_directives)), strict=True))
            try:
                command = partial(Command) if environment is None else partial(Command, environment=environment)
                return cls._start(program, directives or {}, ports=ports, options=options, command=command)
            except InvalidInput as error:
                if attempt == STARTS_MAX or CLASH not in str(error):
                    raise
        raise AssertionError

    @classmethod
    def _start(  # type: ignore[override]  # as above
        cls,
        program: Path,
        directives: Mapping[str, str],
        *,
        ports: Mapping[str, int],
        options: Sequence[str],
        command: Callable[[tuple[str, ...]], Command],
    ) -> Self:
        folder = private_folder()
        with Supervised(folder, stops=KILL) as supervised:
            lines = {"bind": LOOPBACK, **{name: str(port) for name, port in ports.items()}, **directives}
            (folder / "node.conf").write_text(configuration(folder, kept=None, extra=lines))
            port = next(iter(ports.values()))
            node = cls(
                supervised,
                command((str(program), str(folder / "node.conf"), *options)),
                url=f"redis://{LOOPBACK}:{port}/0",
                socket_path=folder / SOCKET_NAME,
                is_ready=partial(answers, folder / SOCKET_NAME),
            )
        node.ports, node.port = ports, port
        node.bus_port, node.password = ports.get("cluster-port", 0), None
        return node

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port."""
        return LOOPBACK, self.port

    def client(self) -> redis.Redis:
        """Connect to it, by its socket, to look behind what is tested; no command is repeated."""
        return self._client()

    def info(self, section: str) -> dict[str, Any]:
        """Return a section of the server's INFO."""
        with self.client() as client:
            found: dict[str, Any] = client.info(section)
            return found

    def pause(self) -> None:
        """Stop the process in its tracks: to all others it is as if the network to it were cut."""
        self.stall()

    def resume(self) -> None:
        """Let a paused process go on; nothing happens to one that runs or is dead."""
        if not self.wait(0):
            self.go_on()


def free_ports(count: int) -> list[int]:
    """Return that many different loopback ports on which nobody listens now."""
    chance = random.SystemRandom()  # not the shared one: seeded tests that run side by side would all draw the same
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = chance.choice(PORTS)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
    return found


def start_all(stack: ExitStack, starts: Sequence[Callable[[], Node]]) -> list[Node]:
    """Start servers side by side; `stack` stops them, also those that stand when another one fails."""
    with ThreadPoolExecutor(len(starts)) as threads:
        begun = [threads.submit(start) for start in starts]
    failures = []
    nodes = []
    for one in begun:
        if error := one.exception():
            failures.append(error)
        else:
            nodes.append(stack.enter_context(one.result()))
    if failures:
        raise failures[0]
    return nodes


def eventually(is_so: Callable[[], bool], what: str, *, seconds: float = EVENTUALLY_SECONDS) -> None:
    """Wait until something is so, be it that a server is away for a while; raises TimeoutError with `what`."""
    end = time.monotonic() + seconds
    while True:
        try:
            if is_so():
                return
        except (RedisError, OSError):
            pass
        if time.monotonic() > end:
            message = f"not within {seconds:g} s: {what}"
            raise TimeoutError(message)
        time.sleep(LOOK_SECONDS)
