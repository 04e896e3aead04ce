"""How a quorum decides, for threads, asyncio and the simulation. This module sends nothing and reads no clock.

It follows the Redlock algorithm of the Redis documentation ("Distributed Locks with Redis"). All servers are asked in
parallel with a short timeout, and a majority decides. An attempt without a majority is undone on all servers and
repeated after a random pause.

`Membership` compares what the servers say of themselves. A majority of addresses that lead to one server, to a primary
and its replica, or to nodes of one cluster is no majority of anything: one failure takes several of its votes.

A `Tally` is decided as soon as no missing vote could change it. A failed server has no vote: it is unknown whether it
performed the operation, so it counts neither as a yes nor as a no.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Final, TypeVar

from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable, WrongKind
from segmented.models import Acquired, Held, HeldBy, Lost, Released, Renewed, ServerIdentity
from segmented.plans import Now
from segmented.protocol import AcquireVote, IdentifyServer, Operation, ReleaseVote, RenewVote
from segmented.protocol.vote import ROUND_REESTABLISHED

NO_TOKEN = 0


class NotAsked(StoreUnavailable):
    """The server was not asked in time."""


def majority_of(servers: int) -> int:
    """Return the smallest number of servers that is more than half."""
    return servers // 2 + 1


class Tally(ABC):
    """One operation, the servers that vote on it, and their answers."""

    def __init__(self, operation: Operation[Any], servers: Sequence[int]) -> None:
        self.operation = operation
        self.servers = servers
        self.votes: dict[int, Any] = {}
        """Server -> its answer or error."""
        self._majority = majority_of(len(servers))

    @property
    def missing(self) -> int:
        """Return the number of servers that have not voted."""
        return len(self.servers) - len(self.votes)

    def note(self, server: int, vote: object) -> None:
        """Record an answer or error; only the first one of a server counts."""
        self.votes.setdefault(server, vote)

    def count(self, *kinds: type) -> int:
        """Return the number of votes of these kinds."""
        return sum(isinstance(vote, kinds) for vote in self.votes.values())

    def is_certain_not_to_reach(self, *kinds: type) -> bool:
        """Return whether votes of these kinds can no longer reach a majority."""
        return self.count(*kinds) + self.missing < self._majority

    @property
    @abstractmethod
    def is_decided(self) -> bool:
        """Return whether no missing vote can change the outcome."""

    @abstractmethod
    def outcome(self) -> object:
        """Return the majority's answer, or the error if there is none."""

    def failure(self) -> SegmentedError:
        """Return the error for a vote that no majority answered."""
        failures = [vote for vote in self.votes.values() if isinstance(vote, SegmentedError)]
        for failure in failures:
            if not isinstance(failure, StoreUnavailable):
                return failure
        answered = len(self.votes) - len(failures)
        why = f": {failures[0]}" if failures else ""
        message = f"{answered} of {len(self.servers)} servers answered in time, {self._majority} are needed{why}"
        return StoreUnavailable(message)


class AcquireTally(Tally):
    """An attempt to win a majority of the votes."""

    operation: AcquireVote

    @property
    def is_acquired(self) -> bool:
        """Return whether a majority voted for us."""
        return self.count(Acquired) >= self._majority

    @property
    def is_decided(self) -> bool:
        """Return whether we have a majority or can no longer reach one."""
        return self.is_acquired or self.is_certain_not_to_reach(Acquired)

    @property
    def is_answered(self) -> bool:
        """Return whether a majority answered and no server reported that the name is not a lock."""
        return self.count(Acquired, Held) >= self._majority and not self.count(WrongKind)

    @property
    def may_be_answered(self) -> bool:
        """Return whether more time could have brought an answer."""
        return self.count(Acquired, Held, NotAsked) + self.missing >= self._majority and not self.count(WrongKind)

    def outcome(self) -> object:
        """Return Acquired, or the error."""
        if self.is_acquired:
            return Acquired(NO_TOKEN, self.operation.ttl_ms, replay=False)
        return self.failure()

    def giving_back(self) -> ReleaseVote:
        """Return the release that undoes this attempt on all servers, including those where it seemed to fail.

        The release is quiet if so many votes belong to others that nobody can have seen us with a majority and be
        waiting for us. A message would only wake the waiters, including us, for nothing.
        """
        operation = self.operation
        is_quiet = self.count(Held) > len(self.servers) - self._majority
        return ReleaseVote(operation.name, operation.holder_id, operation.round, quiet=is_quiet)

    def has_holder(self) -> bool | None:
        """Return whether one other holder has a majority, or None if too few servers answered."""
        marks = Counter(vote.holder_mark for vote in self.votes.values() if isinstance(vote, HeldBy))
        most = max(marks.values(), default=0)
        if most >= self._majority:
            return True
        unknown = len(self.servers) - self.count(Acquired, Held)
        return None if most + unknown >= self._majority else False

    def held(self, unknown_ms: int) -> Held:
        """Return when a majority may be free, our own votes being given back.

        A vote that has not come in may belong to anybody. It counts as free after `unknown_ms`, because a later time
        might be later than the end of the lease.
        """
        held = [vote.free_in_ms for vote in self.votes.values() if isinstance(vote, Held)]
        unknown = len(self.servers) - self.count(Acquired, Held)
        frees = sorted([*[unknown_ms] * unknown, *(inf if one is None else one for one in held)])
        needed = self._majority - self.count(Acquired)
        due = frees[needed - 1] if needed <= len(frees) else inf
        return Held(None if due == inf else int(due))


