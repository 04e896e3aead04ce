"""The verdict on a trial, from the journal and the order database alone. It shares no code with the pool.

An order is acknowledged once its line is in a journal. What the stock's server still has of it is read right after the
server is back. With an order database, an acknowledged order is lost only if the database does not have it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented.models.ids import counted, plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bench.proof.durability.journal import Ack


FAILED_SECONDS_MAX: Final = 20.0
"""A call to servers that are away fails after its own timeout and the store's patience, each for every step of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts of a trial, seen from outside of the pool. Times are monotonic seconds."""

    stock: int
    fault_at: float
    back_at: float
    """When a server answered at the address again."""
    acks: Sequence[Ack]
    noticed: Sequence[float]
    """When processes learned that changes are lost."""
    kept: Collection[str]
    """Orders that the stock's server had as confirmed when it was back."""
    rows: Mapping[str, int] | None
    """Units by order id of the confirmed rows of the order database, at the end; None without one."""
    held: int = 0
    """Units that are still reserved at the end."""
    undecided: Collection[str] = ()
    """Orders that were submitted, and that no worker finished in time."""
    failed_s_max: float = 0.0
    """Seconds that the longest failed call took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on a trial."""

    acknowledged: int
    """Orders acknowledged before the fault."""
    forgotten: int
    """Of these, how many the stock's server had not any more."""
    lost: int
    """Of all acknowledged orders, how many nothing but the customer knows of."""
    sold_twice: int
    """Units promised beyond the stock."""
    noticed_s: float | None
    """Seconds from the fault until a process learned of the loss; None if none did."""
    again_s: float | None
    """Seconds from the fault until an order was acknowledged after the loss was noticed, if there was one, and a server
    was back; None if none was.
    """
    unsold: int
    """With an order database: units that are neither sold nor reserved at the end."""
    broken: tuple[str, ...]
    """Guarantees that did not hold."""

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        return asdict(self) | {"broken": list(self.broken)}


def judge(evidence: Evidence) -> Verdict:
    """Count what was lost, what was sold twice, and when it was noticed."""
    before = [ack for ack in evidence.acks if ack.at < evidence.back_at]
    forgotten = sum(ack.order_id not in evidence.kept for ack in before)
    rows = evidence.rows
    lost = forgotten if rows is None else sum(ack.order_id not in rows for ack in evidence.acks)
    promised = {ack.order_id: ack.units for ack in evidence.acks} | dict(rows or {})
    twice = max(0, sum(promised.values()) - evidence.stock)
    noticed = [at - evidence.fault_at for at in evidence.noticed if at >= evidence.fault_at]
    since = max(evidence.back_at, min(noticed, default=0.0) + evidence.fault_at)
    again = [ack.at - evidence.fault_at for ack in evidence.acks if ack.at >= since]
    unsold = 0 if rows is None else evidence.stock - sum(rows.values()) - evidence.held
    verdict = Verdict(
        acknowledged=len(before),
        forgotten=forgotten,
        lost=lost,
        sold_twice=twice,
        noticed_s=min(noticed, default=None),
        again_s=min(again, default=None),
        unsold=unsold,
        broken=(),
    )
    found = tuple(_broken(evidence, verdict))
    return Verdict(**{**asdict(verdict), "broken": found})


def _broken(evidence: Evidence, verdict: Verdict) -> list[str]:
    found = []
    if (verdict.forgotten or verdict.lost) and verdict.noticed_s is None:
        orders = counted(max(verdict.forgotten, verdict.lost), "order", "was")
        found.append(f"{orders} forgotten, and no process noticed it")
    doubled = [order_id for order_id, count in Counter(ack.order_id for ack in evidence.acks).items() if count > 1]
    if doubled:
        found.append(f"{counted(len(doubled), 'order', 'was')} acknowledged twice, such as {doubled[0]}")
    if evidence.undecided:
        orders = counted(len(evidence.undecided), "submitted order", "was")
        found.append(f"{orders} not finished, such as {min(evidence.undecided)}")
    if evidence.failed_s_max > FAILED_SECONDS_MAX:
        found.append(f"a call failed only after {evidence.failed_s_max:.1f} s")
    if evidence.rows is None:
        return found
    if verdict.lost:
        found.append(f"{counted(verdict.lost, 'acknowledged order', 'is')} not in the order database")
    if verdict.sold_twice:
        units = counted(verdict.sold_twice, "unit", "was")
        found.append(f"{units} sold twice although an order database decides")
    if verdict.unsold > 0:
        found.append(f"of {evidence.stock} units, {verdict.unsold} {plural(verdict.unsold, 'was')} not sold")
    return found
