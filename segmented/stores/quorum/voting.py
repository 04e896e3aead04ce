"""How a quorum decides, for threads, asyncio and the simulation. This module sends nothing and reads no clock.

It follows the Redlock algorithm of the Redis documentation ("Distributed Locks with Redis"). All servers are asked in
parallel with a short timeout, and a majority decides. An attempt without a majority is undone on all servers and
repeated after a random pause.

`Membership` compares what the servers say of themselves. A majority of addresses that lead to one server, to a primary
and its replica, or to nodes of one cluster is no majority of anything: one failure takes several of its votes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.models import Held, ServerIdentity
from segmented.plans import Now
from segmented.protocol import AcquireVote, Operation, ReleaseVote
from segmented.stores.quorum.tally import AcquireTally, IdentityTally, Poll, RenewTally, Tally, tally_of

AnswerT = TypeVar("AnswerT")
TTL_PER_ANSWER: Final = 4
"""A server must answer within the time to live divided by this number, even if the timeout is longer."""
LINGER_TIMES: Final = 4
LINGER_MIN: Final = 0.01
LINGER_PART: Final = 0.25
"""After a majority has answered, the vote waits for the others LINGER_TIMES as long as the majority took, at least
LINGER_MIN seconds, and at most LINGER_PART of the time that they have."""
SPLIT_TIMES: Final = 8
SPLIT_MIN: Final = 0.004
SPLIT_MAX: Final = 0.2
"""A split vote is repeated after up to SPLIT_TIMES as long as it took, from SPLIT_MIN to SPLIT_MAX seconds."""
UNSURE_MIN: Final = 0.05
UNSURE_MAX: Final = 0.15
"""Seconds after which an attempt is repeated if too few servers answered."""
TRIES: Final = 3
"""Attempts without an answer from a majority before the operation fails: one server may be slow briefly."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a poll to its servers; every lane gets the operations in this order.

    After the local time `send_by` only releases are sent.
    """

    poll: Poll
    send_by: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until the poll is decided (or, with `for_all`, until every server has voted), or until a local time."""

    poll: Poll
    until: float
    for_all: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """Sleep until a local time."""

    until: float


Step = Ask | Await | Pause | Now
Steps = Generator[Step, float, AnswerT]
"""A generator that yields steps, and receives the local time after each."""


@dataclass(slots=True)
class Rules:
    """The settings that are the same for all votes."""

    servers: int
    answer_timeout: float
    """Seconds within which a server must answer."""
    chance: Callable[[float, float], float]
    """Returns a random number between its two arguments."""
    rounds: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Growing numbers, shared by all votes of one store."""
    has_met: bool = False
    """Whether the store has waited once for the servers' identities."""

    def pause_ms(self, elapsed: float, *, is_split: bool) -> int:
        """Return a random time after which an attempt that took `elapsed` seconds may be repeated.

        A split vote is over soon, and a random order decides it. If too few servers answered to distinguish a split
        vote from a holder, the pause is longer, because no message is certain to end the wait.
        """
        if is_split:
            seconds = self.chance(0.0, min(max(SPLIT_TIMES * elapsed, SPLIT_MIN), SPLIT_MAX))
        else:
            seconds = self.chance(UNSURE_MIN, UNSURE_MAX)
        return round(seconds * 1000)


def voting(
    rules: Rules, membership: Membership, operations: Sequence[Operation[Any]], deadline: float
) -> Steps[list[Any | SegmentedError]]:
    """Decide operations, each separately; return the answer or error of each.

    An acquire that no majority answers is retried a few times if the deadline allows.
    """
    tries = TRIES if all(isinstance(operation, AcquireVote) for operation in operations) else 1
    while True:
        answers = yield from _voted(rules, membership, operations, deadline)
        tries -= 1
        if not tries or not any(isinstance(answer, StoreUnavailable) for answer in answers):
            return answers
        until = (yield Now()) + rules.pause_ms(0.0, is_split=False) / 1000
        if until >= deadline:
            return answers
        yield Pause(until)


