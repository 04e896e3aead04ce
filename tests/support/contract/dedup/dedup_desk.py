"""One record of a side, asked in the terms of one point, so that a test says only what it is about."""

from dataclasses import dataclass, field
from typing import Any, Final

from segmented import protocol as op
from segmented.keys import once_keys, once_partition
from segmented.models.dedup import OnLapse, OutcomeKind, RecordName, RecordState, RunBegun, RunOn, SeatEnd
from tests.fixtures.stores import Side

LONG_MS: Final = 600_000
SHORT_MS: Final = 60
"""A time that a test lets pass, with `SHORT`."""
SHORT: Final = 0.08


@dataclass(frozen=True, slots=True)
class Point:
    """Until when a message keeps others from being published, and what its run keeps out."""

    seat_end: SeatEnd
    run_on: RunOn
    is_blocked_by_run: bool


POINTS: Final = {
    "unique": Point("end", "key", is_blocked_by_run=True),
    "latest": Point("start", "key", is_blocked_by_run=False),
    "serial": Point("none", "message", is_blocked_by_run=False),
}


@dataclass(slots=True)
class KeyClient:
    """Asks about one key."""

    side: Side
    point_name: str = "unique"
    key: str = "k"
    record: RecordName = field(init=False)
    point: Point = field(init=False)

    def __post_init__(self) -> None:
        """Take a namespace of its own."""
        self.record = RecordName(self.side.name("app"), self.key)
        self.point = POINTS[self.point_name]

    @property
    def record_key(self) -> str:
        return once_keys(self.record.namespace, self.key).record

    def message_key(self, message: str) -> str:
        return f"{once_keys(self.record.namespace, self.key).messages}:{message}"

    def claim(
        self,
        message: str,
        seen: str = "p",
        *,
        wait_ms: int = LONG_MS,
        remember_ms: int = LONG_MS,
        delay_ms: int = 0,
        delay_max_ms: int = 0,
        resend_ms: int = 0,
        call: str = "",
    ) -> Any:  # noqa: ANN401  # any of its answers, compared whole
        times = (wait_ms, remember_ms, delay_ms, delay_max_ms, resend_ms, self.point.is_blocked_by_run)
        return self.side.execute(op.ClaimKey(self.record, message, seen, "task", *times, call))

    def begin(  # noqa: PLR0913  # as many as a beginning has
        self,
        message: str,
        holder: str = "",
        *,
        seen: str = "p",
        ttl_ms: int = LONG_MS,
        remember_ms: int = LONG_MS,
        on_lapse: OnLapse = "again",
        attempt: int = 0,
        follows: str = "",
        round_number: int = 0,
        at_once: int = 0,
        text: str = "",
    ) -> Any:  # noqa: ANN401  # as above
        who = (self.record, message, holder or f"{message}'s", seen, "task", ttl_ms, remember_ms)
        how = (self.point.seat_end, self.point.run_on, on_lapse, attempt, follows, round_number, at_once)
        return self.side.execute(op.BeginRun(*who, *how, text))

    def token(self, message: str, holder: str = "", *, ttl_ms: int = LONG_MS, on_lapse: OnLapse = "again") -> int:
        """Begin, and return the token."""
        answer = self.begin(message, holder, ttl_ms=ttl_ms, on_lapse=on_lapse)
        assert isinstance(answer, RunBegun)
        return answer.fencing_token

    def renew(self, message: str, holder: str = "", *, ttl_ms: int = LONG_MS) -> Any:  # noqa: ANN401  # as above
        holder = holder or f"{message}'s"
        return self.side.execute(op.RenewRun(self.record, message, holder, ttl_ms, LONG_MS, self.point.run_on))

    def finishing(
        self,
        message: str,
        token: int,
        holder: str = "",
        *,
        kind: OutcomeKind = "value",
        body: str = "1",
        keep_ms: int = 0,
        remember_ms: int = LONG_MS,
    ) -> op.FinishRun:
        who = (self.record, message, holder or f"{message}'s", token)
        what = (kind, body, keep_ms, remember_ms)
        return op.FinishRun(*who, *what, self.point.run_on)

    def finish(self, message: str, token: int, holder: str = "", *, body: str = "1", keep_ms: int = 0) -> Any:  # noqa: ANN401  # as above
        return self.side.execute(self.finishing(message, token, holder, body=body, keep_ms=keep_ms))

    def run(self, message: str, *, body: str = "1", keep_ms: int = 0) -> int:
        """Begin and finish; return the token."""
        token = self.token(message)
        self.finish(message, token, body=body, keep_ms=keep_ms)
        return token

    def abandon(
        self,
        message: str,
        holder: str = "",
        *,
        next_attempt: int | None = None,
        wait_ms: int = LONG_MS,
    ) -> Any:  # noqa: ANN401  # as above
        who = (self.record, message, holder or f"{message}'s", LONG_MS)
        where = (self.point.seat_end, self.point.run_on)
        return self.side.execute(op.AbandonRun(*who, *where, next_attempt, wait_ms))

    def cancel(self, message: str, *, is_dead: bool = False, remember_ms: int = LONG_MS) -> Any:  # noqa: ANN401  # as above
        return self.side.execute(op.CancelMessage(self.record, message, remember_ms, self.point.run_on, is_dead))

    def free(self, message: str = "") -> Any:  # noqa: ANN401  # as above
        return self.side.execute(op.FreeKey(self.record, message, LONG_MS))

    def settle(self, kind: OutcomeKind | None, body: str = "", *, keep_ms: int = 0, message: str = "") -> Any:  # noqa: ANN401  # as above
        return self.side.execute(op.SettleRun(self.record, LONG_MS, kind, body, keep_ms, message))

    def read(self, message: str = "") -> RecordState | None:
        return self.side.execute(op.ReadRecord(self.record, message))

    def claims(self) -> tuple[tuple[str, str | None], ...]:
        """Return what is held, as key and message."""
        listing = op.ListClaims(self.record.namespace, once_partition(self.key), 100)
        return tuple((claim.key, claim.message) for claim in self.side.execute(listing))
