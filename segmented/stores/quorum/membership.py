"""Whether the servers are independent of each other. Pure: it compares the identities that they report.

If several addresses lead to one server, to a primary and its replica, or to nodes of one cluster, one failure takes
several votes, and a majority of the addresses means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models import ServerIdentity


class Membership:
    """The identities that the servers have reported."""

    def __init__(self, names: Sequence[str]) -> None:
        """Create an empty registry of servers; `names` are used in errors."""
        self._names = names
        self._known: dict[int, ServerIdentity] = {}
        self._conflict = ""

    @property
    def unknown(self) -> list[int]:
        """Return the servers that have not reported yet."""
        return [server for server in range(len(self._names)) if server not in self._known]

    @property
    def conflict(self) -> InvalidInput | None:
        """Return the error to raise if two servers are not independent, or None."""
        return InvalidInput(self._conflict) if self._conflict else None

    def admit(self, server: int, identity: ServerIdentity) -> None:
        """Record a server's identity and compare it with the known ones."""
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
