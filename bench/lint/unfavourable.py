"""R16: cases in which segments should lose are measured too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.lint.finding import broken, holds
from bench.lint.subject import ONE_LOCK, ONE_SCRIPT, SEGMENTED, setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.granularity.record import Run
    from bench.lint.finding import Verdict
    from bench.lint.subject import Subject

LOW_LOAD: Final = 0.1
"""Maximum share of the capacity for a load to count as low."""
RIVALS: Final = (ONE_LOCK, ONE_SCRIPT)
RIVAL_MAY_DIFFER: Final = ("strategy", "segments", "offered_per_s")


def where_segments_lose(subject: Subject) -> Verdict:
    """R16: each unfavourable case has runs with segments, and with one lock or one script under the same conditions."""
    lacking = []
    for name, is_case in CASES.items():
        cells = {run.cell for run in subject.runs if run.cell.strategy == SEGMENTED and is_case(run, subject)}
        places = {setting(cell, RIVAL_MAY_DIFFER) for cell in cells}
        has_rival = any(
            run.cell.strategy in RIVALS and setting(run.cell, RIVAL_MAY_DIFFER) in places for run in subject.runs
        )
        if not cells:
            lacking.append(name)
        elif not has_rival:
            lacking.append(f"{name} of {' or '.join(RIVALS)}")
    if lacking:
        return broken(f"not measured: {', '.join(lacking)}")
    return holds(f"all {len(CASES)} are there, of segments and of a rival: {', '.join(CASES)}")


def _is_low(run: Run, subject: Subject) -> bool:
    if run.offered_percent is not None:
        return run.offered_percent <= 100 * LOW_LOAD
    capacity, offered = subject.capacity(run.cell), run.cell.offered_per_s
    return bool(capacity and offered and offered <= LOW_LOAD * capacity)


def _is_short(run: Run, _: Subject) -> bool:
    cell = run.cell
    return cell.stock is not None and 1 < cell.stock < cell.segments


def _is_larger(run: Run, _: Subject) -> bool:
    cell = run.cell
    return cell.stock is not None and cell.stock >= cell.quantity > -(-cell.stock // cell.segments)


CASES: Final[dict[str, Callable[[Run, Subject], bool]]] = {
    "one unit": lambda run, _: run.cell.stock == 1,
    "stock below K": _is_short,
    "one client": lambda run, _: run.cell.loop == "closed" and run.cell.buyers == 1,
    "low load": _is_low,
    "orders larger than a segment": _is_larger,
    "cancel storm": lambda run, _: run.cell.case == "cancel-storm",
    "restock in mid-sale": lambda run, _: run.cell.case == "restock",
}
