"""Operations on deduplication records. All are safe to run twice; times are those of the store's clock."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from math import isinf
from typing import Final, cast

from segmented.keys import once_claimed, once_claims, once_keys, once_namespace, once_pattern
from segmented.models.dedup import (
    AttemptOutdated,
    Claim,
    Freed,
    HeldState,
    KeyClaimed,
    KeyHeld,
    LivingRun,
    MessageCancelled,
    MessageEarly,
    NamespacesPage,
    NotUnknown,
    OnLapse,
    OutcomeKept,
    OutcomeKind,
    PayloadDiffers,
    RecordName,
    RecordState,
    RunBegun,
    RunFinished,
    RunOn,
    RunOvertaken,
    Seat,
    SeatEnd,
    StillRunning,
)
from segmented.protocol.base import LeaseRelease, LeaseRenewal, Operation, Release
from segmented.protocol.operator import keys_page
from segmented.protocol.wire import Call, Reply, Script, load_script, optional_number, readable, script_call, text
from segmented.values import light_dataclass

DAY_MS: Final = 86_400_000
EFFECT_MARK: Final = "--@effect"
EFFECT: Final = """local function effect(KEYS, ARGV)
{script}
end
local given = effect({{ unpack(KEYS, 7) }}, {{ unpack(ARGV, 10) }})
local has_form, form = pcall(cjson.encode, given)
if has_form and string.find(form, '[\\128-\\255]') then -- bytes that are not valid UTF-8 could never be read
  local rest, tail = form, '[\\128-\\191]'
  for _, character in ipairs({{
    '[\\194-\\223]' .. tail, '\\224[\\160-\\191]' .. tail, '[\\225-\\236\\238\\239]' .. tail .. tail,
    '\\237[\\128-\\159]' .. tail, '\\240[\\144-\\191]' .. tail .. tail, '[\\241-\\243]' .. tail .. tail .. tail,
    '\\244[\\128-\\143]' .. tail .. tail,
  }}) do
    rest = string.gsub(rest, character, ' ')
  end
  if string.find(rest, '[\\128-\\255]') then
    has_form, form = false, 'the effect returned bytes that are not valid UTF-8'
  end
end
kind, body = has_form and 'effect' or 'unkept', form"""
"""Nothing may fail after the effect, because it is already done."""
EFFECTS_MAX: Final = 256
"""How many effect scripts are cached with their text and digest."""
InTheWay = KeyHeld | OutcomeKept | PayloadDiffers
"""Why a message gets no seat, or does not begin: another one has the key, or an outcome is kept."""
BeginAnswer = RunBegun | InTheWay | MessageCancelled | AttemptOutdated | MessageEarly


@light_dataclass(frozen=True, slots=True)
class ClaimKey(Operation[KeyClaimed | InTheWay]):
    """Take the seat of a key for a message that is about to be published, for `wait_ms` beyond its `delay_ms`."""

    record: RecordName
    message: str
    payload_print: str
    """Fingerprint of the payload; compared if both sides have one."""
    task: str
    wait_ms: int
    remember_ms: int
    """How long a record outlives its last use, so that late copies are recognised."""
    delay_ms: int = 0
    delay_max_ms: int = 0
    """With a `call`: maximum time from the first claim of the seat to the due time; 0: no limit."""
    resend_ms: int = 0
    """After this time, a repeat sends a waiting message again; 0: never."""
    is_blocked_by_run: bool = True
    """Whether the key is taken while one of its messages runs."""
    call_text: str = ""
    """The arguments, if a message that waits is to run with those of the latest call, `delay_ms` after it."""
    expires_ms: int = 0
    """Time until the call expires; 0: never. A message that waits for several calls expires with the last of them."""
    text: str = ""
    """What is published if the message is lost; "" if that has no form."""

    def call(self) -> Call:
        what = (self.message, self.payload_print, self.task)
        times = (self.wait_ms, self.remember_ms, self.delay_ms, self.delay_max_ms, self.resend_ms)
        how = (int(self.is_blocked_by_run), self.call_text, self.expires_ms, self.text)
        return _call("claim_key", self.record, *what, *times, *how)

    def answer(self, reply: Reply) -> KeyClaimed | InTheWay:
        if text(reply[0]) == "claimed":
            return KeyClaimed(text(reply[1]) == "1", int(reply[2]))
        return _in_the_way(reply)


@light_dataclass(frozen=True, slots=True)
class BeginRun(Operation[BeginAnswer]):
    """Begin to process a message, under a lease of `ttl_ms`."""

    record: RecordName
    message: str
    holder_id: str
    payload_print: str
    task: str
    ttl_ms: int
    remember_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"
    on_lapse: OnLapse = "again"
    attempt: int = 0
    """The message's attempt, from 0: a later one ends an earlier one, an earlier one is refused."""
    follows: str = ""
    """The message that this one repeats, if it was published as a repeat."""
    round: int = 0
    """The number with which this copy was sent again: the `next_round` of the answer that requested it."""
    at_once: int = 0
    """With `run_on` message: maximum number of messages of the key that run at a time; 0: no limit."""
    text: str = ""
    """With `at_once`: what a worker publishes to call this message when it is its turn; "" if it cannot be called."""
    resend_ms: int = 0
    """After this time, whoever meets a waiting message sends it again; 0: never."""

    def call(self) -> Call:
        who = (self.message, self.holder_id, self.payload_print, self.attempt, self.follows)
        run = (self.seat_end, self.run_on, self.ttl_ms, self.on_lapse, self.remember_ms, self.task)
        waiting = (self.at_once, self.round, self.text, self.resend_ms)
        return _call("begin_run", self.record, *who, *run, *waiting)

    def answer(self, reply: Reply) -> BeginAnswer:
        match text(reply[0]):
            case "begun":
                return RunBegun(
                    int(reply[1]),
                    self.ttl_ms,
                    replay=text(reply[2]) == "1",
                    call=text(reply[3]),
                    next_text=text(reply[4]),
                    after=text(reply[5]),
                )
            case "early":
                return MessageEarly(int(reply[1]))
            case "cancelled":
                return MessageCancelled()
            case "outdated":
                return AttemptOutdated(int(reply[1]))
        return _in_the_way(reply)


