"""The stock servers of a trial behind one address, and what faults and operators do to them.

The address is a symbolic link to a server's socket. To promote a replica, the operator lets the link lead to the
replica's socket, as a name or a virtual address is moved. So the buyers' stores live on, and know what they have seen.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from bench.proof.durability.buyer import SKU
from bench.proof.durability.cells import (
    BOTH_POWER_LOSS,
    OLD_DUMP,
    POWER_LOSS,
    REPLICA_BEHIND,
    REPLICA_BEHIND_CLOCK,
    REPLICA_STALLED,
)
from bench.proof.durability.server import LOOPBACK, StockServer, socket_url
from bench.proof.preload.clock import ServerClock
from bench.proof.preload.power import SyncLog
from segmented.errors import SegmentedError
from segmented.keys import shard_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.proof.durability.cells import Cell
    from bench.proof.preload.libraries import Library

BEHIND_SECONDS: Final = 30.0
SYNC_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.01
WAIT_MS: Final = 5_000
SETTLE_KEY: Final = f"{shard_keys(SKU).meta}:settle"
"""In a cluster, it is on the pool's server."""
NOBODY: Final = 1
"""A port on which no server listens."""


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

    def _cut_off(self, replica: StockServer) -> None:
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

    def _follow(self, replica: StockServer, primary: StockServer) -> None:
        """Start a dead server as a replica again, where the pool's profile needs one."""
        if self._cell.profile.pool_profile is not None:
            replica.restart()
            replica.ask("REPLICAOF", LOOPBACK, primary.port)

    # --- parts ---

    def _form(self, stack: ExitStack) -> None:
        """Start the servers; `stack` stops them."""
        self._primary = stack.enter_context(self._started("primary"))
        self._replica: StockServer | None = None
        if self._cell.profile.has_replica:
            self._replica = stack.enter_context(self._started("replica"))
            self._replica.ask("REPLICAOF", LOOPBACK, self._primary.port)
            self._wait_in_step()
        self._point_to(self._primary)

    def _started(self, name: str, directives: Mapping[str, str] | None = None) -> StockServer:
        environment: Mapping[str, str] | None = None
        if self._cell.cuts_files:
            self._sync_logs[name] = SyncLog(self._folder / f"{name}.syncs", self._libraries["sync_log"])
            environment = self._sync_logs[name].environment
        if self._cell.fault is REPLICA_BEHIND_CLOCK and name == "replica":
            clock = ServerClock(self._folder, self._libraries["clock"])
            clock.set_ahead(-BEHIND_SECONDS)
            environment = clock.environment
        profile = self._cell.profile
        return StockServer.start(
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
        until = time.monotonic() + SYNC_SECONDS
        while not is_so():
            time.sleep(PAUSE_SECONDS)
            if time.monotonic() > until:
                message = f"{self._cell.name}: not within {SYNC_SECONDS:g} s: {what}"
                raise SegmentedError(message)

    def _point_to(self, server: StockServer) -> None:
        beside = self._address.with_suffix(".new")
        beside.symlink_to(server.socket_path)
        beside.replace(self._address)
