"""What a repeat gets: a result, a slot, a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from segmented.models.ids import counted
from tests.conformance.dedup.context import ORDER, Finding
from tests.conformance.dedup.settings import CHARGE

if TYPE_CHECKING:
    from tests.conformance.dedup.context import BenchContext
    from tests.conformance.dedup.processes import Answer

RUN_SECONDS: Final = 10.0
CANVAS_SECONDS: Final = 15.0
SLOTS: Final = 2


def chord(context: BenchContext) -> Finding:
    """F11: the counter of the chord must move for a repeat too."""
    return _gathered(context, "chord", "the callback", slots=SLOTS)


def chain(context: BenchContext) -> Finding:
    """F11: the link after a repeat must not be lost with it."""
    return _gathered(context, "chain", "the last task", slots=0)


def group(context: BenchContext) -> Finding:
    """F11: both handles of the group must come to an end."""
    _two_workers(context)
    answer = context.publisher().ask("group", {"order_id": ORDER, "seconds": CANVAS_SECONDS}, seconds=30.0)
    if answer.error:
        return Finding(held=False, evidence=f"{answer.error}, {_runs(context)}")
    filled = [slot for slot in answer.ok if isinstance(slot, dict)]
    evidence = f"{len(filled)} of {SLOTS} results, {_runs(context)}"
    return Finding(len(filled) == SLOTS, evidence)


def other_payload(context: BenchContext) -> Finding:
    """F22: a submission with another quantity must not count as a repeat."""
    context.worker(replace(context.base, seconds_before=2))
    publisher = context.publisher()
    publisher.submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("began", ORDER)), RUN_SECONDS)
    other = publisher.submit(CHARGE, ORDER, 2)
    context.settle()
    runs = _runs(context)
    if other.error:
        return Finding(context.effects() == 1, f"raised {other.error}; {runs}")
    handle = "handle None" if other.ok["id"] is None else "a handle"
    return Finding(held=False, evidence=f"no error, {handle}; {runs}")


def after_completion(context: BenchContext) -> Finding:
    """F23: a repeat comes a second after the end of the first."""
    context.worker(context.base)
    publisher = context.publisher()
    first = publisher.result(publisher.submit(CHARGE, ORDER, 1))
    context.pause(1)
    return _same_result(context, first, publisher.result(publisher.submit(CHARGE, ORDER, 1)))


def while_running(context: BenchContext) -> Finding:
    """Shared: the repeat comes in the middle of the run."""
    context.worker(replace(context.base, seconds_before=3))
    publisher = context.publisher()
    submitted = publisher.submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("began", ORDER)), RUN_SECONDS)
    second = publisher.result(publisher.submit(CHARGE, ORDER, 1))
    return _same_result(context, publisher.result(submitted), second)


def _gathered(context: BenchContext, canvas: str, what: str, *, slots: int) -> Finding:
    _two_workers(context)
    answer = context.publisher().ask(canvas, {"order_id": ORDER})
    if not context.until(lambda: bool(context.seen("gathered")), CANVAS_SECONDS):
        error = f"{answer.error}; " if answer.error else ""
        return Finding(held=False, evidence=f"{error}{what} did not run within 15 s, {_runs(context)}")
    context.settle()
    gathered = [int(entry.key) for entry in context.seen("gathered")]
    filled = f" with {gathered[0]} of {slots} slots" if slots else ""
    times = "once" if len(gathered) == 1 else f"{len(gathered)} times"
    evidence = f"{what} ran {times}{filled}, {_runs(context)}"
    return Finding(gathered == [slots], evidence)


def _two_workers(context: BenchContext) -> None:
    for _ in range(2):
        context.worker(replace(context.base, seconds_before=1))


def _runs(context: BenchContext) -> str:
    return f"{counted(len(context.seen('began', ORDER)), 'run')} of 1 order"


def _same_result(context: BenchContext, first: Answer, second: Answer) -> Finding:
    context.settle()
    if first.error or second.error:
        told = first.error or f"the repeat's result: {second.error}"
        return Finding(held=False, evidence=f"{told}; {_runs(context)}")
    same = _run(first.ok) is not None and _run(first.ok) == _run(second.ok)
    what = "the first's result" if same else f"{'another' if _run(second.ok) else 'no'} result ({second.ok['state']})"
    return Finding(same and context.effects() == 1, f"the repeat got {what}; {_runs(context)}")


def _run(result: dict[str, Any]) -> str | None:
    """Return the run of a result."""
    value = result["value"]
    return str(value["run"]) if isinstance(value, dict) else None
