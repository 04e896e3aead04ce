"""What is known of a key, in plain sentences. Results are never shown: they may hold what is nobody's business."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from segmented.cli.output import shown
from segmented.dedup.operator import HOLDER_SHOWN, HeldKey
from segmented.models.dedup import LivingRun, OutcomeKept, RecordName, RecordState, Seat

HEADS = ("state", "for", "task", "message", "attempt", "holder", "namespace", "key")
KINDS = {
    "value": "a result",
    "effect": "a result in JSON, of an effect in the store or settled",
    "error": "a failure",
    "unkept": "a note that the result could not be kept",
    "cancelled": "a note that the message was cancelled",
}


def seconds(milliseconds: int | None) -> str:
    """Return a time as it is read."""
    return "no end" if milliseconds is None else f"{milliseconds / 1000:.3f} s"


def row(held: HeldKey) -> tuple[str, ...]:
    """Return one line of the list."""
    ends = held.ends_in_ms
    lasts = f"ended {seconds(-ends)} ago" if ends is not None and ends <= 0 else seconds(ends)
    words = (held.task, held.message, str(held.attempt), held.holder_id_start or "-", held.namespace, held.key)
    return (held.state, lasts, *(shown(word) for word in words))


def sentences(record: RecordName, state: RecordState) -> Iterator[str]:
    """Say who holds a key, what is kept of it, and what would become of a repeat now."""
    task = f" of {shown(state.task)}" if state.task else ""
    yield f"key {shown(record.key)}{task}, in namespace {shown(record.namespace)}"
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
    """Return the same for a program: without the whole of a holder id, and without results."""
    found = asdict(state)
    if state.run is not None:
        found["run"]["holder_id_start"] = found["run"].pop("holder_id")[:HOLDER_SHOWN]
    if state.outcome is not None:
        found["outcome"]["body_length"] = len(found["outcome"].pop("body"))
    return asdict(record) | found | {"repeat": _fate(state)}


def _of_run(run: LivingRun) -> str:
    who = f"message {shown(run.message)}, attempt {run.attempt}, holder {run.holder_id[:HOLDER_SHOWN]}"
    token = f"fencing token {run.fencing_token}"
    if run.is_unknown:
        ended = "its holder died, or did not learn, so it is not known whether the work was done"
        return f"unknown: {who}, begun {seconds(run.begun_ago_ms)} ago; {ended} ({token})"
    if run.ends_in_ms <= 0:
        return f"lapsed: {who}, begun {seconds(run.begun_ago_ms)} ago, died {seconds(-run.ends_in_ms)} ago ({token})"
    lasts = f"for {seconds(run.ends_in_ms)} unless it is renewed"
    return f"running: {who}, since {seconds(run.begun_ago_ms)}, {lasts} ({token})"


def _of_seat(seat: Seat) -> str:
    who = f"message {shown(seat.message)}, attempt {seat.attempt}"
    sent = f"sent {seconds(seat.sent_ago_ms)} ago" if seat.sent_ago_ms >= 0 else f"due in {seconds(-seat.sent_ago_ms)}"
    if seat.ends_in_ms <= 0:
        return f"lapsed: {who}, {sent}, was not begun in time, {seconds(-seat.ends_in_ms)} ago"
    return f"waiting: {who}, {sent}, holds its place for {seconds(seat.ends_in_ms)}"


def _of_outcome(outcome: OutcomeKept, keeps_ms: int) -> str:
    what = KINDS[outcome.kind]
    lasts = f"given to repeats for {seconds(keeps_ms)} more" if keeps_ms > 0 else "not given to repeats any more"
    return f"done: message {shown(outcome.message)} ended {seconds(outcome.age_ms)} ago; {what} is kept, {lasts}"


def _fate(state: RecordState) -> str:
    """Say what would become of a repeat, in the order in which the store decides."""
    if state.outcome is not None and state.keeps_ms > 0:
        return "gets the kept outcome and does not run"
    run, seat = state.run, state.seat
    if run is not None and run.is_unknown:
        return "is refused until somebody settles the key: see segmented dedup settle"
    if run is not None and run.ends_in_ms > 0:
        return "is told that the key is in flight, or waits for it, as its policy says"
    if seat is not None and seat.ends_in_ms > 0:
        return "is told that the key is taken by a message that waits, as its policy says"
    return "runs"
