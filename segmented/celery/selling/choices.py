"""The options of `segmented sell`, checked as far as possible without contacting a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.files import check_apart, check_writable
from segmented.masking import masked
from segmented.models import SEGMENT_COUNT_MAX, STOCK_MAX
from segmented.orders.engine import parse

if TYPE_CHECKING:
    from pathlib import Path

WORKERS_MAX: Final = 64
STOCK_SCHEMES: Final = ("redis://", "rediss://", "unix://")
REPUBLISH_SECONDS_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of one sale."""

    file: Path
    stock: int
    segment_count: int
    sku: str | None
    worker_count: int
    url: str | None
    database: str | None
    broker: str | None
    data: Path | None
    results: Path | None
    json: Path | None
    republish_after: float

    @property
    def is_kept(self) -> bool:
        """Return whether the servers outlive the sale."""
        return self.data is not None or None not in (self.url, self.database)

    def check(self) -> None:
        """Check the options. Raises InvalidInput."""
        _check_range("--stock", self.stock, STOCK_MAX)
        _check_range("--segments", self.segment_count, SEGMENT_COUNT_MAX)
        _check_range("--workers", self.worker_count, WORKERS_MAX)
        if self.sku is not None and not self.sku.strip():
            message = "--sku names no sku"
            raise InvalidInput(message)
        if not self.republish_after >= REPUBLISH_SECONDS_MIN:
            message = f"--republish-after {self.republish_after:g} must be {REPUBLISH_SECONDS_MIN:g} second or more"
            raise InvalidInput(message)
        given = [name for name, value in (("--url", self.url), ("--database", self.database)) if value is not None]
        if self.data is not None and given:
            message = (
                f"--data keeps the servers that this command starts, so {' and '.join(given)} cannot be given with it"
            )
            raise InvalidInput(message)
        if self.url is not None and not self.url.startswith(STOCK_SCHEMES):
            message = f"--url {masked(self.url)} is not a Redis URL: it should begin with {', '.join(STOCK_SCHEMES)}"
            raise InvalidInput(message)
        if self.database is not None:
            parse(self.database)
        for option, path in (("--results", self.results), ("--json", self.json)):
            if path is not None:
                check_writable(path, option)
        check_apart({"the orders": self.file, "--results": self.results, "--json": self.json})


def _check_range(option: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        message = f"{option} {value} must be between 1 and {most:,}"
        raise InvalidInput(message)
