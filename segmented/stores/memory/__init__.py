"""Stores in memory, for tests, examples and dry runs: they run the scripts that ship, on a small Redis in Lua.

Operations are sent and read as on a server. `small_redis.lua` says which commands there are, and what it leaves out.
One Lua runtime serves all models of the process, so that each script is compiled once; a model is a table in it, the
keyspace.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module, resources
from math import inf
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from segmented.clock import Clock, SystemClock, checked_clock
from segmented.errors import InvalidInput
from segmented.imports import needs
from segmented.plans.drivers import async_one_by_one, one_by_one
from segmented.plans.store_kinds import NotPickled
from segmented.process import Guard
from segmented.protocol.wire import Command, Dialect, Exchange, Peer, Reply
from segmented.stores.redis.edge import our_error
from segmented.stores.redis.exchange import CALLS, Seen, perform_one
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.errors import SegmentedError
    from segmented.protocol import Operation

__all__ = ["AsyncMemoryStore", "MemoryModel", "MemoryStore"]

AnswerT = TypeVar("AnswerT")
WHERE: Final = "memory"
SCALAR, LIST, NESTED, ERROR, LONG = range(5)
"""The shapes of replies, as `small_redis.lua` numbers them."""


class Freed(str):
    """A channel that got a message, and the message."""

    __slots__ = ("said",)

    said: str


class Engine:
    """The Lua runtime of this process, with the small Redis and the compiled scripts."""

    def __init__(self) -> None:
        """Start the runtime. Raises InvalidInput if lupa is not installed."""
        try:
            lua = import_module("lupa.lua51")  # the Lua of Redis and Valkey
        except ModuleNotFoundError as error:
            raise InvalidInput(needs("a store in memory", "lupa")) from error
        self._lua: Any = lua.LuaRuntime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False
        )
        small_redis = resources.files(__package__).joinpath("small_redis.lua").read_bytes()
        host = self._lua.table_from({b"sha1": hashlib.sha1, b"digest": methodcaller("digest")})
        functions = self._lua.compile(small_redis, name=b"@small_redis")(host)
        self.new_keyspace, self.run, self.command, self._prepared = functions
        self.scripts: dict[str, Any] = {}
        """The compiled scripts by their digests."""

    def compile(self, text: str) -> str:
        """Compile a script, unless it was, and return its digest."""
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        if digest not in self.scripts:
            body = text.partition("\n")[2]  # Lua would not accept the line of flags
            self.scripts[digest] = self._prepared(self._lua.compile(body.encode(), name=b"@user_script"))
        return digest


@cache
def engine() -> Engine:
    """Return the engine of this process."""
    return Engine()


class MemoryModel:
    """All locks and pools of one server, in memory. Each operation is one step. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Create a server without any locks or pools; `clock` gives its time. Raises InvalidInput without lupa."""
        self._clock = clock
        self._engine = engine()
        self._keyspace = self._engine.new_keyspace()
        self._seen = Seen()
        self._peer = Peer(Dialect.SCRIPT)  # of unknown identity: memory is never another server
        self._freed: list[str] = []

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation."""
        return self.execute_for(self._seen, operation)

    def execute_for(self, seen: Seen, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation for a process that has seen that much of this server."""
        try:
            return self._converse(perform_one(operation, seen, next(CALLS), self._peer, 1))
        except ResponseError as error:
            raise our_error(error, WHERE) from error

    def take_freed(self) -> list[str]:
        """Return the channels that got a message since the last call."""
        freed, self._freed = self._freed, []
        return freed

    def ask(self, *command: str | int) -> Reply:
        """Perform one plain command of the small Redis, such as `ask("DEL", key)`, and return its reply."""
        return self._reply(command)

    def _converse(self, exchange: Exchange[AnswerT]) -> AnswerT:
        send = next(exchange)
        while True:
            replies = [self._reply(command) for command in send.commands]
            try:
                send = exchange.send(replies)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here

    def _reply(self, command: Command) -> Reply:
        now_us = round(self._clock.now() * 1_000_000)
        if command[0] == "EVALSHA":
            script = self._engine.scripts.get(str(command[1]))
            if script is None:
                return NoScriptError("no such script")
            return self._read(*self._engine.run(self._keyspace, now_us, script, command[2], *_texts(command[3:])))
        if command[0] == "EVAL":
            return self._reply(("EVALSHA", self._engine.compile(str(command[1])), *command[2:]))
        return self._read(*self._engine.command(self._keyspace, now_us, *_texts(command)))

    def _read(self, shape: int, messages: Any, *values: Any) -> Reply:  # noqa: ANN401  # lupa has no types
        if messages is not None:
            said = [one.decode() for one in messages.values()]
            for channel, text in zip(said[::2], said[1::2], strict=True):
                freed = Freed(channel)
                freed.said = text
                self._freed.append(freed)
        if shape == SCALAR:
            return values[0] if values else None
        if shape == LIST:
            return list(values)
        if shape == ERROR:
            return ResponseError(values[0].decode(errors="replace").removeprefix("ERR "))
        if shape == LONG:
            flat, count = values
            values = tuple(flat[index] for index in range(1, count + 1))
        return _nested(iter(values))


def _texts(words: Sequence[str | int]) -> list[bytes]:
    return [word.encode() if isinstance(word, str) else b"%d" % word for word in words]


def _nested(values: Iterator[Any]) -> Reply:
    value = next(values)
    return [_nested(values) for _ in range(next(values))] if value is True else value


def _shown(store: MemoryStore | AsyncMemoryStore) -> str:
    clock = "" if isinstance(store.clock, SystemClock) else f"clock={store.clock!r}"
    return f"{type(store).__name__}({clock})"


class AsyncMemoryStore(NotPickled):
    """A store in memory for asyncio: for tests, examples and dry runs. Nothing is persistent."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Create a store; stores that share a `model` see the same locks and pools."""
        self.clock = checked_clock(clock)
        self.wakeups = AsyncioWakeups(self.clock)
        self.model = model or MemoryModel(self.clock)
        self._seen = Seen()
        self._guard = Guard()

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # it never waits
        """Perform one operation in one step."""
        with self._guard.lock:
            answer = self.model.execute_for(self._seen, operation)
            freed = self.model.take_freed()
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        return answer

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return await async_one_by_one(self, operations, deadline)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return _shown(self)


# --- For threads: written by `make sync` from the classes above. ---


class MemoryStore(NotPickled):
    """A store in memory for threads: for tests, examples and dry runs. Nothing is persistent."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Create a store; stores that share a `model` see the same locks and pools."""
        self.clock = checked_clock(clock)
        self.wakeups = ThreadWakeups(self.clock)
        self.model = model or MemoryModel(self.clock)
        self._seen = Seen()
        self._guard = Guard()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # it never waits
        """Perform one operation in one step."""
        with self._guard.lock:
            answer = self.model.execute_for(self._seen, operation)
            freed = self.model.take_freed()
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return _shown(self)
