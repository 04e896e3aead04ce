"""A slot of a cluster on its way from one master to another, as an operator moves it."""

from typing import Final

from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import eventually

KEY_BY_KEY: Final = "key by key"
WAYS: Final = (KEY_BY_KEY, "in one step")


class SlotMover:
    """Moves one slot from a master to another, key by key, as an operator's tool does."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self._cluster, self._key = cluster, key
        self.source = cluster.master_of(key)
        self.target = next(master for master in cluster.masters() if master is not self.source)
        self.slot: int = self.source.ask("CLUSTER", "KEYSLOT", key)
        self._masters = cluster.masters()
        self._source_id, self._target_id = self.source.ask("CLUSTER", "MYID"), self.target.ask("CLUSTER", "MYID")

    def begin(self) -> None:
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._source_id)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._target_id)

    def move_at_once(self) -> None:
        """Have Valkey move the slot in one step, with all that is in it."""
        self.source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", self._target_id)

    def move_keys(self) -> set[str]:
        """Move what is in the slot; other tests on this cluster may have left keys there too."""
        moved: set[str] = set()
        while keys := self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            self.source.ask("MIGRATE", *self.target.address, "", 0, 5_000, "KEYS", *keys)
            moved.update(keys)
        return moved

    def end(self) -> None:
        for node in (self.target, self.source, *self._masters):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self._target_id)

    def move(self, way: str) -> None:
        """Move the slot in one of `WAYS`; return when the cluster knows."""
        if way == KEY_BY_KEY:
            self.begin()
            self.move_keys()
            self.end()
        else:
            self.move_at_once()
            eventually(lambda: self._cluster.master_of(self._key) is self.target, "the slot is moved")
