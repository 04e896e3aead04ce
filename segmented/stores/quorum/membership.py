"""Are the servers independent of each other? Pure: it compares what they say of themselves.

A majority of addresses that lead to one server, to a primary and its replica, or to nodes of one cluster is no majority
of anything: one failure takes several of its votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models import ServerIdentity


class Membership:
    """Which servers have told who they are."""

    def __init__(self, names: Sequence[str]) -> None:
        """Know none of the servers of these names."""
        self._names = names
        self._known: dict[int, ServerIdentity] = {}
        self._conflict = ""

    @property
    def unknown(self) -> list[int]:
        """Return the servers that have not told yet."""
        return [server for server in range(len(self._names)) if server not in self._known]

    @property
    def conflict(self) -> InvalidInput | None:
        """Return what to raise when two of them are not independent."""
        return InvalidInput(self._conflict) if self._conflict else None

    def admit(self, server: int, identity: ServerIdentity) -> None:
        """Compare a server with those that are known."""
        for other, known in self._known.items():
            if other != server and (why := _common(known, identity)) and not self._conflict:
                names = f"{self._names[other]} and {self._names[server]}"
                self._conflict = f"{names} {why}: a quorum needs servers that are independent of each other"
        self._known[server] = identity


def _common(one: ServerIdentity, other: ServerIdentity) -> str:
    if one.run_id == other.run_id:
        return "are the same server"
    if one.node_ids & other.node_ids:
        return "belong to one cluster"
    if one.replication_id and one.replication_id == other.replication_id:
        return "are a primary and its replica"
    return ""
