"""The contenders, each with its adapter, its pinned environment and its features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.dedup_peers.rows import ALONE, AT_WORKER, HANDLE, KEPT, KEY, PAYLOAD, REDELIVERED, SUCCEEDED, WHEN_DOWN

HERE: Final = Path(__file__).parent
ADAPTERS: Final = "bench.dedup_peers.adapters"
CELERY: Final = ("celery", "kombu", "redis")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with pinned packages."""

    name: str

    @property
    def requirements(self) -> Path:
        """Return the file of pinned requirements."""
        return HERE / f"requirements-{self.name}.txt"


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to deduplicate tasks, or plain Celery."""

    name: str
    title: str
    """Its name on the page."""
    adapter: str
    environment: Environment | None
    """None: the project's own environment."""
    offers: frozenset[str]
    packages: tuple[str, ...] = CELERY
    """Packages whose versions are reported."""


PLAIN: Final = Environment("celery")
OURS: Final = "segmented"
CONTENDERS: Final = (
    Contender(
        name=OURS,
        title="segmented `Once`",
        adapter=f"{ADAPTERS}.segmented_once",
        environment=None,
        offers=frozenset({ALONE, SUCCEEDED, REDELIVERED, KEY, HANDLE, PAYLOAD, KEPT, AT_WORKER, WHEN_DOWN}),
        packages=("segmented", *CELERY),
    ),
    Contender(
        name="celery-once",
        title="celery-once",
        adapter=f"{ADAPTERS}.celery_once_library",
        environment=Environment("celery-once"),
        offers=frozenset({ALONE, KEY}),
        packages=("celery-once", *CELERY),
    ),
    Contender(
        name="celery-singleton",
        title="celery-singleton",
        adapter=f"{ADAPTERS}.celery_singleton_library",
        environment=Environment("celery-singleton"),
        offers=frozenset({ALONE, KEY, HANDLE}),
        packages=("celery-singleton", *CELERY),
    ),
    Contender(
        name="celery-deduplicating",
        title="Celery, deduplicating",
        adapter=f"{ADAPTERS}.celery_deduplicating",
        environment=PLAIN,
        offers=frozenset({SUCCEEDED}),
    ),
    Contender(
        name="celery",
        title="Celery",
        adapter=f"{ADAPTERS}.celery_plain",
        environment=PLAIN,
        offers=frozenset(),
    ),
)
