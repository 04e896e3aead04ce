"""One call of a script on given keys, and what the server holds before and after it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import redis

from segmented.protocol import Operation
from segmented.protocol.dedup import FinishRun
from segmented.protocol.wire import Call
from segmented.stores.redis.exchange import Seen

State = dict[bytes, tuple[bytes, int]]
"""Key -> its dumped value, and its time to live in ms; 0: without an end."""
Change = tuple[Any, ...]
"""A command that damages a key."""

DUMP: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = { key, redis.call('DUMP', key), math.max(0, redis.call('PTTL', key)) }
end
return found
"""
MARKS: Final = (b"frozen", b"servers")
"""Fields of meta that a refusing script writes on purpose: the pool is frozen, or is on another server."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a story, and the keys before it."""

    operation: Operation[Any]
    before: State
    call: Call

    @property
    def name(self) -> str:
        return self.call.script.name if self.call.script is not None else ""


def encoded(operation: Operation[Any], number: int) -> Call:
    """Return the call as a store sends it that has seen nothing."""
    call = operation.call()
    Seen().added_to(call, "?", f"{number:08x}")
    return call


class Stand:
    """A server on which calls are repeated on any state."""

    def __init__(self, server: redis.Redis) -> None:
        self.server = server

    def dump(self) -> State:
        return _state(self.server.eval(DUMP, 0))

    def set(self, state: State) -> None:
        """Let the server hold these keys and no others."""
        pipe = self.server.pipeline(transaction=False)
        pipe.flushdb()
        for key, (value, ttl_ms) in state.items():
            pipe.restore(key, ttl_ms, value)
        pipe.execute()

    def steps(self, story: Sequence[Operation[Any]]) -> list[Step]:
        """Play a story from the beginning; every call of it must be answered."""
        self.server.flushdb()
        steps = []
        token = 0
        for number, said in enumerate(story):
            operation: Any = said
            if isinstance(said, FinishRun):
                operation = replace(said, fencing_token=token)
            call = encoded(operation, number)
            steps.append(Step(operation, self.dump(), call))
            if call.script is None:
                self.server.execute_command(*call.arguments)
            else:
                reply: Any = self.server.eval(call.script.text, len(call.keys), *call.keys, *call.arguments)
                token = int(reply[1]) if call.script.name == "begin_run" and reply[0] == b"begun" else token
        return [step for step in steps if step.call.script is not None]

    def half_written(self, step: Step, *changes: Change) -> list[bytes]:
        """Return the keys that a call has changed although it failed."""
        reply, before, after = self.run(step, *changes)
        return self._differing(before, after) if isinstance(reply, Exception) else []

    def run(self, step: Step, *changes: Change) -> tuple[Any, State, State]:
        """Run a call on the keys before it with these changes; returns the reply, and the states before and after."""
        script = step.call.script
        assert script is not None
        pipe = self.server.pipeline(transaction=False)
        pipe.flushdb()
        for key, (value, ttl_ms) in step.before.items():
            pipe.restore(key, ttl_ms, value)
        for change in changes:
            pipe.execute_command(*change)
        pipe.eval(DUMP, 0)
        pipe.eval(script.text, len(step.call.keys), *step.call.keys, *step.call.arguments)
        pipe.eval(DUMP, 0)
        *_, before, reply, after = pipe.execute(raise_on_error=False)
        return reply, _state(before), _state(after)

    def _differing(self, before: State, after: State) -> list[bytes]:
        """Return the keys that differ, apart from the marks of a refusal. The server's keys are not needed any more."""
        found = [key for key in sorted({*before, *after}) if _value(before, key) != _value(after, key)]
        return [key for key in found if not (key.endswith(b":meta") and self._is_marked(before, after, key))]

    def _is_marked(self, before: State, after: State, key: bytes) -> bool:
        return key in before and key in after and self._fields(before[key][0]) == self._fields(after[key][0])

    def _fields(self, dumped: bytes) -> dict[bytes, bytes]:
        self.server.restore("restored", 0, dumped, replace=True)
        found: Any = self.server.hgetall("restored")
        self.server.delete("restored")
        return {name: value for name, value in found.items() if name not in MARKS}


def _state(listed: Sequence[Any]) -> State:
    return {key: (value, ttl_ms) for key, value, ttl_ms in listed}


def _value(state: State, key: bytes) -> bytes | None:
    return state[key][0] if key in state else None
