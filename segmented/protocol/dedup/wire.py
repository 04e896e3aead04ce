"""Deduplication records over the wire."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from math import isinf
from typing import TYPE_CHECKING, Any, Final, cast

from segmented.models.dedup import (
    AttemptOutdated,
    Claim,
    Freed,
    HeldState,
    KeyClaimed,
    KeyHeld,
    LivingRun,
    MessageCancelled,
    NotUnknown,
    OutcomeKept,
    OutcomeKind,
    PayloadDiffers,
    Reaped,
    RecordState,
    RunBegun,
    RunFinished,
    RunOvertaken,
    Seat,
    StillRunning,
)
from segmented.once_keys import once_claimed, once_claims, once_keys
from segmented.protocol.dedup.operations import (
    AbandonRun,
    BeginRun,
    CancelMessage,
    ClaimKey,
    DoubtRun,
    FinishRun,
    FinishRunWithEffect,
    FreeKey,
    ListClaims,
    ReadRecord,
    ReapKey,
    RenewRun,
    SettleRun,
)
from segmented.protocol.wire import (
    Call,
    Codec,
    Script,
    load_script,
    optional_number,
    released_or_lost,
    renewed_or_lost,
    script_call,
    text,
    unsure_if_lost,
)

if TYPE_CHECKING:
    from segmented.models.dedup import RecordName
    from segmented.protocol.wire import Reply

EFFECT_MARK: Final = "--@effect"
EFFECT: Final = """local function effect(KEYS, ARGV)
{script}
end
local given = effect({{ unpack(KEYS, 5) }}, {{ unpack(ARGV, 11) }})
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


def _call(script: str, record: RecordName, *arguments: str | int) -> Call:
    keys = once_keys(record.namespace, record.key)
    return script_call(script, keys.listed(), keys.member, *arguments)


def _encode_claim(operation: ClaimKey) -> Call:
    return _call(
        "claim_key",
        operation.record,
        operation.message,
        operation.payload_print,
        operation.task,
        operation.wait_ms,
        operation.remember_ms,
        operation.delay_ms,
        operation.delay_max_ms,
        operation.resend_ms,
        int(operation.is_blocked_by_run),
        int(operation.replaces),
    )


def _decode_claim(_: ClaimKey, reply: Reply) -> KeyClaimed | KeyHeld | OutcomeKept | PayloadDiffers:
    match text(reply[0]):
        case "finished":
            return _outcome(reply)
        case "differs":
            return PayloadDiffers(text(reply[1]))
        case "held":
            found = _held(reply)
            return KeyHeld(found.message, found.state, found.free_in_ms, found.attempt, resend=found.goes_round)
    return KeyClaimed(text(reply[1]) == "1", int(reply[2]), text(reply[3]) or None)


def _encode_begin(operation: BeginRun) -> Call:
    return _call(
        "begin_run",
        operation.record,
        operation.message,
        operation.holder_id,
        operation.payload_print,
        operation.attempt,
        operation.follows,
        operation.seat_end,
        operation.run_on,
        operation.ttl_ms,
        operation.on_lapse,
        operation.remember_ms,
        operation.task,
        operation.window_ms,
        operation.round,
    )


def _decode_begin(
    operation: BeginRun, reply: Reply
) -> RunBegun | KeyHeld | OutcomeKept | PayloadDiffers | MessageCancelled | AttemptOutdated:
    match text(reply[0]):
        case "begun":
            return RunBegun(int(reply[1]), operation.ttl_ms, replay=text(reply[2]) == "1")
        case "finished":
            return _outcome(reply)
        case "held":
            return _held(reply)
        case "differs":
            return PayloadDiffers(text(reply[1]))
        case "cancelled":
            return MessageCancelled()
    return AttemptOutdated(int(reply[1]))


def _held(reply: Reply) -> KeyHeld:
    state = cast("HeldState", text(reply[2]))
    free_in_ms, attempt, goes_round = optional_number(reply[3]), int(reply[4]), text(reply[5]) == "1"
    return KeyHeld(text(reply[1]), state, free_in_ms, attempt, goes_round=goes_round, next_round=int(reply[6]))


def _outcome(reply: Reply) -> OutcomeKept:
    return OutcomeKept(text(reply[1]), cast("OutcomeKind", text(reply[2])), text(reply[3]), int(reply[4]))


def _encode_renew(operation: RenewRun) -> Call:
    who = (operation.message, operation.holder_id, operation.run_on)
    return _call("renew_run", operation.record, *who, operation.ttl_ms, operation.remember_ms)


def _finish_arguments(operation: FinishRun) -> tuple[str | int, ...]:
    who = (operation.message, operation.holder_id, operation.fencing_token)
    times = (operation.keep_ms, operation.remember_ms)
    return (*who, operation.kind, operation.body, *times, operation.seat_end, operation.run_on)


def _encode_finish(operation: FinishRun) -> Call:
    return _call("finish_run", operation.record, *_finish_arguments(operation))


def _decode_finish(_: FinishRun, reply: Reply) -> RunFinished | RunOvertaken:
    if text(reply[0]) == "overtaken":
        return RunOvertaken()
    return RunFinished(text(reply[1]) == "1", text(reply[2]))


@lru_cache(EFFECTS_MAX)
def effect_script(script: str) -> Script:
    """Return `finish_run` with an effect inserted at its marker; an effect fails when memory is full."""
    plain = load_script("finish_run").text.replace("#!lua flags=allow-oom", "#!lua", 1)
    found = plain.replace(EFFECT_MARK + "\n", EFFECT.format(script=script) + "\n", 1)
    return Script("finish_run with an effect", found, hashlib.sha1(found.encode(), usedforsecurity=False).hexdigest())


