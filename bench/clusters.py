"""Real Valkey servers as a cluster or a torture needs them: with data that outlives a kill, and on loopback ports.

Every account of the machine can reach a port, so a server with one asks for a random password. Clusters are formed by
commands, as an operator would form them.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from segmented.errors import InvalidInput, SegmentedError
from segmented.servers.embedded import Command, EmbeddedServer, Supervised, valkey_program
from segmented.servers.folders import private_folder
from segmented.servers.valkey import SOCKET_NAME, STOPS, answers, configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(10_240, 32_000)
"""Below the ports that systems take for outgoing connections."""
STARTS_MAX: Final = 5
"""Another program may take a port between our probe and the start of the server."""
CLASH: Final = "Failed listening on port"
TALK_SECONDS: Final = 10.0
PASSWORD: Final = secrets.token_hex(24)
"""Of this process's servers with ports, and of their replicas, Sentinels and clients."""

SLOTS: Final = 16_384
FORM_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 0.01
DIRECTIVES: Final = {"cluster-enabled": "yes"}


class StockServer(EmbeddedServer):
    """A server with data in a folder of its own, which a kill and a restart leave in place."""

    name: ClassVar[str] = "Valkey"
    data: Path
    port: int
    """0 for a server without a port."""
    bus_port: int
    """0 outside of a cluster. The bus asks for no password."""
    password: str | None
    """None for a server without a port."""

    @classmethod
    def start(  # all but `data` by name
        cls,
        data: Path,
        *,
        fsync: str | None,
        has_port: bool,
        environment: Mapping[str, str] | None = None,
        directives: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Self:
        """Start a server that keeps an append-only file in `data` with this `fsync`, or nothing if it is None.

        `directives` are more lines of its configuration, and `options` follow it on the command line.
        """
        data.mkdir()
        for attempt in range(1, STARTS_MAX + 1):
            port = free_port() if has_port else 0
            extra = {
                "bind": LOOPBACK,
                "port": str(port),
                "repl-diskless-sync-delay": "0",
                "appendonly": "no" if fsync is None else "yes",
                "appendfsync": fsync or "everysec",
                "auto-aof-rewrite-percentage": "0",  # a rewrite would sync everything at a moment of its own
                **({"requirepass": PASSWORD, "masterauth": PASSWORD} if has_port else {}),
                **(directives or {}),
            }
            if "cluster-enabled" in extra:
                extra["cluster-port"] = str(free_port())
            try:
                return cls._start(data, extra, environment, options)
            except InvalidInput as error:
                if attempt == STARTS_MAX or CLASH not in str(error):
                    raise
        raise AssertionError

    @classmethod
    def _start(
        cls, data: Path, extra: Mapping[str, str], environment: Mapping[str, str] | None, options: Sequence[str]
    ) -> Self:
        folder = private_folder()
        if "cluster-enabled" in extra:  # beside the data, because a power failure of a trial takes changes of the stock
            extra = {**extra, "cluster-config-file": str(folder / "nodes.conf")}
        command = partial(Command) if environment is None else partial(Command, environment=environment)
        password = extra.get("requirepass")
        with Supervised(folder, stops=STOPS) as supervised:
            (folder / "stock.conf").write_text(configuration(folder, kept=data, extra=extra))
            path = folder / SOCKET_NAME
            server = cls(
                supervised,
                command((str(valkey_program()), str(folder / "stock.conf"), *options)),
                url=socket_url(path, password),
                socket_path=path,
                is_ready=partial(answers, path, password),
            )
        server.data = data
        server.password = password
        server.port = int(extra["port"])
        server.bus_port = int(extra.get("cluster-port", "0"))
        return server

    def ask(self, *words: str | int) -> Any:  # noqa: ANN401  # a server's reply
        """Send one command, which is not retried, and return the reply."""
        with self._client() as client:
            return client.execute_command(*words)

    def stall(self) -> None:
        """Stop the process with SIGSTOP: it neither reads nor answers, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stalled process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self.socket_path),
            password=self.password,
            decode_responses=True,
            protocol=2,
            socket_timeout=TALK_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )


def socket_url(path: Path, password: str | None) -> str:
    """Return the address of the server behind a socket."""
    return f"unix://{'' if password is None else f':{password}@'}{path}?db=0"


def free_port() -> int:
    """Return a loopback port on which nobody listens now."""
    chance = random.SystemRandom()  # not seeded: runs side by side would all draw the same ports
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


@dataclass(frozen=True, slots=True)
class Masters:
    """A cluster of masters without replicas, each with an equal share of the slots."""

    servers: tuple[StockServer, ...]

    @property
    def url(self) -> str:
        """The address of the cluster, by way of all masters."""
        return cluster_url(self.servers)


@contextmanager
def running_masters(count: int) -> Iterator[Masters]:
    """Start a cluster of so many masters, which keep nothing on disk, and stop it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-bench-")))
        start = partial(StockServer.start, fsync=None, has_port=True, directives=DIRECTIVES)
        servers = [stack.enter_context(start(folder / str(number))) for number in range(count)]
        deal_slots(servers, equal_ranges(count))
        introduce(servers)
        until = time.monotonic() + FORM_SECONDS
        while not all(is_whole(server, nodes=count) for server in servers):
            if time.monotonic() > until:
                raise SegmentedError(f"the cluster of {count} masters was not whole within {FORM_SECONDS:g} s")
            time.sleep(PAUSE_SECONDS)
        yield Masters(tuple(servers))


def cluster_url(nodes: Sequence[StockServer]) -> str:
    """Return the address of a cluster, by way of these nodes."""
    return f"redis+cluster://:{PASSWORD}@{','.join(f'{LOOPBACK}:{node.port}' for node in nodes)}"


def equal_ranges(masters: int) -> list[tuple[int, int]]:
    """Return the first and the last slot of each master."""
    bounds = [SLOTS * part // masters for part in range(masters + 1)]
    return [(first, after - 1) for first, after in pairwise(bounds)]


def deal_slots(masters: Sequence[StockServer], ranges: Sequence[tuple[int, int]]) -> None:
    """Give each master its slots."""
    for master, (first, last) in zip(masters, ranges, strict=True):
        master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)


def introduce(nodes: Sequence[StockServer]) -> None:
    """Let all nodes meet, each with an epoch of its own."""
    for number, node in enumerate(nodes):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for other in nodes[:number]:
            node.ask("CLUSTER", "MEET", LOOPBACK, other.port, other.bus_port)


def is_whole(node: StockServer, *, nodes: int) -> bool:
    """Return whether a node knows all others and says that every slot is served."""
    found = dict(line.split(":") for line in node.ask("CLUSTER", "INFO").split())
    known = (found["cluster_state"], found["cluster_slots_ok"], found["cluster_known_nodes"])
    return known == ("ok", str(SLOTS), str(nodes))