@light_dataclass(frozen=True, slots=True)
class RenewRun(LeaseRenewal):
    """Extend the run's lease to `ttl_ms` from now, if it is alive and the holder's."""

    record: RecordName
    message: str
    holder_id: str
    ttl_ms: int
    remember_ms: int
    run_on: RunOn = "key"

    def call(self) -> Call:
        return _call("renew_run", self.record, self.message, self.holder_id, self.run_on, self.ttl_ms, self.remember_ms)


@light_dataclass(frozen=True, slots=True)
class FinishRun(Release[RunFinished | RunOvertaken]):
    """Keep the outcome of a run and end it. Publishers get it for `keep_ms`, copies of the message for `remember_ms`.

    A run with an expired lease can still finish, unless another one has begun. With `run_on` message, no publisher gets
    the outcome.
    """

    record: RecordName
    message: str
    holder_id: str
    fencing_token: int
    kind: OutcomeKind
    body: str
    keep_ms: int
    remember_ms: int
    run_on: RunOn = "key"

    def call(self) -> Call:
        return _call("finish_run", self.record, *self.sent())

    def sent(self) -> tuple[str | int, ...]:
        """Return the arguments of its script."""
        who, outcome = (self.message, self.holder_id, self.fencing_token), (self.kind, self.body)
        return (*who, *outcome, self.keep_ms, self.remember_ms, self.run_on)

    def answer(self, reply: Reply) -> RunFinished | RunOvertaken:
        if text(reply[0]) == "overtaken":
            return RunOvertaken()
        return RunFinished(text(reply[1]) == "1", text(reply[2]), text(reply[3]))


@light_dataclass(frozen=True, slots=True)
class FinishRunWithEffect(Release[RunFinished | RunOvertaken]):
    """Like `FinishRun`, and run an effect in the same script: the outcome is the result of the effect's Lua, as JSON.

    `script` is the body of a Lua function with its own `KEYS` and `ARGV`. It runs once or not at all. If it fails, the
    record does not change, but earlier writes of the effect stay. No result is kept as `null`, and a result that JSON
    cannot represent as `unkept`. Numbers keep 14 digits: return longer ones as text.
    """

    finish: FinishRun
    script: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]

    def call(self) -> Call:
        finish = self.finish
        own = once_keys(finish.record.namespace, finish.record.key)
        arguments = (own.member, *finish.sent(), *self.arguments)
        return Call(effect_script(self.script), [*own.listed(), *self.keys], arguments)

    def answer(self, reply: Reply) -> RunFinished | RunOvertaken:
        answer = self.finish.answer(reply)
        return replace(answer, body=answer.body or "null") if isinstance(answer, RunFinished) else answer


