"""Numbers in a pool's keys that another program may have overwritten: unreadable ones are listed and never raise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from segmented.models import PoolState, Transfer
from segmented.models.ids import SEGMENT_COUNT_MAX
from segmented.models.pools import is_profile
from segmented.protocol.wire import POSITION, Reply, position, readable

WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
NAMES: Final = (
    "epoch",
    "segment_count",
    "gated",
    "sequence",
    "opened",
    "available",
    "reserved",
    "confirmed",
    "restocked",
    "withdrawn",
    "sent",
    "received",
    "customer_limit",
    "closed",
    "order_count",
)
"""In the order of the scripts' answers, from the second place on; the units of the segments follow."""
BOUNDS: Final = (("segment_count", 1, SEGMENT_COUNT_MAX), ("epoch", 1, 2**53 - 1), ("sequence", 0, 2**53 - 1))
"""Numbers that others are counted by, with the least and the most that a pool can have."""
TRANSFER: Final = re.compile(r"(sent|away|received):([0-9]{1,4})")
THAWED: Final = re.compile(r"epoch:[0-9]{1,4} [0-9]{1,15}")
"""A note of another shard's epoch, and its text."""
TRANSFERRED: Final = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})")
MOMENT_MAX: Final = 1 << 62


def whole(value: Reply) -> int | None:
    """Parse an integer as the server does; None for anything else."""
    found = "" if value is None else readable(value)
    return int(found) if WHOLE.fullmatch(found) else None


def moment(score: Reply) -> int:
    """Parse the end of a hold in milliseconds: the score of a sorted set, which may be infinite."""
    return int(max(-MOMENT_MAX, min(MOMENT_MAX, float(readable(score)))))


def pool_state(sku: str, reply: Reply) -> PoolState:
    """Read the answer of `read_pool`, or the shorter state in the answers of others; kind comes first in both."""
    found = {name: whole(value) for name, value in zip(NAMES, reply[1:], strict=False)}
    flat = reply[len(NAMES) + 1]
    units = {readable(flat[index]): whole(flat[index + 1]) for index in range(0, len(flat), 2)}
    profile = readable(reply[len(NAMES) + 2])
    sale_id, queue, step = map(readable, reply[len(NAMES) + 3 : len(NAMES) + 6])
    for name, least, most in BOUNDS:
        if not least <= (found[name] or 0) <= most:
            found[name] = None
    more, transfers = (*reply[len(NAMES) + 6 :], None, None)[:2]
    if more:
        found |= {"fence": whole(more[1]), "cursor": whole(more[2]), "lost": whole(more[4])}
        found |= {"forgotten": whole(more[7])} if more[7] else {}
        found |= {} if not more[5] or POSITION.fullmatch(readable(more[5])) else {"relayed": None}
    between = _transfers(transfers or ())
    unreadable = [name for name, value in found.items() if value is None]
    unreadable += [f"segment {name}" for name, value in units.items() if value is None or whole(name) is None]
    unreadable += [field for field, transfer in between.items() if transfer is None]
    unreadable += [] if is_profile(profile) else ["profile"]
    number = {name: value or 0 for name, value in found.items()}
    return PoolState(
        sku=sku,
        epoch=number["epoch"],
        segment_count=number["segment_count"],
        gated=bool(number["gated"]),
        sequence=number["sequence"],
        opened=number["opened"],
        available=number["available"],
        reserved=number["reserved"],
        confirmed=number["confirmed"],
        order_count=number["order_count"],
        stock=tuple(units.get(str(segment)) or 0 for segment in range(number["segment_count"])),
        restocked=number["restocked"],
        withdrawn=number["withdrawn"],
        sent=number["sent"],
        received=number["received"],
        limit_per_customer=number["customer_limit"] or None,
        is_closed=bool(number["closed"]),
        profile=profile,
        queue=queue or None,
        step=step or None,
        sale_id=sale_id,
        unreadable=tuple(unreadable),
        ledger_end=_end_beyond(readable(more[0]), number["epoch"], number["sequence"]) if more else "",
        frozen=_seen(readable(more[3]), number) if more else None,
        lost=number.get("lost", 0),
        forgotten=number.get("forgotten"),
        relayed=position(readable(more[5])) if more and POSITION.fullmatch(readable(more[5])) else None,
        relay_age_ms=int(more[6]) if more else 0,
        transfers=tuple(sorted(transfer for transfer in between.values() if transfer is not None)),
    )


def _transfers(flat: Sequence[Reply]) -> dict[str, Transfer | None]:
    """Read a shard's notes of units between it and others; None for an unreadable note."""
    found: dict[str, Transfer | None] = {}
    for index in range(0, len(flat), 2):
        field, said = readable(flat[index]), readable(flat[index + 1])
        if THAWED.fullmatch(f"{field} {said}"):
            continue
        about, numbers = TRANSFER.fullmatch(field), TRANSFERRED.fullmatch(said)
        found[f"transfer {field}"] = (
            Transfer(about[1], int(about[2]), int(numbers[1]), int(numbers[2])) if about and numbers else None  # type: ignore[arg-type]  # one of the three kinds
        )
    return found


def _seen(said: str, number: dict[str, int]) -> tuple[int, int] | None:
    """Return what a frozen pool lacks, None if it sells. An unreadable text freezes it at its own numbers."""
    if not said:
        return None
    return position(said) if POSITION.fullmatch(said) else (number["epoch"], number["sequence"])


def _end_beyond(last_id: str, epoch: int, sequence: int) -> str:
    """Return the id of the ledger's last entry if the pool's next entry could not follow it."""
    first, _, second = last_id.partition("-")
    is_beyond = second.isdecimal() and (int(first), int(second)) > (epoch, sequence)
    return last_id if is_beyond else ""
