"""The outcome of one operation that several servers vote on. Pure: it turns votes into a decision.

A tally is decided as soon as no missing vote could change it. A failed server has no vote: it is unknown whether it
performed the operation, so it counts neither as a yes nor as a no.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from segmented.errors import SegmentedError, StoreUnavailable, WrongKind
from segmented.models import Acquired, Held, HeldBy, Lost, Released, Renewed, ServerIdentity
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


class RenewTally(Tally):
    """An attempt to renew a majority of the votes."""

    operation: RenewVote

    @property
    def is_decided(self) -> bool:
        """Return whether the vote is decided: a majority renewed it, or none still can."""
        return self.count(Renewed) >= self._majority or self.is_lost or not self.missing

    @property
    def is_lost(self) -> bool:
        """Return whether so many servers lost the vote that no majority can still have it."""
        return self.count(Lost) > len(self.servers) - self._majority

    def outcome(self) -> object:
        """Return Renewed, Lost, or the error if too many servers failed.

        A vote that was taken again was not renewed: it counts from the next renewal on.
        """
        if self.count(Renewed) >= self._majority:
            return Renewed(self.operation.ttl_ms)
        return Lost() if self.is_lost else self.failure()

    def giving_back(self) -> ReleaseVote | None:
        """Return the release for the votes of a lost lease that this renewal extended or took again.

        None if there are no such votes.
        """
        if not self.is_lost or self.count(Lost) == len(self.servers):
            return None
        return ReleaseVote(self.operation.name, self.operation.holder_id, ROUND_REESTABLISHED)


class ReleaseTally(Tally):
    """A release of the votes."""

    operation: ReleaseVote

    @property
    def is_decided(self) -> bool:
        """Return whether it is certain that a majority was ours, that it was not, or that it stays unknown."""
        is_open = not (self.is_certain_not_to_reach(Released) and self._is_certain_not_lost)
        return self.count(Released) >= self._majority or self._is_lost or not is_open

    @property
    def _is_lost(self) -> bool:
        return self.count(Lost) > len(self.servers) - self._majority

    @property
    def _is_certain_not_lost(self) -> bool:
        return self.count(Lost) + self.missing <= len(self.servers) - self._majority

    def outcome(self) -> object:
        """Return Released, Lost, or the error if too many servers failed."""
        if self.count(Released) >= self._majority:
            return Released()
        return Lost() if self._is_lost else self.failure()


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
