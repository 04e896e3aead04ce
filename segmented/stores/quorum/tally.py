"""What becomes of one operation that is put to several servers. Pure: votes come in, a decision comes out.

A tally is decided as soon as no vote that is still missing could change it. A server that failed has not voted for
anything: whether it did what it was asked is unknown, so it counts neither as a yes nor as a no.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from segmented.errors import SegmentedError, StoreUnavailable, WrongKind
from segmented.models import Acquired, Held, HeldBy, Lost, Released, Renewed, ServerIdentity
from segmented.protocol import AcquireVote, IdentifyServer, ReleaseVote, RenewVote
from segmented.protocol.vote.operations import ROUND_REESTABLISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation

NO_TOKEN = 0


class NotAsked(StoreUnavailable):
    """The server was not asked in time."""


def majority_of(servers: int) -> int:
    """Return how many servers are more than half."""
    return servers // 2 + 1


class Tally(ABC):
    """One operation, put to some servers, and what they have answered."""

    def __init__(self, operation: Operation[Any], servers: Sequence[int]) -> None:
        """Have no votes yet."""
        self.operation = operation
        self.servers = servers
        self.votes: dict[int, Any] = {}
        """By server: its answer, or its failure."""
        self._majority = majority_of(len(servers))

    @property
    def missing(self) -> int:
        """Count the servers that have not been heard of."""
        return len(self.servers) - len(self.votes)

    def note(self, server: int, vote: object) -> None:
        """Take an answer or a failure; the first one of a server counts."""
        self.votes.setdefault(server, vote)

    def count(self, *kinds: type) -> int:
        """Count the votes of these kinds."""
        return sum(isinstance(vote, kinds) for vote in self.votes.values())

    def is_certain_not_to_reach(self, *kinds: type) -> bool:
        """Can these kinds of votes not become a majority any more?"""
        return self.count(*kinds) + self.missing < self._majority

    @property
    @abstractmethod
    def is_decided(self) -> bool:
        """Could no vote that is missing change the outcome?"""

    @abstractmethod
    def outcome(self) -> object:
        """Return the majority's answer, or the failure to get one."""

    def failure(self) -> SegmentedError:
        """Return what to raise when no majority has answered."""
        failures = [vote for vote in self.votes.values() if isinstance(vote, SegmentedError)]
        for failure in failures:
            if not isinstance(failure, StoreUnavailable):
                return failure
        answered = len(self.votes) - len(failures)
        why = f": {failures[0]}" if failures else ""
        message = f"{answered} of {len(self.servers)} servers answered in time, {self._majority} are needed{why}"
        return StoreUnavailable(message)


class AcquireTally(Tally):
    """An attempt to get a majority of the votes."""

    operation: AcquireVote

    @property
    def is_acquired(self) -> bool:
        """Has a majority voted for us?"""
        return self.count(Acquired) >= self._majority

    @property
    def is_decided(self) -> bool:
        """Is a majority ours, or out of reach?"""
        return self.is_acquired or self.is_certain_not_to_reach(Acquired)

    @property
    def is_answered(self) -> bool:
        """Has a majority said whose its votes are, and no server that the name is not a lock's?"""
        return self.count(Acquired, Held) >= self._majority and not self.count(WrongKind)

    @property
    def may_be_answered(self) -> bool:
        """Could more time have brought an answer?"""
        return self.count(Acquired, Held, NotAsked) + self.missing >= self._majority and not self.count(WrongKind)

    def outcome(self) -> object:
        """Return Acquired, or the failure to be."""
        if self.is_acquired:
            return Acquired(NO_TOKEN, self.operation.ttl_ms, replay=False)
        return self.failure()

    def giving_back(self) -> ReleaseVote:
        """Return what takes this attempt back everywhere, also where it seemed to fail.

        Quiet if so many votes were somebody else's that nobody can have seen us with a majority, and parked for it: a
        message would wake those who wait, ourselves among them, for nothing.
        """
        operation = self.operation
        is_quiet = self.count(Held) > len(self.servers) - self._majority
        return ReleaseVote(operation.name, operation.holder_id, operation.round, quiet=is_quiet)

    def has_holder(self) -> bool | None:
        """Has one other holder a majority? None when too few servers answered to know."""
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
    """An attempt to have a majority of the votes live on."""

    operation: RenewVote

    @property
    def is_decided(self) -> bool:
        """Lives a majority on, or can it not?"""
        return self.count(Renewed) >= self._majority or self.is_lost or not self.missing

    @property
    def is_lost(self) -> bool:
        """Have so many servers lost the vote that no majority can have kept it?"""
        return self.count(Lost) > len(self.servers) - self._majority

    def outcome(self) -> object:
        """Return Renewed, Lost, or the failure of too many servers.

        A vote that was taken again is not one that lived on: it counts from the next renewal.
        """
        if self.count(Renewed) >= self._majority:
            return Renewed(self.operation.ttl_ms)
        return Lost() if self.is_lost else self.failure()

    def giving_back(self) -> ReleaseVote | None:
        """Return what removes the votes of a lease that is lost: those that this renewal has prolonged or taken again.

        None where nothing is left.
        """
        if not self.is_lost or self.count(Lost) == len(self.servers):
            return None
        return ReleaseVote(self.operation.name, self.operation.holder_id, ROUND_REESTABLISHED)


