"""The record of one run of the demo, its percentiles, and the validation of written records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self, get_args, get_type_hints

import numpy as np

from bench.granularity.percentiles import histogram_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Wait:
    """Milliseconds from request to grant, for orders that finished in the measured window."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One measurement of one strategy. Numbers that are unknown or do not count are null."""

    strategy: str
    is_control: bool
    """True for a strategy that is run to show how it fails."""
    segments: int
    buyers: int
    hold_ms: float
    """Mean of the measured holds, by the server's clock if there is a ledger."""
    lone_hold_ms: float
    """Mean hold of a lone buyer, measured before the sale; the bound is lanes / this."""
    extra_hold_ms: float
    """The configured sleep inside the hold."""
    orders_per_s: float | None
    """Acknowledged orders in the window; null for a run that broke a promise."""
    bound_per_s: float
    stock: int
    sold: int
    sold_in_sql: int
    oversold: int
    oversold_in_redis: int
    oversold_in_sql: int
    refused: int
    refused_wrongly: int
    refused_by_gate: int
    """Orders that the pool granted and the order database did not confirm."""
    failed: int
    """Orders that ended in an error, so that the buyer does not know the outcome."""
    is_sold_out: bool
    wait_ms: Wait
    orders_measured: int
    warm_up_s: float
    """Seconds left out at the beginning of the measured sale; the calibration sale is left out too."""
    window_s: float
    generator_cpu: float
    redis_cpu: float
    database_cpu: float | None
    machine_cpu: float
    """Cores busy with anything."""
    others_cpu: float
    """Cores busy with anything but generator, Redis and database."""
    audit: str
    """`clean`, the drift, or `none` if nothing can be audited."""
    violations: tuple[str, ...]
    """Broken guarantees; the control's expected failure is not one."""

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return asdict(self) | {"violations": list(self.violations)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read a record. Raises ValueError that names what is wrong."""
        wrong = check_record(found)
        if wrong:
            message = f"not a record of a run: {'; '.join(wrong)}"
            raise ValueError(message)
        read = dict(found) | {"wait_ms": Wait(**found["wait_ms"]), "violations": tuple(found["violations"])}
        return cls(**read)


def check_record(found: Mapping[str, Any]) -> list[str]:
    """Return the errors of a record: missing, unknown or wrongly typed keys, and contradictions."""
    wrong = _check_keys(found, RunRecord, "")
    if isinstance(found.get("wait_ms"), dict):
        wrong += _check_keys(found["wait_ms"], Wait, "wait_ms.")
    return wrong or _contradictions(found)


_JSON: Final[dict[Any, tuple[type, ...]]] = {
    float: (float, int),
    Wait: (dict,),
    tuple[str, ...]: (list, tuple),
    type(None): (type(None),),
}


def _check_keys(found: Mapping[str, Any], shape: type[Any], where: str) -> list[str]:
    hints = get_type_hints(shape)
    names = [field.name for field in fields(shape)]
    wrong = [f"no {where}{name}" for name in names if name not in found]
    wrong += [f"unknown {where}{name}" for name in found if name not in names]
    for name in names:
        kinds = get_args(hints[name]) if type(None) in get_args(hints[name]) else (hints[name],)
        allowed = tuple(kind for given in kinds for kind in _JSON.get(given, (given,)))
        value = found.get(name)
        is_bool_for_number = isinstance(value, bool) and bool not in allowed
        if name in found and (is_bool_for_number or not isinstance(value, allowed)):
            wrong.append(f"{where}{name} is {value!r}")
    return wrong


def _contradictions(found: Mapping[str, Any]) -> list[str]:
    wait = found["wait_ms"]
    wrong = []
    if not wait["p50"] <= wait["p99"] <= wait["max"]:
        wrong.append(f"wait_ms is not in order: {wait}")
    if found["oversold"] != max(found["oversold_in_redis"], found["oversold_in_sql"]):
        wrong.append("oversold is not the greater one of Redis and SQL")
    if found["violations"] and found["orders_per_s"] is not None:
        wrong.append("a run that broke a promise has no throughput")
    return wrong


def waits(seconds: Iterable[float]) -> Wait:
    """Return percentiles in milliseconds; all 0 without samples."""
    histogram = histogram_of(np.fromiter(seconds, np.float64))
    if not histogram.get_total_count():
        return Wait(0.0, 0.0, 0.0)
    p50, p99, highest = (histogram.get_value_at_percentile(percentile) / 1_000 for percentile in (50, 99, 100))
    return Wait(p50, p99, highest)
