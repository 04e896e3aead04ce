"""The assignment of a measuring process and its answers: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from bench import sizing
from bench.sections import Section
from bench.strategies.base import StrategyContext, with_connections

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from segmented.stores.redis import RedisStore

SPARE_SECONDS: Final = 30.0
"""Seconds to start, audit and clean up."""
SPARE_CONNECTIONS: Final = 8
"""Connections for the listener, the meter and the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One measurement of `strategy`. All times are in seconds."""

    strategy: str
    sku: str
    url: str
    database: str
    segments: int
    buyers: int
    extra_hold: float
    seconds: float

    def as_json(self) -> str:
        """Return the assignment as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read an assignment from its line."""
        found: dict[str, Any] = json.loads(line)
        return cls(**found)

    @property
    def drain(self) -> float:
        """Seconds for the buyers to finish their last orders."""
        return sizing.drain(self.buyers, self.extra_hold)

    @property
    def seconds_at_most(self) -> float:
        """Seconds after which the measurement has failed."""
        sales = sizing.calibration(self.extra_hold) + sizing.time_limit(self.seconds)
        return sales + 2 * self.drain + SPARE_SECONDS

    def context(self, store: RedisStore, engine: Engine) -> StrategyContext:
        """Return the strategy's context: the extra hold, then a real commit."""
        return StrategyContext(
            store=store,
            engine=engine,
            segments=self.segments,
            buyers=self.buyers,
            section=Section("commit", self.extra_hold * 1_000),
            url=self.pooled_url,
        )

    @property
    def pooled_url(self) -> str:
        """The URL of Redis with one connection per buyer."""
        return with_connections(self.url, self.buyers + SPARE_CONNECTIONS)
