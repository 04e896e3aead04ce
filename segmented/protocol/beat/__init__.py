"""Operations on a schedule of periodic tasks: who leads it, what is in it, and what was sent when."""

from __future__ import annotations

from typing import Final, Literal

from segmented.keys import beat_keys
from segmented.models.beat import (
    BeatLed,
    BeatRead,
    BeatSuperseded,
    EntriesFull,
    EntryChanged,
    EntryDiffers,
    EntryEarly,
    EntryMoved,
)
from segmented.protocol.base import Operation
from segmented.protocol.wire import Call, Reply, pairs_in, readable, script_call, text
from segmented.values import light_dataclass

ENTRIES_MAX: Final = 10_000


@light_dataclass(frozen=True, slots=True)
class LeadBeat(Operation[BeatLed | BeatSuperseded]):
    """Begin to lead, or go on, and read the schedule unless its `known` version is the newest."""

    namespace: str
    token: int
    known: str = ""

    def call(self) -> Call:
        return script_call("lead_beat", beat_keys(self.namespace), self.token, self.known)

    def answer(self, reply: Reply) -> BeatLed | BeatSuperseded:
        if text(reply[0]) == "superseded":
            return BeatSuperseded()
        now_ms, version = int(reply[1]), text(reply[2])
        found = _read(now_ms, version, *reply[3:]) if reply[3:] else None
        return BeatLed(now_ms, version, found)


@light_dataclass(frozen=True, slots=True)
class ReadBeat(Operation[BeatRead]):
    """Read the whole schedule."""

    namespace: str

    def call(self) -> Call:
        return script_call("read_beat", beat_keys(self.namespace))

    def answer(self, reply: Reply) -> BeatRead:
        return _read(int(reply[0]), text(reply[1]), *reply[2:])


@light_dataclass(frozen=True, slots=True)
class MoveEntry(Operation[EntryMoved | EntryDiffers | EntryEarly | BeatSuperseded]):
    """Change an entry's state from `before` to `after`, not before `due_ms` of the server's clock."""

    namespace: str
    token: int
    name: str
    before: str
    after: str
    due_ms: int = 0

    def call(self) -> Call:
        states = (self.name, self.before, self.after)
        return script_call("move_entry", beat_keys(self.namespace), self.token, *states, self.due_ms)

    def answer(self, reply: Reply) -> EntryMoved | EntryDiffers | EntryEarly | BeatSuperseded:
        match text(reply[0]):
            case "superseded":
                return BeatSuperseded()
            case "other":
                return EntryDiffers(readable(reply[1]))
            case "early":
                return EntryEarly(int(reply[1]))
        return EntryMoved()


@light_dataclass(frozen=True, slots=True)
class ChangeEntry(Operation[EntryChanged | EntriesFull]):
    """Keep the definition of an entry, remove it and its state, or `reset` its state alone."""

    namespace: str
    name: str
    deed: Literal["keep", "remove", "reset"]
    definition: str = ""

    def call(self) -> Call:
        said = (self.name, self.deed, self.definition, ENTRIES_MAX)
        return script_call("change_entry", beat_keys(self.namespace), *said)

    def answer(self, reply: Reply) -> EntryChanged | EntriesFull:
        return EntriesFull() if text(reply[0]) == "full" else EntryChanged(text(reply[1]) == "1")


def _read(now_ms: int, version: str, entries: Reply, runs: Reply) -> BeatRead:
    found = ({readable(name): readable(said) for name, said in pairs_in(each)} for each in (entries, runs))
    return BeatRead(now_ms, version, *found)
