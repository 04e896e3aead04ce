"""Exact counts of one operation: the server's own counts for one client, minus the cost of reading them.

The committed counts, and their comparison with new ones. A better count is a difference too, to be committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    import redis

GATED: Final = ("commands", "round_trips", "attempts", "bytes")
"""Fields that must be equal in every run; times are only shown."""
NOT_COUNTED: Final = frozenset({"cmdstat_info", "cmdstat_config|resetstat"})
BASELINE: Final = Path(__file__).with_name("baseline.json")
SCHEMA: Final = "segmented-counts/1"
REWRITE: Final = "write the baseline with `python -m bench.micro.counts --write`, and commit it"


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals of a fixed sequence of `orders` orders."""

    orders: int
    commands: int
    """Commands processed by the server, those inside scripts included."""
    round_trips: int
    """Reads of the server's event loop; with one client that waits for each answer, one per round trip."""
    attempts: int
    """Lock requests as the strategy reports them; 0 for an operation that reports none."""
    bytes: int
    """Network bytes in and out of the server."""
    server_us: int = 0
    """CPU microseconds of the server. They differ from run to run."""

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Tally:
        """Return the tally from a baseline, which has no times."""
        return cls(**{name: int(found[name]) for name in ("orders", *GATED)})

    def as_json(self) -> dict[str, int]:
        """Return the fields for the baseline."""
        return {name: value for name, value in asdict(self).items() if name != "server_us"}

    def each(self, name: str) -> str:
        """Return a count per order, as the shortest exact fraction or decimal."""
        return f"{getattr(self, name) / self.orders:,.6g}"


class Counter:
    """Reads the server's counts over its own connection, and subtracts the cost of reading."""

    def __init__(self, client: redis.Redis) -> None:
        """Measure the cost of reading: a reading includes its own request, but not the reset before it."""
        self._client = client
        client.info("everything")  # connect, and finish the handshake
        self._cpu_us = 0
        self.begin()
        self._overhead = self._read()

    def begin(self) -> None:
        """Start counting."""
        self._client.config_resetstat()
        found: Any = self._client.info("cpu")
        self._cpu_us = _cpu_us(found)

    def tally(self, orders: int, attempts: int) -> Tally:
        """Return the counts since `begin`."""
        now = self._read()
        reads, size = now["reads"] - self._overhead["reads"], now["bytes"] - self._overhead["bytes"]
        return Tally(orders, now["commands"], reads, attempts, size, max(0, now["us"] - self._overhead["us"]))

    def _read(self) -> dict[str, int]:
        found: Any = self._client.info("everything")
        stats = {name: one for name, one in found.items() if name.startswith("cmdstat_") and name not in NOT_COUNTED}
        return {
            "commands": sum(int(one["calls"]) for one in stats.values()),
            "us": _cpu_us(found) - self._cpu_us,
            "reads": int(found["total_reads_processed"]),
            "bytes": int(found["total_net_input_bytes"]) + int(found["total_net_output_bytes"]),
        }


def _cpu_us(found: dict[str, Any]) -> int:
    return round((float(found["used_cpu_user"]) + float(found["used_cpu_sys"])) * 1_000_000)


def read_baseline(file: Path) -> dict[str, Tally]:
    """Read the counts. Raises InvalidInput that names the error in the file."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            message = f"{file} is of schema {found['schema']!r}, and this reads {SCHEMA!r}"
            raise InvalidInput(message)
        return {name: Tally.from_json(one) for name, one in found["counts"].items()}
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise InvalidInput(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        message = f"{file} is not a baseline of counts: {error!r}"
        raise InvalidInput(message) from error


def write_baseline(file: Path, counts: Mapping[str, Tally]) -> None:
    """Write the counts, without fields that differ from run to run."""
    whole = {"schema": SCHEMA, "counts": {name: tally.as_json() for name, tally in counts.items()}}
    file.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def differences(counts: Mapping[str, Tally], baseline: Mapping[str, Tally]) -> list[str]:
    """Return the differences, one sentence each, increases first."""
    worse: list[str] = []
    better: list[str] = []
    for name, tally in counts.items():
        before = baseline.get(name)
        if before is None:
            better.append(f"{name} has no baseline: {REWRITE}")
            continue
        if before.orders != tally.orders:
            better.append(f"{name} was counted over {before.orders} orders, and now over {tally.orders}: {REWRITE}")
            continue
        for field in GATED:
            old, new = getattr(before, field), getattr(tally, field)
            said = f"{name}: {field.replace('_', ' ')} an order {before.each(field)} -> {tally.each(field)}"
            if new > old:
                worse.append(f"{said}: it went up")
            elif new < old:
                better.append(f"{said}: it went down; {REWRITE}")
    gone = [f"{name} is in the baseline and was not counted: {REWRITE}" for name in baseline if name not in counts]
    return worse + better + gone
