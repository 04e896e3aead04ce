"""The note of the relay over the wire, and the errors of ledgers that are relayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol as op
from segmented.errors import InvalidInput, StoreRefused
from segmented.protocol.pool.wire import keys_of, kind_of
from segmented.protocol.wire import Call, Codec, script_call

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

    Change = tuple[int, int]
    """Epoch and sequence number."""


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


def _encode(operation: op.NoteRelayed) -> Call:
    return script_call("note_relayed", keys_of(operation.sku), *(operation.relayed or ("", "")))


def _decode(operation: op.NoteRelayed, reply: Reply) -> tuple[int, int]:
    kind = kind_of(operation.sku, reply)
    found = int(reply[1]), int(reply[2])
    if kind != "relayed":
        reason: Literal["behind", "gap"] = "behind" if kind == "behind" else "gap"
        raise ledger_diverged(operation.sku, operation.relayed, found, reason)
    return found


CODECS: Final = {op.NoteRelayed: Codec(_encode, _decode)}
