"""The operation by which a pool notes up to which change its ledger was relayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented.errors import InvalidInput, StoreRefused
from segmented.protocol.base import Operation
from segmented.protocol.pool.operations import keys_of, kind_of
from segmented.protocol.wire import Call, script_call

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

Change = tuple[int, int]
"""Epoch and sequence number."""


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

    def call(self) -> Call:
        return script_call("note_relayed", keys_of(self.sku), *(self.relayed or ("", "")))

    def answer(self, reply: Reply) -> tuple[int, int]:
        kind = kind_of(self.sku, reply)
        found = int(reply[1]), int(reply[2])
        if kind != "relayed":
            reason: Literal["behind", "gap"] = "behind" if kind == "behind" else "gap"
            raise ledger_diverged(self.sku, self.relayed, found, reason)
        return found


def ledger_diverged(
    sku: str, relayed: Change | None, found: Change, reason: Literal["behind", "gap", "rewritten"]
) -> InvalidInput:
    """Return the error for a ledger that does not continue what a database has of it.

    `found` is the pool's last change if it is behind, otherwise the ledger's next one.
    """
    known = "nothing" if relayed is None else f"changes up to {relayed[0]}-{relayed[1]}"
    at = f"{found[0]}-{found[1]}"
    why = {
        "behind": (
            f"the pool is at change {at}: its server lost changes, or the database has another sale of this sku; "
            "audit the pool, or name the right database"
        ),
        "gap": (
            f"the ledger goes on with change {at}: those in between were relayed to another database, or this one was "
            "restored from an older backup; name the right one"
        ),
        "rewritten": (
            f"change {at} was not written after them: the server lost changes and gave their numbers again, or the "
            "database has another sale of this sku; audit the pool, or name the right database"
        ),
    }[reason]
    return InvalidInput(f"the database has {known} of the ledger of {sku!r}, and {why}")


def not_relayed(sku: str, relayed: Change, last: Change) -> StoreRefused:
    """Return the error for a trim that would delete entries up to `last`, which were not relayed."""
    message = (
        f"the ledger of {sku!r} was relayed up to change {relayed[0]}-{relayed[1]}, so it cannot be trimmed to "
        f"{last[0]}-{last[1]}: relay it first with 'segmented pool relay', or keep more changes"
    )
    return StoreRefused(message)
