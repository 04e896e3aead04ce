"""One fair lock, by its operations, for the tests of its queue."""

from typing import Final

from segmented import protocol as op
from segmented.models import Acquired, Held, Lost, Released, Renewed
from tests.fixtures.stores import Side

LONG_MS: Final = 60_000
TIMES: Final = op.FairTimes(presence_ms=100_000, look_ms=36_000, claim_ms=20_000)
"""Longer than a busy machine stands still, apart from each other, and shorter than LONG_MS."""
HASTY: Final = op.FairTimes(presence_ms=100_000, look_ms=36_000, claim_ms=300)
"""What is handed over and not claimed lapses soon."""
DYING_MS: Final = 300
LAPSED: Final = 0.35
"""Seconds after which what lives for 300 ms has lapsed."""


class Queue:
    """One fair lock, by its operations."""

    def __init__(self, side: Side, times: op.FairTimes = TIMES) -> None:
        self.side, self.times, self.name = side, times, side.name("lock")

    def ask(
        self, holder_id: str, *, ttl_ms: int = LONG_MS, waits: bool = True, process: str | None = None
    ) -> Acquired | Held:
        """Attempt; every holder is a process of its own, unless it is said which."""
        return self.side.execute(op.AcquireFair(self.name, holder_id, process or holder_id, ttl_ms, self.times, waits))

    def take(self, holder_id: str, *, ttl_ms: int = LONG_MS, process: str | None = None) -> Acquired:
        answer = self.ask(holder_id, ttl_ms=ttl_ms, process=process)
        assert isinstance(answer, Acquired), answer
        return answer

    def wait(self, *holder_ids: str, process: str | None = None) -> None:
        for holder_id in holder_ids:
            assert isinstance(self.ask(holder_id, process=process), Held)

    def look_ms(self, holder_id: str, *, process: str | None = None) -> int:
        """Attempt once more, and return when to look again."""
        answer = self.ask(holder_id, process=process)
        assert isinstance(answer, Held)
        assert answer.free_in_ms is not None
        return answer.free_in_ms

    def release(self, holder_id: str) -> Released | Lost:
        return self.side.execute(op.ReleaseFair(self.name, holder_id, self.times))

    def die(self, holder_id: str) -> None:
        """End the holder's lease as its time would."""
        assert self.renew(holder_id, DYING_MS) == Renewed(DYING_MS)
        self.side.pass_time(LAPSED)

    def renew(self, holder_id: str, ttl_ms: int = LONG_MS) -> Renewed | Lost:
        return self.side.execute(op.RenewFair(self.name, holder_id, ttl_ms))