@light_dataclass(frozen=True, slots=True)
class AbandonRun(LeaseRelease):
    """End a run without an outcome. With a `next_attempt`, the message keeps its claim until that attempt arrives."""

    record: RecordName
    message: str
    holder_id: str
    remember_ms: int
    seat_end: SeatEnd = "end"
    run_on: RunOn = "key"
    next_attempt: int | None = None
    wait_ms: int = 0
    delay_ms: int = 0
    expires_ms: int = 0
    text: str = ""
    """As in `ClaimKey`, of the next attempt."""

    def call(self) -> Call:
        who = (self.message, self.holder_id, self.seat_end, self.run_on)
        times = (self.wait_ms, self.delay_ms, self.expires_ms)
        return _call("abandon_run", self.record, *who, self.remember_ms, self.next_attempt, *times, self.text)


@light_dataclass(frozen=True, slots=True)
class DoubtRun(LeaseRelease):
    """End a run in the unknown state: its holder gives up without knowing whether the work was done.

    The run then counts as an expired one with `on_lapse` unknown: nothing begins until it is settled or freed.
    """

    record: RecordName
    message: str
    holder_id: str
    remember_ms: int
    run_on: RunOn = "key"

    def call(self) -> Call:
        return _call("doubt_run", self.record, self.message, self.holder_id, self.run_on, self.remember_ms)


@light_dataclass(frozen=True, slots=True)
class CancelMessage(Operation[MessageCancelled | StillRunning | OutcomeKept]):
    """Make sure that a message never begins, and free its claims. `is_dead`: its run is known to be over.

    An unknown run stays unknown. With `is_dead` this includes a run that becomes unknown when it expires: cancelling
    the message does not tell whether the work was done.
    """

    record: RecordName
    message: str
    remember_ms: int
    run_on: RunOn = "key"
    is_dead: bool = False

    def call(self) -> Call:
        return _call("cancel_message", self.record, self.message, self.remember_ms, self.run_on, int(self.is_dead))

    def answer(self, reply: Reply) -> MessageCancelled | StillRunning | OutcomeKept:
        match text(reply[0]):
            case "finished":
                return _outcome(reply)
            case "running":
                return StillRunning(int(reply[1]))
        return MessageCancelled()


@light_dataclass(frozen=True, slots=True)
class FreeKey(Operation[Freed]):
    """End the claim on a key, and stop giving its outcome to repeats. A running holder is fenced.

    A fenced holder cannot keep its outcome. A message that has ended stays ended: for `remember_ms`, its late copies,
    and repeats published before that have not begun, still find its outcome. With a `message`, whose run blocks only
    its own copies, end that run.
    """

    record: RecordName
    message: str = ""
    remember_ms: int = DAY_MS

    def call(self) -> Call:
        return _call("free_key", self.record, self.message, self.remember_ms)

    def answer(self, reply: Reply) -> Freed:
        state = text(reply[0])
        return Freed(None, None) if state == "none" else Freed(cast("HeldState", state), text(reply[1]))


@light_dataclass(frozen=True, slots=True)
class SettleRun(Operation[RunFinished | Freed | NotUnknown]):
    """Settle a run in the unknown state: with this outcome or, without a kind, as never done.

    With a `message`, settle that message's run, otherwise the key's. A holder that returns later is overtaken.
    """

    record: RecordName
    remember_ms: int
    kind: OutcomeKind | None
    body: str = ""
    keep_ms: int = 0
    message: str = ""
    of_message: str = ""
    """Settle only if the run is of this message, since the caller does not know about a later one."""

    def call(self) -> Call:
        outcome = (self.kind, self.body, self.keep_ms, self.remember_ms)
        return _call("settle_run", self.record, self.message, *outcome, self.of_message)

    def answer(self, reply: Reply) -> RunFinished | Freed | NotUnknown:
        match text(reply[0]):
            case "finished":
                return RunFinished(replay=False)
            case "freed":
                return Freed("unknown", text(reply[1]))
        return NotUnknown()


@light_dataclass(frozen=True, slots=True)
class CallNext(Operation[str]):
    """Return what to publish so that the next message that waits for a turn arrives; "" for none."""

    record: RecordName

    def call(self) -> Call:
        return _call("call_next", self.record)

    def answer(self, reply: Reply) -> str:
        return text(reply[0])


