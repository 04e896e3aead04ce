"""One stock server of a trial: a real Valkey on a socket and, for replication, on a loopback port.

Every account of the machine can reach a port, so a server with one asks for a random password.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from segmented.errors import InvalidInput
from segmented.servers.binaries import valkey_program
from segmented.servers.embedded import EmbeddedServer
from segmented.servers.folders import private_folder
from segmented.servers.supervised import Command, Supervised
from segmented.servers.valkey import SOCKET_NAME, STOPS, answers, configuration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LOOPBACK: Final = "127.0.0.1"
PORTS: Final = range(10_240, 32_000)
"""Below the ports that systems take for outgoing connections."""
STARTS_MAX: Final = 5
"""Another program may take a port between our probe and the start of the server."""
CLASH: Final = "Failed listening on port"
TALK_SECONDS: Final = 10.0
PASSWORD: Final = secrets.token_hex(24)
"""Of this process's servers with ports, and of their replicas, Sentinels and clients."""


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

    def write_and(self, key: str, *words: str | int) -> Any:  # noqa: ANN401  # as above
        """Write a key, then send a command on the same connection: WAIT needs a write before it to be true."""
        with self._client() as client, client.pipeline(transaction=False) as pipe:
            pipe.set(key, "1").delete(key)
            pipe.execute_command(*words)
            return pipe.execute()[-1]

    def stall(self) -> None:
        """Stop the process with SIGSTOP: it neither reads nor answers, and its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stalled process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def replace_data(self, copy: Path) -> None:
        """Put a copy of earlier data in place of the data of a dead server."""
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data)

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
