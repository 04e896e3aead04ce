"""A program that owns both servers and ends as told: `python -m tests.real.integration.server_owner WAY`.

It prints one line of JSON (process ids, guards, folders) as soon as both servers answer.
"""

import ctypes
import json
import os
import signal
import sys
from typing import NoReturn

from segmented.servers import PostgresServer, ValkeyServer
from segmented.servers.embedded import EmbeddedServer


def main(way: str) -> None:
    if way == "with":
        with ValkeyServer.start() as valkey, PostgresServer.start() as postgres:
            show(valkey, postgres)
        return
    servers = (ValkeyServer.start(), PostgresServer.start())
    helper = 0
    if way == "fork":
        helper = fork(*servers)
    if way == "fork in C":
        helper = fork_in_c()
    show(*servers, helper=helper)
    if way == "error":
        raise RuntimeError("the program fails while its servers run")
    if way == "_exit":
        os._exit(3)
    if way != "end":
        signal.pause()


def show(*servers: EmbeddedServer, helper: int = 0) -> None:
    report = {
        "urls": [server.url for server in servers],
        "pids": [server.pid for server in servers] + [server.guard_pid for server in servers],
        "folders": [str(server.folder) for server in servers],
        "helper": helper,
    }
    print(json.dumps(report), flush=True)  # noqa: T201  # the test reads it


def fork(*servers: EmbeddedServer) -> int:
    """Fork as multiprocessing and Celery do; the child tries to stop the servers, and outlives its parent."""
    told, teller = os.pipe()
    child = os.fork()
    if child == 0:
        for server in servers:
            server.stop()
        os.write(teller, b"x")
        stay()
    os.read(told, 1)
    return child


def fork_in_c() -> int:
    """Fork as a C library does: Python's hooks do not run, and the child keeps every pipe of its parent open."""
    return int(ctypes.CDLL(None).fork()) or stay()


def stay() -> NoReturn:
    signal.pause()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
