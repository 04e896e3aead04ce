"""Exchanges of many independent operations at once: one round trip, and another for those that must be sent again."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.exceptions import (
    ConnectionError as RedisConnectionError,
    NoScriptError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
)

from segmented.errors import SegmentedError, StoreBusy
from segmented.protocol.base import Release, profile_wait, shortfall, unknown
from segmented.protocol.wire import PUBLISH, Call, Command, Dialect, Exchange, MakeExchange, Peer, Reply, Send, sharded
from segmented.stores.redis.connections import pinging, publishing
from segmented.stores.redis.edge import our_error
from segmented.stores.redis.exchange import CALLS, Seen, by_digest, finished, named, perform_one, raise_misread, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.clock import Clock
    from segmented.models.pools import Profile
    from segmented.protocol import Operation
    from segmented.stores.redis.addresses import Host

AnswerT = TypeVar("AnswerT")

BATCH_MAX: Final = 500
"""Maximum number of operations sent together, so that the server answers other clients in between."""
PUBLISH_SECONDS: Final = 1.0
"""Timeout in seconds for a message that is only an optimization."""
TRANSPORT_ERRORS: Final = (RedisConnectionError, RedisTimeoutError, OSError)


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, seen: Seen, numbers: Sequence[int], peer: Peer, attempt: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in more if scripts were not cached or profiles not known.

    From the second `attempt` on, an earlier one may have run and lost its replies. `numbers` are the calls', of CALLS.
    """
    requests = [
        _Request(operation, seen, peer, named(number, attempt))
        for operation, number in zip(operations, numbers, strict=True)
    ]
    left = requests
    while left:
        yield from _sent(left, where)
        left = [request for request in left if not request.is_answered]
        for request in left:
            request.is_whole = True
    for request in requests:
        if isinstance(request.answer, SegmentedError):
            continue
        finishing = request.operation.continued(request.answer)
        if finishing is None:
            continue
        try:
            request.answer = yield from finished(finishing, seen, peer, request.call_name)
        except SegmentedError as error:
            request.answer = error
    if attempt > 1:
        for request in requests:
            request.doubt()
    assert all(request.is_answered for request in requests), "each operation of a batch has an answer"
    return [request.answer for request in requests]


def _sent(requests: Sequence[_Request], where: str) -> Exchange[None]:
    """Send requests together, behind them one waiting command for each profile among them, and read the replies."""
    encoded = [request.encode() for request in requests]
    profiles = list(dict.fromkeys(request.profile for request in requests if request.profile is not None))
    commands = [command for found in encoded for command in found]
    patience = sum(profile.seconds for profile in profiles)
    replies = yield Send([*commands, *map(profile_wait, profiles)], patience)
    counts = dict(zip(profiles, replies[len(commands) :], strict=True))
    position = 0
    for request, found in zip(requests, encoded, strict=True):
        profile = request.profile
        lacking = None if profile is None else shortfall(profile, counts[profile])
        request.read(replies[position : position + len(found)], where, is_acknowledged=lacking is None)
        if profile is not None and lacking is not None and request.is_answered:
            request.answer = unknown(request.operation, request.answer, profile, lacking)
        position += len(found)


class _Request:
    """One operation of a batch. It is sent again until it is answered: by its script's text, or with its profile."""

    def __init__(self, operation: Operation[Any], seen: Seen, peer: Peer, call_name: str) -> None:
        self.operation = operation
        self.call_name = call_name
        self.answer: Any = None
        self.is_answered = False
        self.is_whole = False
        """Whether to send the script's text, which its digest was not enough for."""
        self.profile: Profile | None = None
        self._seen = seen
        self._peer = peer
        self._call: Call
        self._is_native = False

    def encode(self) -> Sequence[Command]:
        if not self.is_whole and self._peer.dialect is not Dialect.SCRIPT:
            commands = self.operation.native(self._peer.dialect)
            if commands:
                self._is_native = True
                return sharded(commands) if self._peer.is_cluster else commands
        self._is_native = False
        self._call = self.operation.call()
        if self._peer.is_cluster and self._call.script is not None:
            self._call.script = self._call.script.in_cluster
        self._seen.added_to(self._call, self._peer.server, self.call_name)
        self.profile = self._seen.profile_for(self._call, self.operation)
        return (whole(self._call) if self.is_whole else by_digest(self._call),)

    def read(self, replies: list[Reply], where: str, *, is_acknowledged: bool) -> None:
        if self._is_native:
            if not isinstance(replies[0], ResponseError):  # a refused message changes nothing
                self.answer = self.operation.native_answer(replies)
                self.is_answered = self.answer is not None
            return
        (reply,) = replies
        if isinstance(reply, ResponseError):
            if not isinstance(reply, NoScriptError) and not self._seen.learns_profile(self._call, reply):
                found = self._seen.error(self.operation, reply, self._call.key)
                self.answer = found if isinstance(found, SegmentedError) else our_error(found, where)
                self.is_answered = True
            return
        self.is_answered = True
        try:
            try:
                self.answer = self.operation.answer(reply)
            except Exception as error:
                raise_misread(error, self.operation, self._call.key)
                raise
        except SegmentedError as error:
            self.answer = error
            return
        is_kept = is_acknowledged and self.profile is not None
        server = self._peer.server
        self._seen.learn(self._call, self.operation, reply, self.answer, server, is_acknowledged=is_kept)

    def doubt(self) -> None:
        """Read the answer as one to a repeat."""
        if not isinstance(self.answer, SegmentedError):
            self.answer = self.operation.doubt(self.answer)


