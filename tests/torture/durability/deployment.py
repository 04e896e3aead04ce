"""The stock servers of a trial behind one address, and what faults and operators do to them.

The address is a symbolic link to a server's socket. To promote a replica, the operator lets the link lead to the
replica's socket, as a name or a virtual address is moved. So the buyers' stores live on, and know what they have seen.

Behind three Sentinels, or in a cluster of three masters, the replica is promoted by itself. The time until a dead
server is noticed is short, so that a trial takes some seconds. The link between server and replica is cut there by
disabling the account that the replica logs in with, because a Sentinel corrects a replica that follows somebody else.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from bench.clusters import (
    LOOPBACK,
    PASSWORD,
    StockServer,
    cluster_url,
    deal_slots,
    equal_ranges,
    introduce,
    is_whole,
    socket_url,
)
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from tests.support.servers.deployments import CLUSTER, MASTERS, SERVICE, knows, pairs, watch
from tests.support.servers.nodes import eventually
from tests.torture.durability.buyer import SKU
from tests.torture.durability.cells import (
    BOTH_POWER_LOSS,
    NO_QUORUM,
    OLD_DUMP,
    POWER_LOSS,
    REPLICA_BEHIND,
    REPLICA_BEHIND_CLOCK,
    REPLICA_STALLED,
    Cell,
)
from tests.torture.preload import Library, ServerClock, SyncLog

BEHIND_SECONDS: Final = 30.0
WAIT_MS: Final = 5_000
SETTLE_KEY: Final = f"{shard_keys(SKU).meta}:settle"
"""In a cluster, it is on the pool's server."""
NOBODY: Final = 1
"""A port on which no server listens."""
SENTINELS: Final = 3
NO_QUORUM_SECONDS: Final = 7.0
"""Longer than a store repeats an operation while a master is being replaced: calls fail, and are made again."""
ACCOUNT: Final = {
    "user": f"replica on >{PASSWORD} +psync +replconf +ping",
    "masteruser": "replica",
}
"""The account that replicas log in with."""


class TrialServer(StockServer):
    """A stock server, and what faults do to it."""

    def write_and(self, key: str, *words: str | int) -> Any:  # noqa: ANN401  # a server's reply
        """Write a key, then send a command on the same connection: WAIT needs a write before it to be true."""
        with self._client() as client, client.pipeline(transaction=False) as pipe:
            pipe.set(key, "1").delete(key)
            pipe.execute_command(*words)
            return pipe.execute()[-1]

    def replace_data(self, copy: Path) -> None:
        """Put a copy of earlier data in place of the data of a dead server."""
        shutil.rmtree(self.data)
        shutil.copytree(copy, self.data)


