"""Records of runs for tests: a plausible one, to be changed by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.record import RunRecord, Wait

if TYPE_CHECKING:
    from typing import Any

PLAUSIBLE: Final = RunRecord(
    strategy="segment-locks",
    is_control=False,
    segments=20,
    buyers=64,
    hold_ms=22.5,
    extra_hold_ms=20.0,
    orders_per_s=840.0,
    bound_per_s=888.89,
    stock=13_334,
    sold=13_334,
    sold_in_sql=13_334,
    oversold=0,
    oversold_in_redis=0,
    oversold_in_sql=0,
    refused=5_000,
    refused_wrongly=0,
    refused_by_gate=0,
    failed=0,
    is_sold_out=True,
    wait_ms=Wait(50.0, 60.0, 61.0),
    orders_measured=12_000,
    warm_up_s=1.0,
    window_s=14.2,
    generator_cpu=0.55,
    redis_cpu=0.15,
    database_cpu=0.16,
    machine_cpu=0.9,
    others_cpu=0.04,
    audit="clean",
    violations=(),
)


def record(**changes: Any) -> RunRecord:  # noqa: ANN401  # any field of a record
    """Return the plausible record with these fields changed."""
    return replace(PLAUSIBLE, **changes)
