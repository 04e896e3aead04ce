"""One round of a contender: a name, how long it waits and holds, and the lock, each drawn at random.

The lock of each kind is there for threads and for asyncio tasks, with how the resource sees its holder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from segmented.errors import AcquireTimeout, LeaseLost, PartlyReleased, StoreUnavailable
from segmented.locks.fair import AsyncFairLock, FairLock
from segmented.locks.lock import AsyncLock, Lock
from segmented.locks.multi import AsyncMultiLock, MultiLock
from segmented.locks.other_servers.quorum import AsyncQuorumLock, QuorumLock
from segmented.locks.read_write import AsyncReadWriteLock, ReadWriteLock
from segmented.locks.reentrant import AsyncReentrantLock, ReentrantLock, task_owner, thread_owner
from segmented.locks.semaphore import AsyncSemaphore, Semaphore
from segmented.plans.drivers import AsyncStore, Store
from tests.torture.locks.options import PERMITS, TortureOptions
from tests.torture.locks.resource import EXCLUSIVE, PERMIT, SHARED, AccessRequest


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of one process of contenders."""

    options: TortureOptions
    urls: list[str]
    socket_path: str
    """Path of the resource's socket."""
    names: list[str]
    prefix: str
    """Prefix of the names of the run's connections to the servers."""
    process: int = 0
    """Its number, from 1; no two processes of a run have the same."""

    @property
    def client_name(self) -> str:
        """Name of the process's connections to the servers."""
        return f"{self.prefix}-{self.process}"

    def random(self, contender: str) -> Random:
        """Return the random numbers of a contender of this process."""
        return Random(f"{self.options.seed}/{self.process}/{contender}")


WRITERS: Final = 0.4
"""Share of writers among the users of a read-write lock."""
SINGLES: Final = 0.3
"""Share of plain locks among the multi-name acquisitions."""
AGAIN: Final = 0.3
"""Share of owners that acquire again while they hold the lock."""
CLASSES: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "lock": (Lock, AsyncLock),
    "reentrant": (ReentrantLock, AsyncReentrantLock),
    "fair": (FairLock, AsyncFairLock),
    "read_write": (ReadWriteLock, AsyncReadWriteLock),
    "semaphore": (Semaphore, AsyncSemaphore),
    "multi": (MultiLock, AsyncMultiLock),
    "quorum": (QuorumLock, AsyncQuorumLock),
}
"""The classes of each kind: for threads, and for tasks."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a contender: which lock to acquire, how, and for how long."""

    names: Sequence[str]
    """All names of the run."""
    name: str
    """The name to acquire, for kinds with one name."""
    ttl: float
    renew: bool
    timeout: float
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContendedLock:
    """A lock that one thread or task acquires, and how the resource sees its holder."""

    acquire: Callable[[], Any]
    """Return a lease; in a task, what to await or to enter for it."""
    mode: str = EXCLUSIVE
    owner: Callable[[], str] | None = None
    """Returns the holder if that is the thread or task, rather than the lease."""
    is_entered_again: bool = False
    """Whether the holder acquires it once more inside."""

    def requests(self, lease: Any, *, now: float, asked_at: float) -> list[AccessRequest]:  # noqa: ANN401  # leases of several kinds
        """Return what the holder asks of the resource. Call it in the thread or task that acquired the lease."""
        holder = str(lease.holder_id) if self.owner is None else self.owner()
        return [
            AccessRequest(name, token, holder, self.mode, now, lease.trusted_until, now - asked_at)
            for name, token in tokens_of(lease).items()
        ]


def tokens_of(lease: Any) -> Mapping[str, int | None]:  # noqa: ANN401  # as above
    """Return the fencing token of each name."""
    several: Mapping[str, int] | None = getattr(lease, "fencing_tokens", None)
    return {lease.name: getattr(lease, "fencing_token", None)} if several is None else dict(several)


def lock_of(kind: str, store: Store | AsyncStore, drawn: Round, random: Random, *, in_task: bool) -> ContendedLock:
    """Return the lock of one round."""
    made = partial(CLASSES[kind][in_task], store, ttl=drawn.ttl, renew=drawn.renew)
    timeout = drawn.timeout
    match kind:
        case "reentrant":
            owned, again = made(drawn.name), random.random() < AGAIN
            owner = task_owner if in_task else thread_owner
            return ContendedLock(partial(owned.acquire, timeout=timeout), owner=owner, is_entered_again=again)
        case "read_write":
            if random.random() < WRITERS:
                return ContendedLock(partial(made(drawn.name).write.acquire, timeout=timeout))
            return ContendedLock(partial(made(drawn.name).read.acquire, timeout=timeout), SHARED)
        case "semaphore":
            semaphore = made(drawn.name, permits=PERMITS)
            return ContendedLock(partial(semaphore.acquire, timeout=timeout), PERMIT)
        case "multi":
            if random.random() < SINGLES:
                return lock_of("lock", store, drawn, random, in_task=in_task)
            several = made(random.sample(drawn.names, min(2, len(drawn.names))))
            return ContendedLock(partial(several.acquire, timeout=timeout))
    return ContendedLock(partial(made(drawn.name).acquire, timeout=timeout))


MOMENT: Final = 0.02
"""Maximum seconds of a short hold."""
RENEWED: Final = 0.04
"""Share of holders that hold longer than the lease, and renew."""
OVERSLEPT: Final = 0.06
"""Share of holders that hold longer than the lease, and do not renew."""
TRIES: Final = 0.1
"""Share of contenders that do not wait."""
IMPATIENT: Final = 0.1
"""Share of contenders with a short timeout."""
IMPATIENT_SECONDS: Final = 0.05
PATIENT_SECONDS: Final = 10.0

NOT_ACQUIRED: Final = (AcquireTimeout, LeaseLost, StoreUnavailable)
"""Errors of an acquire that a fault may cause."""
NOT_RELEASED: Final = (LeaseLost, StoreUnavailable, PartlyReleased)
"""Errors of a release that a fault may cause: the lease expires on its own, or has expired."""


def draw_round(random: Random, assignment: Assignment) -> Round:
    """Draw the next round of a contender."""
    ttl, roll = assignment.options.what().ttl, random.random()
    is_renewed = roll < RENEWED
    is_overslept = not is_renewed and roll < RENEWED + OVERSLEPT
    hold_s = random.uniform(0.0, MOMENT)
    if is_renewed:
        hold_s = ttl * random.uniform(0.8, 1.6)
    elif is_overslept:
        hold_s = ttl * random.uniform(1.2, 1.8)
    name = random.choice(assignment.names)
    return Round(assignment.names, name, ttl, is_renewed, _patience(random), hold_s)


def reason_of(error: Exception) -> str:
    """Return why a contender did not get the lock: `timeout`, `late` or `unavailable`."""
    return {AcquireTimeout: "timeout", LeaseLost: "late"}.get(type(error), "unavailable")


def _patience(random: Random) -> float:
    roll = random.random()
    if roll < TRIES:
        return 0.0
    return IMPATIENT_SECONDS if roll < TRIES + IMPATIENT else PATIENT_SECONDS