class Deployment:
    """A server, and a replica if the profile has one; `url` leads to the one that sells."""

    def __init__(self, cell: Cell, folder: Path, libraries: Mapping[Library, Path]) -> None:
        """Start no server yet; data, address and backups are kept in `folder`."""
        self._cell = cell
        self._folder = folder
        self._libraries = libraries
        self._stack = ExitStack()
        self._sync_logs: dict[str, SyncLog] = {}
        self._address = folder / "stock.sock"
        self.bytes_cut = 0
        """Bytes that power failures took from the files."""

    def __enter__(self) -> Self:
        """Start the servers, with the replica in step."""
        with ExitStack() as stack:
            self._form(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers."""
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of the stock."""
        return socket_url(self._address, self._primary.password)

    def settle(self) -> None:
        """Wait until disk and replica have what was written so far, so that a trial begins with a pool that is open."""
        for name, log in self._sync_logs.items():
            self._wait(partial(log.covers, self._folder / name), f"the disk of the {name} has the pool")
        if self._replica is not None and self._primary.write_and(SETTLE_KEY, "WAIT", 1, WAIT_MS) != 1:
            message = f"the replica did not have the pool within {WAIT_MS} ms"
            raise SegmentedError(message)

    # --- before the fault ---

    def prepare(self) -> None:
        """Do what comes earlier in the sale than the fault itself: copy the data, or cut the replica off."""
        if self._cell.fault is OLD_DUMP:
            self._copy_data()
        elif self._replica is not None and self._cell.fault is REPLICA_STALLED:
            self._replica.stall()
        elif self._replica is not None and self._cell.fault in {REPLICA_BEHIND, REPLICA_BEHIND_CLOCK}:
            self._cut_off(self._replica)

    def _cut_off(self, replica: TrialServer) -> None:
        replica.ask("REPLICAOF", LOOPBACK, NOBODY)  # it keeps what it has, and follows a port without a server

    def _copy_data(self) -> None:
        if self._cell.profile.fsync is None:
            self._primary.ask("SAVE")
            (self._folder / "copy").mkdir()
            (self._primary.data / "dump.rdb").rename(self._folder / "copy" / "dump.rdb")
        else:
            shutil.copytree(self._primary.data, self._folder / "copy")

    # --- the fault, and a server again ---

    def kill(self) -> None:
        """Kill the server, and its replica too where both lose power."""
        self._primary.kill()
        if self._cell.fault is BOTH_POWER_LOSS and self._replica is not None:
            self._replica.kill()
        if self._cell.fault is REPLICA_STALLED and self._replica is not None:
            self._replica.go_on()

    def bring_back(self) -> None:
        """Have a server at the address again, as an operator would."""
        fault = self._cell.fault
        if fault in {POWER_LOSS, BOTH_POWER_LOSS} and self._cell.cuts_files:
            self.bytes_cut += self._sync_logs["primary"].cut(self._primary.data)
        if fault is OLD_DUMP:
            self._primary.replace_data(self._folder / "copy")
        if self._replica is not None and fault not in {BOTH_POWER_LOSS, OLD_DUMP}:
            self._replica.ask("REPLICAOF", "NO", "ONE")
            self._point_to(self._replica)
            self._follow(self._primary, self._replica)
        else:
            self._primary.restart()
            if self._replica is not None and fault is BOTH_POWER_LOSS:
                self._follow(self._replica, self._primary)

    def _follow(self, replica: TrialServer, primary: TrialServer) -> None:
        """Start a dead server as a replica again, where the pool's profile needs one."""
        if self._cell.profile.pool_profile is not None:
            replica.restart()
            replica.ask("REPLICAOF", LOOPBACK, primary.port)

    # --- parts ---

    def _form(self, stack: ExitStack) -> None:
        """Start the servers; `stack` stops them."""
        self._primary = stack.enter_context(self._started("primary"))
        self._replica: TrialServer | None = None
        if self._cell.profile.has_replica:
            self._replica = stack.enter_context(self._started("replica"))
            self._replica.ask("REPLICAOF", LOOPBACK, self._primary.port)
            self._wait_in_step()
        self._point_to(self._primary)

    def _started(self, name: str, directives: Mapping[str, str] | None = None) -> TrialServer:
        environment: Mapping[str, str] | None = None
        if self._cell.cuts_files:
            self._sync_logs[name] = SyncLog(self._folder / f"{name}.syncs", self._libraries["sync_log"])
            environment = self._sync_logs[name].environment
        if self._cell.fault is REPLICA_BEHIND_CLOCK and name == "replica":
            clock = ServerClock(self._folder, self._libraries["clock"])
            clock.set_ahead(-BEHIND_SECONDS)
            environment = clock.environment
        profile = self._cell.profile
        return TrialServer.start(
            self._folder / name,
            fsync=profile.fsync,
            has_port=profile.has_replica,
            environment=environment,
            directives=directives,
        )

    def _wait_in_step(self) -> None:
        replica = self._replica
        if replica is not None:
            self._wait(
                lambda: replica.ask("INFO", "replication").get("master_link_status") == "up", "the replica follows"
            )

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so, although servers may not answer yet."""
        try:
            eventually(is_so, what)
        except TimeoutError as error:
            message = f"{self._cell.name}: {error}"
            raise SegmentedError(message) from error

    def _point_to(self, server: TrialServer) -> None:
        beside = self._address.with_suffix(".new")
        beside.symlink_to(server.socket_path)
        beside.replace(self._address)


class WatchedDeployment(Deployment):
    """The parts that both kinds share: the link that is cut, and the end of a failover."""

    _primary: TrialServer
    _replica: TrialServer

    def _cut_off(self, replica: TrialServer) -> None:
        del replica  # it keeps what it has; the server refuses it from now on
        self._primary.ask("ACL", "SETUSER", "replica", "off")
        self._primary.ask("CLIENT", "KILL", "TYPE", "replica")

    def kill(self) -> None:
        """Kill the server, and also its replica, or most of those who elect another one, if the fault says so."""
        super().kill()
        if self._cell.fault is NO_QUORUM:
            for voter in self._voters():
                voter.kill()

    def bring_back(self) -> None:
        """Wait until a server sells in the place of the dead one, or restart what lost power."""
        if self._cell.fault is NO_QUORUM:
            time.sleep(NO_QUORUM_SECONDS)
            for voter in self._voters():
                voter.restart()
        if self._cell.fault is BOTH_POWER_LOSS:
            for name, server in (("primary", self._primary), ("replica", self._replica)):
                self.bytes_cut += self._sync_logs[name].cut(server.data)
                server.restart()
            self._wait(self._has_master, "a server is the master again")
        else:
            self._wait(self._has_failed_over, "the replica is promoted")

    def _voters(self) -> Sequence[TrialServer]:
        """Return those whose death leaves no majority, beside the server."""
        raise NotImplementedError

    def _has_failed_over(self) -> bool:
        """Return whether the replica has taken the server's place, so that clients may find it."""
        raise NotImplementedError

    def _has_master(self) -> bool:
        """Return whether the server or its replica is in office."""
        raise NotImplementedError


class SentinelDeployment(WatchedDeployment):
    """A server and a replica, watched by three Sentinels."""

    @property
    def url(self) -> str:
        """The address of the service, by way of all Sentinels."""
        hosts = ",".join(f"{LOOPBACK}:{sentinel.port}" for sentinel in self._sentinels)
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{SERVICE}/0?sentinel_password={PASSWORD}"

    def _form(self, stack: ExitStack) -> None:
        self._primary = stack.enter_context(self._started("primary", ACCOUNT))
        self._replica = stack.enter_context(self._started("replica", ACCOUNT))
        self._replica.ask("REPLICAOF", LOOPBACK, self._primary.port)
        self._wait_in_step()
        self._sentinels = [stack.enter_context(self._sentinel(number)) for number in range(SENTINELS)]
        watch(self._sentinels, self._primary.port, password=PASSWORD)
        for sentinel in self._sentinels:
            self._wait(partial(self._knows_all, sentinel), "the Sentinels know each other")

    def _sentinel(self, number: int) -> TrialServer:
        return TrialServer.start(
            self._folder / f"sentinel-{number}", fsync=None, has_port=True, options=("--sentinel",)
        )

    def _knows_all(self, sentinel: TrialServer) -> bool:
        found = pairs(sentinel.ask("SENTINEL", "MASTER", SERVICE))
        return (found["num-other-sentinels"], found["num-slaves"]) == (str(SENTINELS - 1), "1")

    def _voters(self) -> Sequence[TrialServer]:
        return self._sentinels[1:]

    def _has_failed_over(self) -> bool:
        """Return whether clients are sent to the replica. SENTINEL MASTER names it later, when the failover ends."""
        sent = [sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE) for sentinel in self._sentinels]
        return str(self._replica.port) in {address[1] for address in sent} and is_master(self._replica)

    def _has_master(self) -> bool:
        named = self._named_ports()
        return any(named == {server.port} and is_master(server) for server in (self._primary, self._replica))

    def _named_ports(self) -> set[int]:
        """Return the ports of the servers that the Sentinels name as a master that is up."""
        states = [pairs(sentinel.ask("SENTINEL", "MASTER", SERVICE)) for sentinel in self._sentinels]
        return {int(state["port"]) for state in states if state["flags"] == "master"}