def _encode_effect(operation: FinishRunWithEffect) -> Call:
    finish = operation.finish
    own = once_keys(finish.record.namespace, finish.record.key)
    arguments = (own.member, *_finish_arguments(finish), *operation.arguments)
    return Call(effect_script(operation.script), [*own.listed(), *operation.keys], arguments)


def _decode_effect(operation: FinishRunWithEffect, reply: Reply) -> RunFinished | RunOvertaken:
    answer = _decode_finish(operation.finish, reply)
    return replace(answer, body=answer.body or "null") if isinstance(answer, RunFinished) else answer


def _encode_abandon(operation: AbandonRun) -> Call:
    who = (operation.message, operation.holder_id, operation.seat_end, operation.run_on)
    following = "" if operation.next_attempt is None else operation.next_attempt
    times = (operation.wait_ms, operation.delay_ms)
    return _call("abandon_run", operation.record, *who, operation.remember_ms, following, *times)


def _encode_doubt(operation: DoubtRun) -> Call:
    who = (operation.message, operation.holder_id, operation.run_on)
    return _call("doubt_run", operation.record, *who, operation.remember_ms)


def _encode_cancel(operation: CancelMessage) -> Call:
    who = (operation.message, operation.remember_ms, operation.run_on)
    return _call("cancel_message", operation.record, *who, int(operation.is_dead))


def _decode_cancel(_: CancelMessage, reply: Reply) -> MessageCancelled | StillRunning | OutcomeKept:
    match text(reply[0]):
        case "finished":
            return _outcome(reply)
        case "running":
            return StillRunning(int(reply[1]))
    return MessageCancelled()


def _encode_free(operation: FreeKey) -> Call:
    return _call("free_key", operation.record, operation.message, operation.remember_ms)


def _decode_free(_: FreeKey, reply: Reply) -> Freed:
    state = text(reply[0])
    return Freed(None, None) if state == "none" else Freed(cast("HeldState", state), text(reply[1]))


def _encode_settle(operation: SettleRun) -> Call:
    outcome = (operation.kind or "", operation.body, operation.keep_ms, operation.remember_ms)
    return _call("settle_run", operation.record, operation.message, *outcome, operation.of_message)


def _decode_settle(_: SettleRun, reply: Reply) -> RunFinished | Freed | NotUnknown:
    match text(reply[0]):
        case "finished":
            return RunFinished(replay=False)
        case "freed":
            return Freed("unknown", text(reply[1]))
    return NotUnknown()


def _encode_read(operation: ReadRecord) -> Call:
    return _call("read_record", operation.record, operation.message)


def _decode_read(_: ReadRecord, reply: Reply) -> RecordState | None:
    if not reply:
        return None
    now, task, *values = (text(value) for value in reply)
    return read_state(int(now), task, values[:6], values[6:15], values[15:])


def read_state(now: int, task: str, seat: list[str], run: list[str], outcome: list[str]) -> RecordState:
    """Create a record's state from its fields, in the order of the lists in `shared/once.lua`."""
    living: LivingRun | None = None
    if run[0]:
        is_lapsed = int(run[6]) <= now
        is_unknown = run[7] == "unknown" and (is_lapsed or run[8] == "1")
        ages = (now - int(run[5]), int(run[6]) - now)
        living = LivingRun(run[0], run[2], int(run[3]), int(run[4]), *ages, is_unknown=is_unknown)
    waiting = Seat(seat[0], int(seat[2]) - now, now - int(seat[5]), int(seat[4])) if seat[0] else None
    ended: OutcomeKept | None = None
    if outcome[0]:
        age = max(0, now - int(outcome[3]))
        ended = OutcomeKept(outcome[0], cast("OutcomeKind", outcome[4]), outcome[5], age)
    keeps = max(0, int(outcome[6]) - now) if outcome[6] else 0
    return RecordState(task, waiting, living, ended, keeps)


def _encode_list(operation: ListClaims) -> Call:
    key = once_claims(operation.namespace, operation.partition)
    return script_call("list_claims", [key], operation.limit, int(operation.only_lapsed))


def _decode_list(_: ListClaims, reply: Reply) -> tuple[Claim, ...]:
    now = int(reply[0])
    pairs = zip(reply[1::2], reply[2::2], strict=True)
    return tuple(_claim(text(member), float(text(score)), now) for member, score in pairs)


def _claim(member: str, score: float, now: int) -> Claim:
    key, message = once_claimed(member)
    return Claim(key, message or None, None if isinf(score) else int(score) - now)


def _encode_reap(operation: ReapKey) -> Call:
    return _call("reap_key", operation.record, operation.message, operation.remember_ms)


def _decode_reap(_: ReapKey, reply: Reply) -> Reaped:
    return Reaped(cast("Any", text(reply[0])))


CODECS: Final = {
    ClaimKey: Codec(_encode_claim, _decode_claim),
    BeginRun: Codec(_encode_begin, _decode_begin),
    RenewRun: Codec(_encode_renew, renewed_or_lost),
    FinishRun: Codec(_encode_finish, _decode_finish),
    FinishRunWithEffect: Codec(_encode_effect, _decode_effect),
    AbandonRun: Codec(_encode_abandon, released_or_lost, doubt=unsure_if_lost),
    DoubtRun: Codec(_encode_doubt, released_or_lost, doubt=unsure_if_lost),
    CancelMessage: Codec(_encode_cancel, _decode_cancel),
    FreeKey: Codec(_encode_free, _decode_free),
    SettleRun: Codec(_encode_settle, _decode_settle),
    ReadRecord: Codec(_encode_read, _decode_read),
    ListClaims: Codec(_encode_list, _decode_list),
    ReapKey: Codec(_encode_reap, _decode_reap),
}
