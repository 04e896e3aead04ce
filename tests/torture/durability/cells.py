"""The cells of the table: how the stock's server is set up and the pool is used, and which fault is injected."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from segmented.errors import InvalidInput
from tests.torture.options import require_seed, require_within

TRIALS_MAX: Final = 1_000
QUICK_TRIALS: Final = 3


@dataclass(frozen=True, slots=True)
class Profile:
    """A set-up of the stock's server, and whether an order database decides the pool's orders."""

    name: str
    summary: str
    fsync: str | None
    """The server's `appendfsync`; None: it keeps nothing on disk."""
    has_replica: bool = False
    is_gated: bool = False
    pool_profile: str | None = None
    """The profile that the pool is opened with; None: the default."""
    watched_by: Literal["sentinel", "cluster"] | None = None
    """What notices that the server is down, and promotes its replica; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and what an operator then does to have a server again."""

    name: str
    summary: str
    needs_replica: bool | None = None
    """True: only with a replica; False: only without one; None: with both."""
    needs_watchers: bool | None = None
    """True: only where the replica is promoted by itself; False: only where it is not; None: everywhere."""

    def fits(self, profile: Profile) -> bool:
        """Return whether the fault can happen to this set-up."""
        has_watchers = profile.watched_by is not None
        return self.needs_replica in {None, profile.has_replica} and self.needs_watchers in {None, has_watchers}


@dataclass(frozen=True, slots=True)
class Cell:
    """One profile under one fault."""

    profile: Profile
    fault: Fault

    @property
    def name(self) -> str:
        """The name by which `--cell` finds it."""
        return f"{self.profile.name}/{self.fault.name}"

    @property
    def cuts_files(self) -> bool:
        """Return whether the fault cuts files, for which the server's syncs must be noted."""
        return self.fault in {POWER_LOSS, BOTH_POWER_LOSS} and self.profile.fsync is not None

    @property
    def needs_compiler(self) -> bool:
        """Return whether a library is preloaded into a server."""
        return self.cuts_files or self.fault is REPLICA_BEHIND_CLOCK


_REPLICATED: Final = Profile("replicated", "as `everysec`, with an asynchronous replica", "everysec", has_replica=True)
_SENTINEL: Final = replace(
    _REPLICATED,
    name="sentinel",
    summary="as `replicated`, watched by three Sentinels, which promote the replica",
    watched_by="sentinel",
)
_CLUSTER: Final = replace(
    _REPLICATED,
    name="cluster",
    summary="a cluster of three masters with a replica each, append-only files, `appendfsync everysec`",
    watched_by="cluster",
)
_MEMORY: Final = Profile("memory", "the server keeps nothing on disk", None)


def _with_profile(profile: Profile, pool_profile: str) -> Profile:
    summary = f"as `{profile.name}`, and the pool is opened with the profile `{pool_profile}`"
    return replace(profile, name=f"profile-{profile.name}", summary=summary, pool_profile=pool_profile)


def _with_database(profile: Profile) -> Profile:
    summary = f"as `{profile.name}`, and an order database (SQLite) decides"
    return replace(profile, name=f"database-{profile.name}", summary=summary, is_gated=True)


_FSYNC: Final = Profile("fsync", "append-only file, `appendfsync always`", "always")
PROFILES: Final = (
    _MEMORY,
    Profile("everysec", "append-only file, `appendfsync everysec`", "everysec"),
    *(_FSYNC, _REPLICATED),
    *(_with_profile(_FSYNC, "fsync"), _with_profile(_REPLICATED, "replicated:1/200ms")),
    *(_SENTINEL, _CLUSTER),
    *(_with_database(profile) for profile in (_MEMORY, _REPLICATED, _SENTINEL, _CLUSTER)),
)

CLIENT_KILL: Final = Fault("client-kill", "one of the two buying processes gets a SIGKILL")
WORKER_KILL: Final = Fault(
    "worker-kill", "orders are submitted, and one of the two workers that finish them gets a SIGKILL"
)
POWER_LOSS: Final = Fault(
    "power-loss",
    "the server gets a SIGKILL, its files are cut at the last byte that it had synced, and it is restarted",
    needs_replica=False,
)
BOTH_POWER_LOSS: Final = Fault(
    "both-power-loss", "as power-loss, for server and replica at once; the server is restarted", needs_replica=True
)
REPLICA_BEHIND: Final = Fault(
    "replica-behind",
    "the replica loses its link and misses sales, the server gets a SIGKILL, the replica is promoted",
    needs_replica=True,
)
REPLICA_BEHIND_CLOCK: Final = Fault(
    "replica-behind-clock", "as replica-behind, and the replica's clock is 30 s behind", needs_replica=True
)
REPLICA_STALLED: Final = Fault(
    "replica-stalled",
    "the replica gets a SIGSTOP, the server a SIGKILL after some sales, the replica a SIGCONT; it is promoted",
    needs_replica=True,
)
NO_QUORUM: Final = Fault(
    "no-quorum",
    "the server gets a SIGKILL, and so do most of those who elect another one; they are restarted after 7 s",
    needs_watchers=True,
)
OLD_DUMP: Final = Fault(
    "old-dump",
    "an operator stops the server, and starts it with a copy of its data from earlier in the sale",
    needs_watchers=False,
)
FAULTS: Final = (
    *(CLIENT_KILL, WORKER_KILL),
    Fault("server-kill", "the server gets a SIGKILL; it is restarted, or its replica is promoted if it has one"),
    *(POWER_LOSS, BOTH_POWER_LOSS, REPLICA_BEHIND, REPLICA_BEHIND_CLOCK, REPLICA_STALLED, NO_QUORUM, OLD_DUMP),
)

CELLS: Final = tuple(Cell(profile, fault) for profile in PROFILES for fault in FAULTS if fault.fits(profile))


@dataclass(frozen=True, slots=True, kw_only=True)
class DurabilityOptions:
    """The options of a run."""

    trials: int = 30
    cell: str = "*"
    seed: int = 1
    is_quick: bool = False

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--trials", self.trials, 1, TRIALS_MAX)
        require_seed(self.seed)
        if not self.cells:
            names = ", ".join(cell.name for cell in CELLS)
            raise InvalidInput(f"--cell {self.cell!r} matches none of the cells: {names}")

    @property
    def cells(self) -> list[Cell]:
        """The cells to run."""
        return [cell for cell in CELLS if fnmatchcase(cell.name, self.cell)]

    @property
    def trial_count(self) -> int:
        """Trials of each cell."""
        return min(self.trials, QUICK_TRIALS) if self.is_quick else self.trials
