"""The model of one server's votes for locks that a majority keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented.keys import lock_keys
from segmented.models import Acquired, HeldBy, Lost, Reestablished, Released, Renewed, ServerIdentity
from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.kinds import Kind
from segmented.protocol.vote.operations import (
    NO_TOKEN,
    ROUND_MAX,
    ROUND_REESTABLISHED,
    AcquireVote,
    IdentifyServer,
    ReleaseVote,
    RenewVote,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies


@dataclass(slots=True)
class _Vote:
    holder_id: str
    ends_at: float
    round: int


class VoteModel:
    """Votes by name, and the last releaser of each."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without votes that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._votes: dict[str, _Vote] = {}
        self._releasers: dict[str, str] = {}
        self._identity = ServerIdentity(uuid4().hex)

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            AcquireVote: self.acquire,
            RenewVote: self.renew,
            ReleaseVote: self.release,
            IdentifyServer: self.identify,
        }

    def holds(self, name: str) -> bool:
        """Return whether the vote is held."""
        return self._living(name) is not None

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._votes)

    def state(self, name: str, holders_max: int) -> LockState | None:  # noqa: ARG002  # there is one at most
        """Return the holder of the vote."""
        vote = self._living(name)
        if vote is None:
            return None
        remaining_ms = round((vote.ends_at - self._clock.now()) * 1000)
        holder = LockHolder(vote.holder_id[:HOLDER_ID_SHOWN], "exclusive", remaining_ms)
        return LockState(name, "quorum", (holder,), 1, remaining_ms, None)

    def revoke(self, name: str) -> None:
        """End the vote, and wake waiters."""
        del self._votes[name]
        self._publish(lock_keys(name).freed)

    def _living(self, name: str) -> _Vote | None:
        vote = self._votes.get(name)
        return vote if vote is not None and vote.ends_at > self._clock.now() else None

    def acquire(self, operation: AcquireVote) -> Acquired | HeldBy:
        """Give the vote if it is free or already the holder's; a late request does not lower the round."""
        now, vote = self._clock.now(), self._living(operation.name)
        if vote is not None and vote.holder_id != operation.holder_id:
            return HeldBy(round((vote.ends_at - now) * 1000), holder_mark=f"{vote.holder_id} {vote.round}")
        last_round = vote.round if vote is not None else 0
        ends_at = now + operation.ttl_ms / 1000
        self._votes[operation.name] = _Vote(operation.holder_id, ends_at, max(operation.round, last_round))
        return Acquired(NO_TOKEN, operation.ttl_ms, replay=vote is not None)

    def renew(self, operation: RenewVote) -> Renewed | Lost:
        """Extend the vote; re-create it only on request and if it is free."""
        vote, ends_at = self._living(operation.name), self._clock.now() + operation.ttl_ms / 1000
        if vote is None and not operation.reestablish:
            return Lost()
        if vote is not None and vote.holder_id != operation.holder_id:
            return Lost()
        number = ROUND_REESTABLISHED if operation.reestablish or vote is None else vote.round
        self._votes[operation.name] = _Vote(operation.holder_id, ends_at, number)
        return Renewed(operation.ttl_ms) if vote is not None else Reestablished()

    def release(self, operation: ReleaseVote) -> Released | Lost:
        """Compare and delete, then wake, unless the vote is of a later round."""
        vote = self._living(operation.name)
        if vote is None or vote.holder_id != operation.holder_id:
            return Released() if self._releasers.get(operation.name) == operation.holder_id else Lost()
        if vote.round > operation.round:
            return Lost()
        del self._votes[operation.name]
        if operation.round == ROUND_MAX:
            self._releasers[operation.name] = operation.holder_id
        if not operation.quiet:
            self._publish(lock_keys(operation.name).freed)
        return Released()

    def identify(self, _: IdentifyServer) -> ServerIdentity:
        """Return an identity that differs between models."""
        return self._identity


KIND: Final = Kind(
    "quorum",
    "QuorumLock",
    "one at a time, by the votes of a majority of independent servers",
    VoteModel,
    takes=(AcquireVote,),
    has_token=False,
)
