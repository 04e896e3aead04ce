"""Deployments of several servers, formed by commands as an operator would form them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.clusters import LOOPBACK, SLOTS, StockServer, deal_slots, equal_ranges, introduce
from segmented.servers.embedded import valkey_program
from tests.support.servers.nodes import Node, eventually, start_all

SERVICE: Final = "stock"
"""The name under which the Sentinels watch their master."""
QUORUM: Final = 2
DOWN_AFTER_MS: Final = 1_000
NODE_TIMEOUT_MS: Final = 1_500
MASTERS: Final = 3
NODES: Final = 2 * MASTERS
FAILOVER_SECONDS: Final = 60.0

_REPLICATION: Final = {"repl-diskless-sync-delay": "0"}
CLUSTER: Final = {
    **_REPLICATION,
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
    "cluster-require-full-coverage": "no",  # what one master's death does to the others' keys: nothing
    "cluster-replica-validity-factor": "0",  # by default, a replica that was long without its master is not promoted
    "cluster-allow-replica-migration": "no",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Which program all servers of a deployment run, and how they are spoken to."""

    program: Path = field(default_factory=valkey_program)
    scheme: str = "redis"
    port_directive: str = "port"
    directives: Mapping[str, str] = field(default_factory=dict)
    """For servers, Sentinels and nodes alike."""


_SENTINEL_PERIODS: Final = {"ping-period": 400, "ask-period": 100, "publish-period": 200, "info-period": 500}
"""Milliseconds; the defaults of up to ten seconds are made for networks. Only a replica whose INFO is younger than five
ping periods can be promoted, and while a master is down INFO is asked for once a second."""


@dataclass(frozen=True, slots=True)
class ReplicaPair:
    """A master and a replica that follows it, without anybody to fail over."""

    master: Node
    replica: Node

    @property
    def url(self) -> str:
        """The master's address."""
        return self.master.url

    def get_in_step(self) -> None:
        """Let both go on, forget every key, and wait until the replica has done so too."""
        self.replica.resume()
        self.master.resume()
        with self.master.client() as client:
            client.flushall()
            eventually(lambda: client.execute_command("WAIT", 1, 1_000) == 1, "the replica is in step")


def start_replica_pair(stack: ExitStack) -> ReplicaPair:
    """Start a pair; `stack` ends it."""
    master, replica = start_all(stack, [partial(Node.start, valkey_program(), _REPLICATION)] * 2)
    replica.ask("REPLICAOF", LOOPBACK, master.port)
    eventually(lambda: _follows(replica, master) and _followers(master) == 1, "the replica follows its master")
    return ReplicaPair(master, replica)


def _follows(replica: Node, master: Node) -> bool:
    found = replica.info("replication")
    return (found["role"], found.get("master_port"), found.get("master_link_status")) == ("slave", master.port, "up")


def _followers(master: Node) -> int:
    found = master.info("replication")
    return sum(isinstance(entry, dict) and entry.get("state") == "online" for entry in found.values())