class AsyncRequests:
    """The requests of a link to one server, for asyncio."""

    def __init__(self, clock: Clock) -> None:
        self.seen = Seen()
        self._clock = clock

    async def run(
        self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf, is_release: bool = False
    ) -> AnswerT:
        """Run an exchange; each attempt creates a new one. Raises one of TRANSPORT_ERRORS, or the server's refusal."""
        raise NotImplementedError

    async def check(self, deadline: float) -> None:
        """Check the server if it was not checked before. Raises InvalidInput if it is not usable."""
        await self.run(pinging, deadline=deadline)

    async def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        exchange = partial(perform_one, operation, self.seen, next(CALLS))
        return await self.run(exchange, deadline=deadline, is_release=isinstance(operation, Release))

    async def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = []
        is_release = any(isinstance(one, Release) for one in operations)  # asyncio only
        for start in range(0, len(operations), BATCH_MAX):
            batch = operations[start : start + BATCH_MAX]
            exchange = partial(perform_all, batch, where, self.seen, [next(CALLS) for _ in batch])
            try:
                answers += await self.run(exchange, deadline=deadline, is_release=is_release)
            except TRANSPORT_ERRORS as error:
                answers += [our_error(error, where)] * len(batch)
            except StoreBusy as error:
                answers += [error] * len(batch)
        return answers

    async def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
        exchange = partial(perform_all, (operation, behind), where, self.seen, (next(CALLS), next(CALLS)))
        return await self.run(exchange, deadline=deadline, is_release=True)

    async def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:  # noqa: ARG002  # as `AsyncClusterLink` has it
        """Return where to subscribe to each channel: None is the one server."""
        return dict.fromkeys(channels)

    async def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:  # noqa: ARG002  # as `AsyncClusterLink` has it
        """Send a message within a short time or not at all."""
        await self.run(
            partial(publishing, PUBLISH, channel, word), deadline=min(deadline, self._clock.now() + PUBLISH_SECONDS)
        )


# --- For threads: written by `make sync` from the classes above. ---


class Requests:
    """The requests of a link to one server, for threads."""

    def __init__(self, clock: Clock) -> None:
        self.seen = Seen()
        self._clock = clock

    def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange; each attempt creates a new one. Raises one of TRANSPORT_ERRORS, or the server's refusal."""
        raise NotImplementedError

    def check(self, deadline: float) -> None:
        """Check the server if it was not checked before. Raises InvalidInput if it is not usable."""
        self.run(pinging, deadline=deadline)

    def perform(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        exchange = partial(perform_one, operation, self.seen, next(CALLS))
        return self.run(exchange, deadline=deadline)

    def perform_all(
        self, operations: Sequence[Operation[AnswerT]], *, where: str, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform independent operations, many per round trip; one answer or error each."""
        answers: list[AnswerT | SegmentedError] = []
        for start in range(0, len(operations), BATCH_MAX):
            batch = operations[start : start + BATCH_MAX]
            exchange = partial(perform_all, batch, where, self.seen, [next(CALLS) for _ in batch])
            try:
                answers += self.run(exchange, deadline=deadline)
            except TRANSPORT_ERRORS as error:
                answers += [our_error(error, where)] * len(batch)
            except StoreBusy as error:
                answers += [error] * len(batch)
        return answers

    def free(
        self, operation: Operation[AnswerT], behind: Operation[Any], *, where: str, deadline: float = inf
    ) -> list[Any]:
        """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
        exchange = partial(perform_all, (operation, behind), where, self.seen, (next(CALLS), next(CALLS)))
        return self.run(exchange, deadline=deadline)

    def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:  # noqa: ARG002  # as `ClusterLink` has it
        """Return where to subscribe to each channel: None is the one server."""
        return dict.fromkeys(channels)

    def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:  # noqa: ARG002  # as `ClusterLink` has it
        """Send a message within a short time or not at all."""
        self.run(
            partial(publishing, PUBLISH, channel, word), deadline=min(deadline, self._clock.now() + PUBLISH_SECONDS)
        )
