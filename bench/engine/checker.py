"""Checks every timed run: what was sold, and whether the guarantees held. Independent of the strategy.

It compares two sources: the servers (the strategy's verdict) and the buyers' records. A refusal is surely wrong if
enough units were free even without all units requested by the time of its answer: those were free during the whole
request. That bound needs no ledger, so it applies to every strategy; if there is a ledger, its exact count is used if
it is higher. If a cell sells several skus, each of them is checked by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from bench.engine.record import Checker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.engine.sale import Recorder
    from bench.strategies.base import Verdict

CLEAN: Final = frozenset({"clean", "none"})
COUNTED: Final = ("stock", "sold", "oversold", "refused_wrongly", "stranded", "duplicates", "lost")


def check(
    recorder: Recorder,
    verdict: Verdict,
    *,
    opened: int,
    stocked: int,
    quantity: int,
    cancelled: int,
    came_in: Sequence[tuple[float, int]] = (),
    unfinished: int = 0,
) -> Checker:
    """Compare the sources.

    `opened`: initial units. `stocked`: with the units added later. Every order asks for `quantity`. `cancelled`: units
    of sold orders given back. `came_in`: when returned and added units were acknowledged, and how many.
    `unfinished`: orders that began and never ended; like failed orders, they may be sold.
    """
    acknowledged = {str(number) for number in recorder.sold_numbers}
    known = acknowledged if verdict.sold_ids is None else verdict.sold_ids
    unclaimed = max(0, len(known - acknowledged) - sum(recorder.failed) - unfinished)
    # Buyers stop at the first refusal: an order that was cancelled after the last request left units nobody asked for.
    unasked = sum(units for at, units in came_in if at >= max(recorder.asked, default=0.0))
    left = verdict.available - unasked
    is_short = bool(recorder.refusals) and left >= quantity
    vanished = max(0, stocked - verdict.sold - verdict.available)
    by_notes = len(recorder.sold_numbers) * quantity - cancelled
    return Checker(
        stock=stocked,
        sold=verdict.sold,
        sold_in_sql=verdict.sold_in_sql,
        oversold=max(verdict.oversold_in_redis, verdict.oversold_in_sql, by_notes - stocked, 0),
        refused_wrongly=max(verdict.refused_wrongly, surely_wrong(recorder, opened, quantity, came_in)),
        stranded=vanished + (left if is_short else 0) + unclaimed * quantity,
        duplicates=verdict.duplicates + len(recorder.sold_numbers) - len(acknowledged),
        lost=max(0, len(acknowledged - known) - cancelled // quantity),
        audit=verdict.audit,
    )


def summed(parts: Sequence[Checker]) -> Checker:
    """Return the books of a cell from those of its skus: units that one sku lacks are not those that another has."""
    first, *others = parts
    if not others:
        return first
    each = [one.model_dump() for one in parts]
    total = {name: sum(one[name] for one in each) for name in COUNTED}
    in_sql = [one.sold_in_sql for one in parts if one.sold_in_sql is not None]
    unclean = [f"sku {place}: {one.audit}" for place, one in enumerate(parts) if one.audit not in CLEAN]
    return Checker(**total, sold_in_sql=sum(in_sql) if in_sql else None, audit="; ".join(unclean) or first.audit)


def surely_wrong(recorder: Recorder, opened: int, quantity: int, came_in: Sequence[tuple[float, int]] = ()) -> int:
    """Count refusals for which units were free during the whole request, by the buyers' clock only.

    Added units count from their acknowledgement on, for requests that began after it.
    """
    calls = sorted(zip(recorder.asked, recorder.sold, recorder.failed, strict=True))
    asked = [at for at, _, _ in calls]
    taken = [0, *accumulate((sold + failed) * quantity for _, sold, failed in calls)]
    """Units that orders sent before a time may have taken; a failed order may have taken them too."""
    arrived = sorted(came_in)
    at = [when for when, _ in arrived]
    there = [opened, *accumulate((units for _, units in arrived), initial=opened)][1:]
    return sum(
        there[bisect_right(at, refusal.asked_at)] - taken[bisect_left(asked, refusal.done_at)] >= refusal.quantity
        for refusal in recorder.refusals
    )


def broken_promises(found: Checker, failures: Sequence[str], *, failed: int) -> tuple[str, ...]:
    """Return what voids a run, one sentence each."""
    audit_is_wrong = found.audit not in CLEAN
    sentences = {
        f"oversold by {found.oversold} unit{'' if found.oversold == 1 else 's'}": found.oversold,
        f"orders refused while units were free: {found.refused_wrongly}": found.refused_wrongly,
        f"units that no order can get: {found.stranded}": found.stranded,
        f"orders with more than one effect: {found.duplicates}": found.duplicates,
        f"orders acknowledged and not known to the servers: {found.lost}": found.lost,
        f"the pool has {found.sold} units sold and the order database {found.sold_in_sql}": (
            found.sold_in_sql is not None and found.sold_in_sql != found.sold
        ),
        f"the audit is not clean: {found.audit}": audit_is_wrong,
        f"orders without an answer: {failed}, the first: {next(iter(failures), 'cut short')}": failed,
    }
    return tuple(sentence for sentence, is_broken in sentences.items() if is_broken)
