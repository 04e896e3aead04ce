"""The servers that a page's addresses name, started for it, and the page's text with their ports.

| a page says | and gets |
| --- | --- |
| `localhost:6379`, `localhost:6380`, `localhost:6381` | a Valkey each; the first is the page's own, if it starts one |
| `localhost:26379` | a Sentinel; the service is `stock` |
| `localhost:7001`, `localhost:7002`, `localhost:7003` | the masters of a cluster |
| `localhost:2181` | a ZooKeeper |
| `localhost:8000`, `localhost:8001`, `localhost:8002`, `localhost:8003` | a free port, for a server of the page's own |
| `postgresql://postgres@localhost/shop` | an empty database |
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from segmented.servers.embedded import valkey_program
from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.servers.deployments import start_cluster, start_sentinels
from tests.support.servers.nodes import Node, free_ports

PORT: Final = re.compile(r"\blocalhost(?::|\", )(?P<port>\d+)\b")
SINGLE: Final = ("6379", "6380", "6381")
SENTINEL: Final = "26379"
CLUSTER: Final = ("7001", "7002", "7003")
ZOOKEEPER: Final = "2181"
FREE: Final = ("8000", "8001", "8002", "8003")
DATABASE: Final = re.compile(r"postgresql(?:\+psycopg)?://postgres@localhost/shop")
DEFAULT: Final = "6379"
OWN_SERVER: Final = "segmented server --no-password"
"""A page that starts a server like this uses that one, and no other is started in its place."""


class Addresses:
    """What to write in place of the addresses of a page."""

    def __init__(self, text: str, stack: ExitStack, database: Callable[[], str]) -> None:
        named = {match["port"] for match in PORT.finditer(text)} | {DEFAULT}
        self._ports = dict(zip(FREE, free_ports(len(FREE)), strict=True))
        self.serves = OWN_SERVER in text
        if self.serves:
            (self._ports[DEFAULT],) = free_ports(1)
        for port in named.intersection(SINGLE) - self._ports.keys():
            self._ports[port] = stack.enter_context(Node.start(valkey_program())).port
        if SENTINEL in named:
            self._ports[SENTINEL] = start_sentinels(stack).sentinels[0].port
        if named.intersection(CLUSTER):
            masters = start_cluster(stack).nodes
            self._ports |= {name: node.port for name, node in zip(CLUSTER, masters, strict=False)}
        if ZOOKEEPER in named:
            self._ports[ZOOKEEPER] = stack.enter_context(ZooKeeperNode.start()).port
        self._database = database() if DATABASE.search(text) else ""

    @property
    def default_url(self) -> str:
        """The server that commands use which are given no address."""
        return self.rewritten(f"redis://localhost:{DEFAULT}/0")

    def rewritten(self, code: str) -> str:
        """Return the code with this test's addresses."""
        if self.serves:
            code = code.replace(OWN_SERVER, f"{OWN_SERVER} --port {DEFAULT}")
        for name, port in self._ports.items():
            before = r"(?:(?<=localhost:)|(?<=localhost\", )|(?<=127\.0\.0\.1:)|(?<=--port ))"
            code = re.sub(rf"{before}{name}\b", str(port), code)
        return DATABASE.sub(lambda _: self._database, code)
