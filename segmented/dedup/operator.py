"""For operators: list the held keys, show or explain one, free it, or settle an unknown run.

Results are never shown, as they may be confidential.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from segmented.dedup.identity import explicit_key
from segmented.dedup.terms import DAY, checked_namespace
from segmented.errors import InvalidInput, SegmentedError
from segmented.keys import ONCE_PARTITIONS
from segmented.locks.durations import checked_name, is_whole, milliseconds
from segmented.models.dedup import NotUnknown, RecordName
from segmented.plans import Plan, perform, run_sync
from segmented.protocol import FreeKey, ListClaims, ListMasters, ListNamespaces, ReadRecord, SettleRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.models.dedup import Claim, Freed, LivingRun, OutcomeKept, RecordState, Seat
    from segmented.plans.drivers import Store
    from segmented.protocol import Operation

State = Literal["waiting", "running", "unknown", "lapsed"]
"""`lapsed`: the holder died, or the message did not arrive in time. It blocks nobody."""
LIMIT: Final = 1_000
LOOKED_AT_MAX: Final = 10_000
"""Maximum number of claims of one partition to check when only one state or task is wanted."""
READ_AT_ONCE: Final = 200
BATCH_SECONDS: Final = 30.0
AnswerT = TypeVar("AnswerT")
HOLDER_SHOWN: Final = 8
"""Digits of a holder id to show; the whole id would allow ending its run."""
KINDS: Final = {
    "value": "a result",
    "effect": "a result in JSON, of an effect in the store or settled",
    "error": "a failure",
    "unkept": "a note that the result could not be kept",
    "cancelled": "a note that the message was cancelled",
}


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A held key and its holder."""

    namespace: str
    key: str
    state: State
    task: str
    message: str
    attempt: int
    holder_id_start: str
    """Empty for a waiting message."""
    ends_in_ms: int | None
    """Milliseconds until it ends unless renewed; None if it does not end on its own."""
    age_ms: int
    """Milliseconds since the run began, or the message was sent; negative while it is not due."""


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """Keys that were held while the server was searched, in the order in which they end."""

    keys: tuple[HeldKey, ...]
    is_complete: bool
    """False if there were more keys than asked for, or more than are checked."""


def namespaces_plan(key: str = "") -> Plan[tuple[str, ...]]:
    """Return the namespaces in which a key is held, or with a `key` those that know it. Searches every master."""
    found: set[str] = set()
    masters = yield from perform(ListMasters())
    slots: list[int | None] = [ranges[0][0] for ranges in masters]
    for slot in slots or [None]:
        cursor = 0
        while True:
            page = yield from perform(ListNamespaces(key, cursor, slot))
            found.update(page.names)
            cursor = page.cursor
            if cursor == 0:
                break
    return tuple(sorted(found))


def list_keys(
    store: Store,
    namespace: str | None = None,
    *,
    state: State | None = None,
    task: str | None = None,
    limit: int = LIMIT,
) -> HeldKeys:
    """Return held keys of one namespace or all, in one state or any, of one task or all: at most `limit`.

    They are read one by one, so this is not a snapshot of one moment.
    """
    if not is_whole(limit) or limit < 1:
        raise InvalidInput(f"the limit of {limit!r} keys is wrong: give a whole number of 1 or more")
    names = run_sync(namespaces_plan(), store) if namespace is None else (checked_namespace(namespace),)
    is_whole_list = state is None and task is None
    seen_max = limit + 1 if is_whole_list else LOOKED_AT_MAX
    found: list[HeldKey] = []
    is_complete = True
    for name in names:
        asked = tuple(ListClaims(name, partition, seen_max) for partition in range(ONCE_PARTITIONS))
        pages = _answers(store, asked)
        claims = sorted((claim for page in pages for claim in page), key=_end_of)
        is_cut = any(len(page) == seen_max for page in pages) or (is_whole_list and len(claims) > seen_max)
        is_complete = is_complete and not is_cut
        found += _read(store, name, claims[:seen_max] if is_whole_list else claims)
    wanted = sorted((one for one in found if state in {None, one.state} and task in {None, one.task}), key=_end_of)
    return HeldKeys(tuple(wanted[:limit]), is_complete=is_complete and len(wanted) <= limit)


