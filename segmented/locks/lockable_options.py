"""What `lockable` was told about the lock, the waiting, and a lock that stays busy."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal

from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.durations import checked_timeout, is_whole, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OnBusy = Literal["raise", "skip", "run"]
ON_BUSY: Final = ("raise", "skip", "run")


@dataclass(frozen=True, slots=True)
class LockOptions:
    """How to lock, how long to try, and what else to do. Checked as it is made."""

    lease: float
    renew: bool
    renew_max: float
    wait: float | None
    retries: int
    retry_every: float
    on_busy: OnBusy | Callable[..., object]

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in one sentence."""
        milliseconds(self.lease, "lease")
        milliseconds(self.renew_max, "renew_max")
        checked_timeout(self.wait)
        if not is_whole(self.retries) or self.retries < 0:
            message = f"retries of {self.retries!r} is not a number of further tries: give 0 or more"
            raise InvalidInput(message)
        if not isfinite(self.retry_every) or self.retry_every < 0:
            message = f"retry_every of {self.retry_every!r} s is not a time between tries: give 0 or more"
            raise InvalidInput(message)
        if self.on_busy not in ON_BUSY and not callable(self.on_busy):
            message = f"on_busy is {self.on_busy!r}: give one of {', '.join(ON_BUSY)}, or a callable"
            raise InvalidInput(message)

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each try."""
        yield 0.0
        for _ in range(self.retries):
            yield self.retry_every

    @property
    def runs_unlocked(self) -> bool:
        """Was it asked for in so many words that the body runs without the lock?"""
        return self.on_busy == "run"

    def give_up(self, name: str, error: AcquireTimeout) -> None:
        """Raise AcquireTimeout after the last try, with the time of all tries; unless something else was asked for."""
        if self.on_busy == "raise":
            in_all = error.timeout * (self.retries + 1) + self.retry_every * self.retries
            raise AcquireTimeout(name, in_all, is_delayed=error.is_delayed) from error

    def instead(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401  # the caller's own
        """Return what a call gives whose body does not run."""
        return self.on_busy(*arguments, **options) if callable(self.on_busy) else None
