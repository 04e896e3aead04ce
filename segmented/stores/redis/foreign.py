"""Numbers that somebody else may have written to a pool's keys: what cannot be read is named, and never raises."""

from __future__ import annotations

import re
from typing import Final

from segmented.models import PoolState
from segmented.stores.redis.wire import Reply, readable

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
    "customer_limit",
    "closed",
    "order_count",
)
"""As the scripts answer them, from the second place on; the units of the segments follow."""
MOMENT_MAX: Final = 1 << 62


def whole(value: Reply) -> int | None:
    """Read a whole number as the server counts with it; None for anything else."""
    found = "" if value is None else readable(value)
    return int(found) if WHOLE.fullmatch(found) else None


def moment(score: Reply) -> int:
    """Read the end of a hold in milliseconds: the score of a sorted set, which may be infinite."""
    return int(max(-MOMENT_MAX, min(MOMENT_MAX, float(readable(score)))))


def pool_state(sku: str, reply: Reply) -> PoolState:
    """Read the answer of `read_pool`, or the shorter state in the answers of others; kind comes first in both."""
    found = {name: whole(value) for name, value in zip(NAMES, reply[1:], strict=False)}
    flat = reply[len(NAMES) + 1]
    units = {readable(flat[index]): whole(flat[index + 1]) for index in range(0, len(flat), 2)}
    more = reply[len(NAMES) + 2] if len(reply) > len(NAMES) + 2 else None
    if more:
        found |= {"fence": whole(more[1]), "cursor": whole(more[2])}
    unreadable = [name for name, value in found.items() if value is None]
    unreadable += [f"segment {name}" for name, value in units.items() if value is None or whole(name) is None]
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
        customer_limit=number["customer_limit"] or None,
        is_closed=bool(number["closed"]),
        unreadable=tuple(unreadable),
        ledger_end=_end_beyond(readable(more[0]), number["epoch"], number["sequence"]) if more else "",
    )


def _end_beyond(last_id: str, epoch: int, sequence: int) -> str:
    """Return the id of the ledger's last entry if the pool's next entry could not follow it."""
    first, _, second = last_id.partition("-")
    is_beyond = second.isdecimal() and (int(first), int(second)) > (epoch, sequence)
    return last_id if is_beyond else ""