def find(
    store: Store, key: str, *, namespace: str | None = None, is_given: bool = False, scope: str | None = None
) -> RecordName:
    """Find the record of a key as the list shows it or, with `is_given`, as a caller gave it under `scope`.

    Without a namespace all are searched. Without a scope, that of a `Dedup` is tried, which is its namespace.
    Raises InvalidInput if no record or more than one is found.
    """
    if scope is not None and not is_given:
        raise InvalidInput(f"a scope belongs to a key that was given by a caller; {key!r} is that of a record")
    used_under = namespace if scope is None else scope
    if used_under is None and is_given:
        raise InvalidInput(f"the given key {key!r} may have been used anywhere: give its namespace or its scope")
    if namespace is not None:
        namespace = checked_namespace(namespace)
    name = explicit_key(used_under or "", key) if is_given else checked_name(key, "a record")
    known = run_sync(namespaces_plan(name), store) if namespace is None else (namespace,)
    found = [RecordName(one, name) for one in known]
    states = _answers(store, tuple(ReadRecord(record) for record in found))
    living = [record for record, state in zip(found, states, strict=True) if state is not None]
    if len(living) == 1:
        return living[0]
    if living:
        places = ", ".join(f"{record.key} in {record.namespace!r}" for record in living)
        raise InvalidInput(f"key {key!r} stands for several records; give --namespace or --scope: {places}")
    where = "any namespace" if namespace is None else f"namespace {namespace!r}"
    hint = "" if is_given else "; for a key that a caller gave, pass --given"
    raise InvalidInput(f"nothing is known of key {key!r} in {where}: it was never used there, or is forgotten{hint}")


def read(store: Store, record: RecordName, *, message: str = "") -> RecordState | None:
    """Return the state of a record, or of one of its messages."""
    return store.execute(ReadRecord(record, _checked_message(message)))


def free(store: Store, record: RecordName, *, message: str = "") -> Freed:
    """End whatever holds a key and discard its outcome; with a `message`, end that message's own run.

    A holder that is working is not stopped, but it cannot keep its outcome.
    """
    return store.execute(FreeKey(record, _checked_message(message)))


def settle_done(store: Store, record: RecordName, result: Any, *, keep: float = DAY, message: str = "") -> bool:  # noqa: ANN401  # any JSON
    """Settle the unknown run as done, with this result for repeats. Returns False if nothing is unknown."""
    keep_ms = milliseconds(keep, "keep")
    try:
        body = json.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the result of a settlement cannot be written as JSON: {error}") from error
    # An "effect" is read as JSON. The call's own `load` is not known here.
    settling = SettleRun(record, keep_ms, "effect", body, keep_ms=keep_ms, message=_checked_message(message))
    return not isinstance(store.execute(settling), NotUnknown)


def settle_not_done(store: Store, record: RecordName, *, message: str = "") -> bool:
    """Settle the unknown run as not done, so that the next call runs. Returns False if nothing is unknown."""
    settling = SettleRun(record, milliseconds(DAY, "remember"), None, message=_checked_message(message))
    return not isinstance(store.execute(settling), NotUnknown)


def _answers(store: Store, operations: tuple[Operation[AnswerT], ...]) -> list[AnswerT]:
    """Perform operations that do not depend on each other. Raises the first failure."""
    found: list[AnswerT] = []
    for answer in store.execute_many(operations, deadline=store.clock.now() + BATCH_SECONDS) if operations else ():
        if isinstance(answer, SegmentedError):
            raise answer
        found.append(answer)
    return found


def _checked_message(message: str) -> str:
    return checked_name(message, "a message") if message else ""


def _read(store: Store, namespace: str, claims: list[Claim]) -> list[HeldKey]:
    found: list[HeldKey] = []
    for start in range(0, len(claims), READ_AT_ONCE):
        some = claims[start : start + READ_AT_ONCE]
        asked = tuple(ReadRecord(RecordName(namespace, claim.key), claim.message or "") for claim in some)
        for claim, state in zip(some, _answers(store, asked), strict=True):
            if state is not None:
                found += _holders(namespace, claim.key, state)
    return found


def _holders(namespace: str, key: str, state: RecordState) -> Iterable[HeldKey]:
    run, seat = state.run, state.seat
    if run is not None:
        is_live = run.ends_in_ms > 0
        word: State = "unknown" if run.is_unknown else "running" if is_live else "lapsed"
        ends = None if run.is_unknown else run.ends_in_ms
        start = run.holder_id[:HOLDER_SHOWN]
        yield HeldKey(namespace, key, word, state.task, run.message, run.attempt, start, ends, run.begun_ago_ms)
    if seat is not None:
        word = "waiting" if seat.ends_in_ms > 0 else "lapsed"
        ends, age_ms = seat.ends_in_ms, seat.sent_ago_ms
        yield HeldKey(namespace, key, word, state.task, seat.message, seat.attempt, "", ends, age_ms)


def _end_of(held: Claim | HeldKey) -> tuple[float, str]:
    return (inf if held.ends_in_ms is None else held.ends_in_ms, held.key)


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