def _voted(
    rules: Rules, membership: Membership, operations: Sequence[Operation[Any]], deadline: float
) -> Steps[list[Any | SegmentedError]]:
    tallies = _tallies(rules, operations)
    attempts = [tally for tally in tallies if isinstance(tally, AcquireTally)]
    if attempts:
        yield from _introduced(rules, membership)
    began = yield Now()
    within = min([rules.answer_timeout, *(one.operation.ttl_ms / 1000 / TTL_PER_ANSWER for one in attempts)])
    until = min(began + within, deadline)
    poll = Poll(tallies)
    yield Ask(poll, until)
    now = yield Await(poll, until, for_all=False)
    conflict = membership.conflict if attempts else None
    refused = [one for one in attempts if conflict is not None or not one.is_acquired]
    backs = [one.giving_back() for one in refused]
    backs += [back for tally in tallies if isinstance(tally, RenewTally) and (back := tally.giving_back())]
    if backs:
        poll = Poll(_tallies(rules, backs))
        yield Ask(poll, inf)
    if backs or any(isinstance(tally.operation, ReleaseVote) for tally in tallies):
        # so that nothing stays behind on a server that answers, and the holders of the other votes are known
        linger = min(max(LINGER_TIMES * (now - began), LINGER_MIN), LINGER_PART * rules.answer_timeout)
        now = yield Await(poll, now + linger, for_all=True)
    if conflict is not None:
        return [conflict] * len(tallies)
    may_wait = deadline < began + within
    pause_ms = partial(rules.pause_ms, now - began)
    return [
        _refusal(tally, pause_ms, is_cut_short=may_wait) if tally in refused else tally.outcome() for tally in tallies
    ]


def _tallies(rules: Rules, operations: Sequence[Operation[Any]]) -> list[Tally]:
    tallies = []
    for operation in operations:
        tally = tally_of(operation, range(rules.servers), next(rules.rounds))
        if tally is None:
            kind = type(operation).__name__
            raise InvalidInput(
                f"a quorum cannot decide {kind}: it has no fencing tokens and supports only QuorumLock; "
                "ask each of its servers, with a RedisStore of its own"
            )
        tallies.append(tally)
    return tallies


def _introduced(rules: Rules, membership: Membership) -> Steps[None]:
    """Ask servers for unknown identities. Wait for them once; servers that come up later are asked along the way."""
    if not membership.unknown:
        return
    poll = Poll([IdentityTally(membership.unknown, membership.admit)])
    until = (yield Now()) + rules.answer_timeout
    yield Ask(poll, until)
    if not rules.has_met:
        rules.has_met = True
        yield Await(poll, until, for_all=True)


def _refusal(tally: AcquireTally, pause_ms: Callable[..., int], *, is_cut_short: bool) -> Held | SegmentedError:
    """Return when the next attempt may succeed after one that was undone, or why it cannot."""
    if not tally.is_answered:
        return Held(None) if is_cut_short and tally.may_be_answered else tally.failure()
    match tally.has_holder():
        case True:
            return tally.held(pause_ms(is_split=False))
        case False:
            return Held(pause_ms(is_split=True))
    return Held(pause_ms(is_split=False))


class Membership:
    """The identities that the servers have reported."""

    def __init__(self, names: Sequence[str]) -> None:
        """Create an empty registry of servers; `names` are used in errors."""
        self._names = names
        self._known: dict[int, ServerIdentity] = {}
        self._conflict = ""

    @property
    def unknown(self) -> list[int]:
        """Return the servers that have not reported yet."""
        return [server for server in range(len(self._names)) if server not in self._known]

    @property
    def conflict(self) -> InvalidInput | None:
        """Return the error to raise if two servers are not independent, or None."""
        return InvalidInput(self._conflict) if self._conflict else None

    def admit(self, server: int, identity: ServerIdentity) -> None:
        """Record a server's identity and compare it with the known ones."""
        for other, known in self._known.items():
            if other != server and (why := _common(known, identity)) and not self._conflict:
                names = f"{self._names[other]} and {self._names[server]}"
                self._conflict = f"{names} {why}: a quorum needs servers that are independent of each other"
        self._known[server] = identity


def _common(one: ServerIdentity, other: ServerIdentity) -> str:
    if one.run_id == other.run_id:
        return "are the same server"
    if one.node_ids & other.node_ids:
        return "belong to one cluster"
    if one.replication_id and one.replication_id == other.replication_id:
        return "are a primary and its replica"
    return ""