class ReleaseTally(Tally):
    """The votes given back."""

    operation: ReleaseVote

    @property
    def is_decided(self) -> bool:
        """Was a majority ours, or can it not have been, or will nobody know?"""
        is_open = not (self.is_certain_not_to_reach(Released) and self._is_certain_not_lost)
        return self.count(Released) >= self._majority or self._is_lost or not is_open

    @property
    def _is_lost(self) -> bool:
        return self.count(Lost) > len(self.servers) - self._majority

    @property
    def _is_certain_not_lost(self) -> bool:
        return self.count(Lost) + self.missing <= len(self.servers) - self._majority

    def outcome(self) -> object:
        """Return Released, Lost, or the failure of too many servers."""
        if self.count(Released) >= self._majority:
            return Released()
        return Lost() if self._is_lost else self.failure()


class IdentityTally(Tally):
    """The question which servers they are."""

    def __init__(self, servers: Sequence[int], admit: Callable[[int, ServerIdentity], None]) -> None:
        """Tell `admit` each answer."""
        super().__init__(IdentifyServer(), servers)
        self._admit = admit

    def note(self, server: int, vote: object) -> None:
        """Take an answer or a failure."""
        super().note(server, vote)
        if isinstance(vote, ServerIdentity):
            self._admit(server, vote)

    @property
    def is_decided(self) -> bool:
        """Have all answered?"""
        return not self.missing

    def outcome(self) -> None:
        """Return nothing: the answers went to `admit`."""


def tally_of(operation: Operation[Any], servers: Sequence[int], number: int) -> Tally | None:
    """Make the tally of an operation in round `number`; None for one that no quorum can decide."""
    match operation:
        case AcquireVote():
            return AcquireTally(replace(operation, round=number), servers)
        case RenewVote():
            return RenewTally(operation, servers)
        case ReleaseVote():
            return ReleaseTally(operation, servers)
    return None


class Poll:
    """Tallies of operations that are put to the servers together, and somebody who waits for them."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        """Have nobody wait yet."""
        self.tallies = tallies
        self._undecided = len(tallies)
        self._missing = sum(len(tally.servers) for tally in tallies)
        self._wake: Callable[[], None] | None = None
        self._for_all = False

    def note(self, index: int, server: int, vote: object) -> None:
        """Take a vote for one of the tallies, and wake who waits if that was what he waited for."""
        tally = self.tallies[index]
        was_decided = tally.is_decided
        tally.note(server, vote)
        self._missing -= 1
        self._undecided -= tally.is_decided and not was_decided
        if self._wake is not None and self.is_over(for_all=self._for_all):
            self._wake()

    def is_over(self, *, for_all: bool) -> bool:
        """Are all tallies decided; or, with `for_all`, have all servers voted?"""
        return not (self._missing if for_all else self._undecided)

    def when_over(self, wake: Callable[[], None], *, for_all: bool) -> None:
        """Call `wake` once it is over in this sense; at once if it is."""
        self._wake, self._for_all = wake, for_all
        if self.is_over(for_all=for_all):
            wake()
