"""Operations by which a resource distinguishes the current holder from an overtaken one."""

from __future__ import annotations

from typing import Literal

from segmented.errors import WrongKind
from segmented.keys import fenced_keys, operator_keys
from segmented.models import Standing
from segmented.protocol.base import Operation
from segmented.protocol.wire import Call, Reply, optional_number, script_call, text
from segmented.values import light_dataclass

Mode = Literal["exclusive", "shared"]


@light_dataclass(frozen=True, slots=True)
class CheckSequencer(Operation[Standing]):
    """Return whether the lock is held now, in this mode, by the generation of this token."""

    name: str
    mode: Mode
    token: int

    def call(self) -> Call:
        return script_call("check_sequencer", operator_keys(self.name), self.token, self.mode)

    def answer(self, reply: Reply) -> Standing:
        match text(reply[0]):
            case "current":
                return Standing(self.token, is_good=True)
            case "wrong_kind":
                raise WrongKind(f"lock {self.name!r} has no single current generation")
        return Standing(optional_number(reply[1]), is_good=False)


@light_dataclass(frozen=True, slots=True)
class FencedSet(Operation[Standing]):
    """Write a plain value under `key`, unless it was already written under a higher token."""

    key: str
    value: str
    token: int

    def call(self) -> Call:
        return script_call("fenced_set", fenced_keys(self.key), self.value, self.token)

    def answer(self, reply: Reply) -> Standing:
        if text(reply[0]) == "written":
            return Standing(self.token, is_good=True)
        return Standing(int(reply[1]), is_good=False)
