"""The operation by which a pool notes up to which change its ledger was relayed."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class NoteRelayed(Operation[tuple[int, int]]):
    """Note that the ledger is in a database up to this change. Answers with the change after which to relay.

    None: the database has nothing of the ledger, which is relayed from its first entry. From then on the ledger is
    trimmed only behind the noted change, which never moves back. Raises InvalidInput if the ledger does not continue
    what the database has.
    """

    sku: str
    relayed: tuple[int, int] | None
    """Epoch and sequence number of the database's last entry."""