@dataclass(frozen=True, slots=True)
class Sentinels:
    """A master and two replicas, watched by three Sentinels."""

    servers: Sequence[Node]
    sentinels: Sequence[Node]
    scheme: str = "redis"

    @property
    def url(self) -> str:
        """The address of the service, by way of all Sentinels."""
        hosts = ",".join(f"{LOOPBACK}:{sentinel.port}" for sentinel in self.sentinels)
        return f"{self.scheme}+sentinel://{hosts}/{SERVICE}/0"

    @property
    def nodes(self) -> list[Node]:
        """Servers and Sentinels."""
        return [*self.servers, *self.sentinels]

    def master(self) -> Node:
        """Return whom the first Sentinel that answers names as the master."""
        for sentinel in self.sentinels:
            if not sentinel.wait(0):
                _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return next(server for server in self.servers if server.port == int(port))
        raise AssertionError

    def wait_failover(self, old: Node) -> Node:
        """Wait until every Sentinel that lives names another master, which has taken its office; return it."""
        living = [sentinel for sentinel in self.sentinels if not sentinel.wait(0)]

        def has_new() -> bool:
            ports = {int(one.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for one in living}
            return len(ports) == 1 and old.port not in ports and self.master().info("replication")["role"] == "master"

        eventually(has_new, "the Sentinels agree on a new master", seconds=FAILOVER_SECONDS)
        return self.master()

    def wait_whole(self) -> None:
        """Wait until each Sentinel knows the others, and both replicas follow the master that all of them name."""

        def is_whole() -> bool:
            master = self.master()
            states = [pairs(sentinel.ask("SENTINEL", "MASTER", SERVICE)) for sentinel in self.sentinels]
            return (
                all(state["num-other-sentinels"] == "2" and state["flags"] == "master" for state in states)
                and all(state["port"] == str(master.port) and state["num-slaves"] == "2" for state in states)
                and _followers(master) == len(self.servers) - 1
            )

        eventually(is_whole, "the Sentinels know each other and both replicas follow", seconds=FAILOVER_SECONDS)


def start_sentinels(stack: ExitStack, kind: Kind | None = None) -> Sentinels:
    """Start three servers and three Sentinels; `stack` ends them."""
    kind = kind or Kind()
    start = partial(Node.start, kind.program, port_directives=(kind.port_directive,))
    servers = [partial(start, {**_REPLICATION, **kind.directives})] * 3
    sentinels = [partial(start, kind.directives, options=("--sentinel",))] * 3
    nodes = start_all(stack, servers + sentinels)
    made = Sentinels(nodes[:3], nodes[3:], kind.scheme)
    master, *replicas = made.servers
    for replica in replicas:
        replica.ask("REPLICAOF", LOOPBACK, master.port)
    watch(made.sentinels, master.port)
    made.wait_whole()
    return made


def watch(sentinels: Sequence[StockServer], port: int, *, password: str | None = None) -> None:
    """Let Sentinels watch the master on this port; they notice its death soon."""
    periods = [word for name, value in _SENTINEL_PERIODS.items() for word in (name, value)]
    options: dict[str, str | int] = {"down-after-milliseconds": DOWN_AFTER_MS, "failover-timeout": 3_000}
    if password is not None:
        options["auth-pass"] = password
    for sentinel in sentinels:
        sentinel.ask("SENTINEL", "DEBUG", *periods)
        sentinel.ask("SENTINEL", "MONITOR", SERVICE, LOOPBACK, port, QUORUM)
        for option, value in options.items():
            sentinel.ask("SENTINEL", "SET", SERVICE, option, value)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three masters with a replica each; the first three nodes begin as masters of a third of the slots each."""

    nodes: Sequence[Node]
    ids: Sequence[str]
    """By which the nodes know each other."""
    scheme: str = "redis"

    @property
    def url(self) -> str:
        """The address of the cluster, by way of all nodes."""
        hosts = ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)
        return f"{self.scheme}+cluster://{hosts}"

    def id_of(self, node: Node) -> str:
        """Return a node's name for itself."""
        return self.ids[self.nodes.index(node)]

    def masters(self) -> list[Node]:
        """Return the living masters, in the order of their nodes."""
        return [node for node in self._living() if node.info("replication")["role"] == "master"]

    def master_of(self, key: str) -> Node:
        """Return the living master that serves the key's slot."""
        asked = self._living()[0]
        slot = asked.ask("CLUSTER", "KEYSLOT", key)
        (owner,) = [row[2][2] for row in asked.ask("CLUSTER", "SLOTS") if row[0] <= slot <= row[1]]
        return self.nodes[self.ids.index(owner)]

    def replica_of(self, master: Node) -> Node:
        """Return the living replica of a master."""
        return next(node for node in self._living() if _master_port(node) == master.port)

    def wait_failover(self, old: Node, replica: Node) -> None:
        """Wait until the replica has taken the office of the old master, and every living node knows."""
        living = [node for node in self._living() if node is not old]
        comes, goes = self.id_of(replica), self.id_of(old)

        def has_taken_over() -> bool:
            views = [{row[2][2] for row in node.ask("CLUSTER", "SLOTS")} for node in living]
            return all(comes in view and goes not in view for view in views)

        eventually(has_taken_over, "the replica takes over", seconds=FAILOVER_SECONDS)

    def wait_whole(self) -> None:
        """Wait until every node is up, knows every other one, says that all slots are served, and is followed."""
        eventually(lambda: all(self._is_whole(node) for node in self.nodes), "every node says that all is well")

    def _living(self) -> list[Node]:
        return [node for node in self.nodes if not node.wait(0)]

    def _is_whole(self, node: Node) -> bool:
        found = dict(line.split(":") for line in node.ask("CLUSTER", "INFO").split())
        wanted = {
            "cluster_state": "ok",
            "cluster_slots_ok": str(SLOTS),
            "cluster_known_nodes": str(len(self.nodes)),
            "cluster_size": str(MASTERS),
        }
        serving = {end[2] for row in node.ask("CLUSTER", "SLOTS") for end in row[2:]}
        link = node.info("replication").get("master_link_status", "up")
        return wanted.items() <= found.items() and len(serving) == len(self.nodes) and link == "up"


def start_cluster(stack: ExitStack, kind: Kind | None = None) -> Cluster:
    """Start six nodes and make them one cluster; `stack` ends them."""
    kind = kind or Kind()
    directives = {**CLUSTER, **kind.directives}
    start = partial(Node.start, kind.program, directives, port_directives=(kind.port_directive, "cluster-port"))
    nodes = start_all(stack, [start] * NODES)
    made = Cluster(nodes, [node.ask("CLUSTER", "MYID") for node in nodes], kind.scheme)
    deal_slots(nodes[:MASTERS], equal_ranges(MASTERS))
    introduce(nodes)
    for master, replica in zip(nodes[:MASTERS], nodes[MASTERS:], strict=True):
        eventually(partial(knows, replica, made.id_of(master)), "the nodes meet")
        replica.ask("CLUSTER", "REPLICATE", made.id_of(master))
    made.wait_whole()
    return made


def knows(node: StockServer, identity: str) -> bool:
    """Return whether a node of a cluster knows another one."""
    return identity in node.ask("CLUSTER", "NODES")


def _master_port(node: Node) -> int | None:
    found = node.info("replication")
    return found.get("master_port")


def pairs(flat: Sequence[str]) -> dict[str, str]:
    """Return a reply of names and values as a dictionary."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
