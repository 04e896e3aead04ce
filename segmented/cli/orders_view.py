"""Submitted orders as rows, sentences and JSON. Worker ids are cut off, because a complete one proves ownership."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from segmented.cli.output import Row, shown, span
from segmented.models import Settled
from segmented.models.ids import counted
from segmented.models.submitted import SUBMITTED_UNTIL_MS, KeptMessage, Replayed, Submitted
from segmented.stock.dead_letters import DeadLetter, Place, PlacedOrder, PlacedOutbox, ReplayedOrder

OUTBOX_HEADS: Final = ("pool", "waiting", "due", "oldest due for", "dead")
DEAD_HEADS: Final = ("pool", "order", "begun", "age", "state now", "reason")
MESSAGE_HEADS: Final = ("message", "age", "reason", "text")
REPLAY_HEADS: Final = ("order", "outcome")
WORKER_SHOWN: Final = 8
DIGEST_SHOWN: Final = 12
TEXT_SHOWN: Final = 40
DECIDED: Final = {
    "confirmed": "confirmed: its units are sold",
    "cancelled": "cancelled: its units were given back",
    "expired": "expired: its hold lapsed, and its units were given back",
    "refused": "refused",
}


def place_name(place: Place) -> str:
    """Return a pool's name, with the shard of a sharded pool."""
    return shown(place.sku) if place.shard is None else f"{shown(place.sku)}, shard {place.shard}"


def lasting(milliseconds: int) -> str:
    """Return a duration in words."""
    return span(milliseconds / 1000)


# --- a pool's outbox ---


def outbox_row(one: PlacedOutbox) -> Row:
    """Return the row of a pool."""
    name, state = place_name(one.place), one.state
    if state is None:
        return (name, "not open", "-", "-", "-")
    oldest = lasting(state.oldest_due_ms) if state.due else "-"
    return (name, str(state.waiting), str(state.due), oldest, str(state.dead))


def outbox_json(one: PlacedOutbox) -> dict[str, Any]:
    """Return the same for a program."""
    return asdict(one.place) | {"is_open": one.state is not None} | (asdict(one.state) if one.state else {})


# --- an order ---


def state_in_words(found: Submitted) -> str:
    """Return an order's state, and what happens next."""
    is_dead = found.dead_at_ms is not None
    if found.state == "dead":
        return "dead: not published to workers until it is replayed"
    if found.state in DECIDED:
        return DECIDED[found.state] + (", though it was dead before" if is_dead else "")
    if found.state == "queued":
        return "queued: accepted; a worker will take its units"
    waits = "a worker is to confirm it" if found.is_in_outbox else "it was not submitted to a worker"
    return f"reserved: its units are taken, and {waits}"


def order_rows(one: PlacedOrder) -> list[Row]:
    """Return the full state of an order, one row per field."""
    found = one.found
    rows: list[Row] = [
        ("order", shown(found.order_id)),
        ("pool", place_name(one.place)),
        ("state", state_in_words(found)),
        ("units", units(found)),
        ("customer", _customer(found)),
        ("begun", counted(found.begun, "time")),
        ("published again", counted(found.published, "time")),
        ("in hand", _in_hand(found)),
        ("next", _next(found)),
        ("reason", shown(found.reason) or "-"),
    ]
    if found.dead_at_ms is not None:
        rows.insert(3, ("dead for", lasting(found.read_at_ms - found.dead_at_ms)))
    return rows


def units(found: Submitted) -> str:
    """Return an order's units in words."""
    record = found.record
    if record is None:
        return "none taken" if found.order is None else f"none taken, {found.order.quantity} asked for"
    if record.state == "refused":
        return f"none taken, {record.asked} asked for"
    if record.state in {"cancelled", "expired"}:
        return f"{record.quantity} given back"
    asked = f" of {record.asked} asked for" if record.asked != record.quantity else ""
    places = ", ".join(f"{taken} from segment {segment}" for segment, taken in record.parts)
    is_held = record.state == "reserved"
    return f"{record.quantity}{asked}{f' ({places})' if places else ''}{_hold(found) if is_held else ''}"


