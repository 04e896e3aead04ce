"""Say in sentences what is known about a key. Results are never shown, as they may be confidential."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.operator import HOLDER_SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models.dedup import LivingRun, OutcomeKept, RecordName, RecordState, Seat

KINDS: Final = {
    "value": "a result",
    "effect": "a result in JSON, of an effect in the store or settled",
    "error": "a failure",
    "unkept": "a note that the result could not be kept",
    "cancelled": "a note that the message was cancelled",
}


def seconds(milliseconds: int | None) -> str:
    """Return a time for a reader."""
    return "no end" if milliseconds is None else f"{milliseconds / 1000:.3f} s"


def sentences(record: RecordName, state: RecordState) -> Iterator[str]:
    """Yield sentences: the key's holder, its kept outcome, and what a repeat would get now."""
    task = f" of {_shown(state.task)}" if state.task else ""
    yield f"key {_shown(record.key)}{task}, in namespace {_shown(record.namespace)}"
    if state.run is not None:
        yield _of_run(state.run)
    if state.seat is not None:
        yield _of_seat(state.seat)
    if state.outcome is not None:
        yield _of_outcome(state.outcome, state.keeps_ms)
    if state.run is None and state.seat is None and state.outcome is None:
        yield "nobody holds it, and no outcome is kept"
    yield f"a repeat now {_fate(state)}"


def as_json(record: RecordName, state: RecordState) -> dict[str, Any]:
    """Return the same as JSON: with holder ids cut off, and without results."""
    found = asdict(state)
    if state.run is not None:
        found["run"]["holder_id_start"] = found["run"].pop("holder_id")[:HOLDER_SHOWN]
    if state.outcome is not None:
        found["outcome"]["body_length"] = len(found["outcome"].pop("body"))
    return asdict(record) | found | {"repeat": _fate(state)}


def _of_run(run: LivingRun) -> str:
    who = f"message {_shown(run.message)}, attempt {run.attempt}, holder {run.holder_id[:HOLDER_SHOWN]}"
    token = f"fencing token {run.fencing_token}"
    if run.is_unknown:
        ended = "its holder died, or did not learn, so it is not known whether the work was done"
        return f"unknown: {who}, begun {seconds(run.begun_ago_ms)} ago; {ended} ({token})"
    if run.ends_in_ms <= 0:
        return f"lapsed: {who}, begun {seconds(run.begun_ago_ms)} ago, died {seconds(-run.ends_in_ms)} ago ({token})"
    lasts = f"for {seconds(run.ends_in_ms)} unless it is renewed"
    return f"running: {who}, since {seconds(run.begun_ago_ms)}, {lasts} ({token})"


def _of_seat(seat: Seat) -> str:
    who = f"message {_shown(seat.message)}, attempt {seat.attempt}"
    sent = f"sent {seconds(seat.sent_ago_ms)} ago" if seat.sent_ago_ms >= 0 else f"due in {seconds(-seat.sent_ago_ms)}"
    if seat.ends_in_ms <= 0:
        return f"lapsed: {who}, {sent}, was not begun in time, {seconds(-seat.ends_in_ms)} ago"
    return f"waiting: {who}, {sent}, holds its place for {seconds(seat.ends_in_ms)}"


def _of_outcome(outcome: OutcomeKept, keeps_ms: int) -> str:
    what = KINDS[outcome.kind]
    lasts = f"given to repeats for {seconds(keeps_ms)} more" if keeps_ms > 0 else "not given to repeats any more"
    return f"done: message {_shown(outcome.message)} ended {seconds(outcome.age_ms)} ago; {what} is kept, {lasts}"


def _fate(state: RecordState) -> str:
    """Return what a repeat would get, in the order in which the store decides."""
    if state.outcome is not None and state.keeps_ms > 0:
        return "gets the kept outcome and does not run"
    run, seat = state.run, state.seat
    if run is not None and run.is_unknown:
        return "is refused until somebody settles the key: see segmented dedup settle"
    if run is not None and run.ends_in_ms > 0:
        return "learns that the key is in flight, or waits for it, as its policy says"
    if seat is not None and seat.ends_in_ms > 0:
        return "learns that a waiting message has the key, as its policy says"
    return "runs"


def _shown(name: str) -> str:
    """Return a name, quoted if it has terminal control characters: any program may have written it."""
    return name if name.isprintable() else repr(name)
