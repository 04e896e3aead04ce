"""Clusters of real servers on loopback ports, formed by commands as an operator would form them."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.proof.durability.server import LOOPBACK, PASSWORD, StockServer
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOTS: Final = 16_384
FORM_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 0.01
DIRECTIVES: Final = {"cluster-enabled": "yes"}


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
                message = f"the cluster of {count} masters was not whole within {FORM_SECONDS:g} s"
                raise SegmentedError(message)
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