def _hold(found: Submitted) -> str:
    until_ms = found.record.hold_until_ms if found.record is not None else None
    if until_ms is None or until_ms >= SUBMITTED_UNTIL_MS:
        return ", on hold without an end"
    left = until_ms - found.read_at_ms
    return f", on hold for {lasting(left)}" if left > 0 else ", on hold still, though their hold has lapsed"


def _customer(found: Submitted) -> str:
    asked_by = found.record.customer_id if found.record is not None else found.order and found.order.customer_id
    return shown(asked_by) if asked_by else "-"


def _in_hand(found: Submitted) -> str:
    left, record = found.until_ms - found.read_at_ms, found.record
    if found.worker and left > 0:
        return f"worker {shown(found.worker[:WORKER_SHOWN])}, for {lasting(left)} unless it renews"
    is_granted = record is not None and record.state == "reserved" and record.holder_id and record.fencing_token
    if record is None or not is_granted or found.is_in_outbox or found.dead_at_ms is not None:
        return "nobody has it"
    holder = shown((record.holder_id or "")[:WORKER_SHOWN])
    return f"holder {holder} was granted segment {record.segment}: 'segmented lock list' says how long it has it"


def _next(found: Submitted) -> str:
    if found.due_ms is None:
        return "nothing: it is not in the outbox"
    left = found.due_ms - found.read_at_ms
    return f"published again in {lasting(left)}" if left > 0 else f"due to be published again for {lasting(-left)}"


def order_json(one: PlacedOrder) -> dict[str, Any]:
    """Return the same for a program."""
    found = asdict(one.found)
    found["worker_start"] = found.pop("worker")[:WORKER_SHOWN]
    if found["record"] is not None:
        found["record"]["holder_id_start"] = (found["record"].pop("holder_id") or "")[:WORKER_SHOWN]
    return asdict(one.place) | found


# --- the dead-letter set ---


def dead_row(letter: DeadLetter) -> Row:
    """Return a dead order's row."""
    dead = letter.dead
    who = (place_name(letter.place), shown(dead.order_id), str(dead.begun), lasting(letter.age_ms))
    return (*who, _now(letter), shown(dead.reason) or "-")


def _now(letter: DeadLetter) -> str:
    found = letter.found
    if found.state in DECIDED:
        return f"{found.state} by now"
    if not letter.units_on_hold:
        return units(found)
    return f"{counted(letter.units_on_hold, 'unit')}{_hold(found)}"


def dead_json(letter: DeadLetter) -> dict[str, Any]:
    """Return the same for a program."""
    more = {"age_ms": letter.age_ms, "state": letter.found.state, "units_on_hold": letter.units_on_hold}
    return asdict(letter.place) | asdict(letter.dead) | more


def message_row(message: KeptMessage) -> Row:
    """Return the row of a kept message, with the start of its text."""
    begins = " ".join(message.text.split())
    cut = begins if len(begins) <= TEXT_SHOWN else f"{begins[:TEXT_SHOWN]}..."
    return (shown(message.digest[:DIGEST_SHOWN]), lasting(message.age_ms), shown(message.reason), shown(cut))


def replay_words(one: ReplayedOrder) -> str:
    """Return the result of an order's replay in words."""
    match one.answer:
        case Replayed():
            return "published again by the next sweep"
        case Settled():
            return f"decided in the meantime, so only removed from the set: {one.answer.state}"
        case _:
            return "not in the dead-letter set"


def replay_json(one: ReplayedOrder) -> dict[str, Any]:
    """Return the same for a program."""
    match one.answer:
        case Replayed():
            answer, state = "replayed", None
        case Settled():
            answer, state = "decided", one.answer.state
        case _:
            answer, state = "absent", None
    return {"order_id": one.order_id, "shard": one.place.shard, "answer": answer, "state": state}