@light_dataclass(frozen=True, slots=True)
class ReadRecord(Operation[RecordState | None]):
    """Read the full state of a key or, if given, of one message alone."""

    record: RecordName
    message: str = ""

    def call(self) -> Call:
        return _call("read_record", self.record, self.message)

    def answer(self, reply: Reply) -> RecordState | None:
        if not reply:
            return None
        now, task, *values = (text(value) for value in reply)
        return read_state(int(now), task, values[:10], values[10:20], values[20:])


@light_dataclass(frozen=True, slots=True)
class ListClaims(Operation[tuple[Claim, ...]]):
    """List held keys of one partition, the earliest end first."""

    namespace: str
    partition: int
    limit: int

    def call(self) -> Call:
        key = once_claims(self.namespace, self.partition)
        return script_call("list_claims", [key], self.limit)

    def answer(self, reply: Reply) -> tuple[Claim, ...]:
        now = int(reply[0])
        pairs = zip(reply[1::2], reply[2::2], strict=True)
        return tuple(_claim(text(member), float(text(score)), now) for member, score in pairs)


@light_dataclass(frozen=True, slots=True)
class ListNamespaces(Operation[NamespacesPage]):
    """Return some namespaces with held deduplication keys, or with a record of `key`, and the next cursor.

    The cursor is 0 at the end. A namespace may appear twice. On a cluster, the master that serves `slot` answers.
    """

    key: str = ""
    cursor: int = 0
    slot: int | None = None

    def call(self) -> Call:
        return keys_page(once_pattern(self.key), self.cursor, self.slot)

    def answer(self, reply: Reply) -> NamespacesPage:
        found = {once_namespace(readable(key)) for key in reply[1]}
        return NamespacesPage(tuple(sorted(name for name in found if name is not None)), int(text(reply[0])))


def _call(script: str, record: RecordName, *arguments: str | int | None) -> Call:
    keys = once_keys(record.namespace, record.key)
    return script_call(script, keys.listed(), keys.member, *arguments)


def _in_the_way(reply: Reply) -> InTheWay:
    match text(reply[0]):
        case "finished":
            return _outcome(reply)
        case "differs":
            return PayloadDiffers(text(reply[1]), text(reply[2]), is_kept=text(reply[3]) == "1")
    return KeyHeld(
        text(reply[1]),
        cast("HeldState", text(reply[2])),
        optional_number(reply[3]),
        int(reply[4]),
        goes_round=text(reply[5]) == "1",
        next_round=int(reply[6]),
        wait_ms=int(reply[7]),
        text=text(reply[8]),
        resend=text(reply[9]) == "1",
    )


def _outcome(reply: Reply) -> OutcomeKept:
    return OutcomeKept(text(reply[1]), cast("OutcomeKind", text(reply[2])), text(reply[3]), int(reply[4]))


@lru_cache(EFFECTS_MAX)
def effect_script(script: str) -> Script:
    """Return `finish_run` with an effect inserted at its marker; an effect fails when memory is full."""
    plain = load_script("finish_run").text.replace("#!lua flags=allow-oom", "#!lua", 1)
    found = plain.replace(EFFECT_MARK + "\n", EFFECT.format(script=script) + "\n", 1)
    return Script("finish_run with an effect", found, hashlib.sha1(found.encode(), usedforsecurity=False).hexdigest())


def read_state(now: int, task: str, seat: list[str], run: list[str], outcome: list[str]) -> RecordState:
    """Create a record's state from its fields, in the order of the lists in `shared/once.lua`."""
    living: LivingRun | None = None
    if run[0]:
        is_lapsed = int(run[6]) <= now
        is_unknown = run[7] == "unknown" and (is_lapsed or run[8] == "1")
        ages = (now - int(run[5]), int(run[6]) - now)
        living = LivingRun(run[0], run[2], int(run[3]), int(run[4]), *ages, is_unknown=is_unknown)
    is_outlived = seat[8] == "0" or int(seat[8] or 0) > now
    waiting = Seat(seat[0], int(seat[2]) - now, now - int(seat[5]), int(seat[4]), is_outlived) if seat[0] else None
    ended: OutcomeKept | None = None
    if outcome[0]:
        age = max(0, now - int(outcome[3]))
        ended = OutcomeKept(outcome[0], cast("OutcomeKind", outcome[4]), outcome[5], age)
    keeps = max(0, int(outcome[6]) - now) if outcome[6] else 0
    return RecordState(task, waiting, living, ended, keeps)


def _claim(member: str, score: float, now: int) -> Claim:
    key, message = once_claimed(member)
    return Claim(key, message or None, None if isinf(score) else int(score) - now)