class ClusterDeployment(WatchedDeployment):
    """A cluster of three masters with a replica each; the pool's slot is the first one's."""

    @property
    def url(self) -> str:
        """The address of the cluster, by way of all nodes."""
        return cluster_url(self._nodes)

    def _form(self, stack: ExitStack) -> None:
        names = ["primary", "replica", *(f"{kind}-{number}" for number in (1, 2) for kind in ("master", "replica"))]
        self._nodes = [stack.enter_context(self._started(name, ACCOUNT | CLUSTER)) for name in names]
        self._ids = [node.ask("CLUSTER", "MYID") for node in self._nodes]
        self._primary, self._replica = self._nodes[:2]
        self._slot = int(self._primary.ask("CLUSTER", "KEYSLOT", shard_keys(SKU).meta))
        # the pool's slot is among those of the first master
        deal_slots(self._nodes[::2], sorted(equal_ranges(MASTERS), key=lambda one: not one[0] <= self._slot <= one[1]))
        introduce(self._nodes)
        for number in range(0, len(self._nodes), 2):
            master, replica = self._ids[number], self._nodes[number + 1]
            self._wait(partial(knows, replica, master), "the nodes meet")
            replica.ask("CLUSTER", "REPLICATE", master)
        for node in self._nodes:
            self._wait(partial(self._is_whole, node), "all nodes say that the cluster is whole")

    def _is_whole(self, node: TrialServer) -> bool:
        serving = {end[1] for row in node.ask("CLUSTER", "SLOTS") for end in row[2:]}
        link = node.ask("INFO", "replication").get("master_link_status", "up")
        return is_whole(node, nodes=len(self._nodes)) and (len(serving), link) == (len(self._nodes), "up")

    def _voters(self) -> Sequence[TrialServer]:
        return self._nodes[2:3]

    def _has_failed_over(self) -> bool:
        return is_master(self._replica) and self._owner(self._replica) == self._replica.port

    def _has_master(self) -> bool:
        return any(is_master(node) and self._owner(node) == node.port for node in (self._primary, self._replica))

    def _owner(self, node: TrialServer) -> int:
        """Return the port of the node that serves the pool's slot, as this node sees it; 0 if none does."""
        rows = [row for row in node.ask("CLUSTER", "SLOTS") if row[0] <= self._slot <= row[1]]
        return int(rows[0][2][1]) if rows else 0


def deployed(cell: Cell, folder: Path, libraries: Mapping[Library, Path]) -> Deployment:
    """Return the deployment of a cell; it is started as a context manager."""
    kinds: dict[str | None, type[Deployment]] = {"sentinel": SentinelDeployment, "cluster": ClusterDeployment}
    return kinds.get(cell.profile.watched_by, Deployment)(cell, folder, libraries)


def is_master(server: TrialServer) -> bool:
    """Return whether a server says that it is a master."""
    return bool(server.ask("INFO", "replication")["role"] == "master")