class HeldTally(Tally):
    """A change of a lease that is held: decided by a majority that made it, or by one that can no longer be ours."""

    made: ClassVar[type]
    """The answer of a server that made the change."""

    @property
    def is_made(self) -> bool:
        """Return whether a majority made the change."""
        return self.count(self.made) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Return whether so many servers lost the vote that no majority can still have it."""
        return self.count(Lost) > len(self.servers) - self._majority

    @property
    def is_decided(self) -> bool:
        """Return whether a majority made it, the lease is lost, or it is certain that it stays unknown."""
        may_be_lost = self.count(Lost) + self.missing > len(self.servers) - self._majority
        return self.is_made or self.is_lost or (self.is_certain_not_to_reach(self.made) and not may_be_lost)


class RenewTally(HeldTally):
    """An attempt to renew a majority of the votes."""

    operation: RenewVote
    made = Renewed

    def outcome(self) -> object:
        """Return Renewed, Lost, or the error if too many servers failed.

        A vote that was taken again was not renewed: it counts from the next renewal on.
        """
        if self.is_made:
            return Renewed(self.operation.ttl_ms)
        return Lost() if self.is_lost else self.failure()

    def giving_back(self) -> ReleaseVote | None:
        """Return the release for the votes of a lost lease that this renewal extended or took again.

        None if there are no such votes.
        """
        if not self.is_lost or self.count(Lost) == len(self.servers):
            return None
        return ReleaseVote(self.operation.name, self.operation.holder_id, ROUND_REESTABLISHED)


class ReleaseTally(HeldTally):
    """A release of the votes."""

    operation: ReleaseVote
    made = Released

    def outcome(self) -> object:
        """Return Released, Lost, or the error if too many servers failed."""
        if self.is_made:
            return Released()
        return Lost() if self.is_lost else self.failure()


class IdentityTally(Tally):
    """A query for the identities of the servers."""

    def __init__(self, servers: Sequence[int], admit: Callable[[int, ServerIdentity], None]) -> None:
        """Create a tally that passes each answer to `admit`."""
        super().__init__(IdentifyServer(), servers)
        self._admit = admit

    def note(self, server: int, vote: object) -> None:
        """Record an answer or error."""
        super().note(server, vote)
        if isinstance(vote, ServerIdentity):
            self._admit(server, vote)

    @property
    def is_decided(self) -> bool:
        """Return whether all servers have answered."""
        return not self.missing

    def outcome(self) -> None:
        """Return None: the answers went to `admit`."""


def tally_of(operation: Operation[Any], servers: Sequence[int], number: int) -> Tally | None:
    """Create the tally of an operation in round `number`; None for an operation that a quorum cannot decide."""
    match operation:
        case AcquireVote():
            return AcquireTally(replace(operation, round=number), servers)
        case RenewVote():
            return RenewTally(operation, servers)
        case ReleaseVote():
            return ReleaseTally(operation, servers)
    return None


class Poll:
    """Tallies of operations that are sent together, and the caller that waits for them."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        """Create a poll without a waiting caller."""
        self.tallies = tallies
        self._undecided = len(tallies)
        self._missing = sum(len(tally.servers) for tally in tallies)
        self._wake: Callable[[], None] | None = None
        self._for_all = False

    def note(self, index: int, server: int, vote: object) -> None:
        """Record a vote for one of the tallies, and wake the waiting caller if the poll is over."""
        tally = self.tallies[index]
        was_decided = tally.is_decided
        tally.note(server, vote)
        self._missing -= 1
        self._undecided -= tally.is_decided and not was_decided
        assert 0 <= self._undecided <= len(self.tallies), "a decided vote stays decided"
        assert self._missing >= 0, "each server votes once"
        if self._wake is not None and self.is_over(for_all=self._for_all):
            self._wake()

    def is_over(self, *, for_all: bool) -> bool:
        """Return whether all tallies are decided or, with `for_all`, whether all servers have voted."""
        return not (self._missing if for_all else self._undecided)

    def when_over(self, wake: Callable[[], None], *, for_all: bool) -> None:
        """Call `wake` when `is_over` becomes true, or immediately if it is."""
        self._wake, self._for_all = wake, for_all
        if self.is_over(for_all=for_all):
            wake()


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
