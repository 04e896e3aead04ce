"""Operations by which a resource distinguishes the current holder from an overtaken one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from segmented.errors import WrongKind
from segmented.keys import fenced_keys, operator_keys
from segmented.models import Standing
from segmented.protocol.base import Operation
from segmented.protocol.wire import Call, Codec, optional_number, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


Mode = Literal["exclusive", "shared"]


@dataclass(frozen=True, slots=True)
class CheckSequencer(Operation[Standing]):
    """Return whether the lock is held now, in this mode, by the generation of this token."""

    name: str
    mode: Mode
    token: int


@dataclass(frozen=True, slots=True)
class FencedSet(Operation[Standing]):
    """Write a plain value under `key`, unless it was already written under a higher token."""

    key: str
    value: str
    token: int


# --- over the wire ---


def _encode_check(operation: CheckSequencer) -> Call:
    return script_call("check_sequencer", operator_keys(operation.name).listed(), operation.token, operation.mode)


def _decode_check(operation: CheckSequencer, reply: Reply) -> Standing:
    match text(reply[0]):
        case "current":
            return Standing(operation.token, is_good=True)
        case "wrong_kind":
            message = f"lock {operation.name!r} has no single current generation"
            raise WrongKind(message)
    return Standing(optional_number(reply[1]), is_good=False)


def _encode_set(operation: FencedSet) -> Call:
    return script_call("fenced_set", fenced_keys(operation.key).listed(), operation.value, operation.token)


def _decode_set(operation: FencedSet, reply: Reply) -> Standing:
    if text(reply[0]) == "written":
        return Standing(operation.token, is_good=True)
    return Standing(int(reply[1]), is_good=False)


CODECS: Final = {
    CheckSequencer: Codec(_encode_check, _decode_check),
    FencedSet: Codec(_encode_set, _decode_set),
}
