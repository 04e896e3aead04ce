"""What a run needs to count beside its guarantees: enough length, or a generator that was on time (R3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.granularity.percentiles import p99_ms
from bench.granularity.sale import FAILED_MAX

if TYPE_CHECKING:
    from bench.granularity.assignment import RunAssignment
    from bench.granularity.measurement import Measurement
    from bench.granularity.sale import Sale

LATE_SHARE: Final = 0.1
"""Maximum p99 of the lateness as a share of the response's p99; above it the run is void."""
SHED_SHARE: Final = 0.001
"""Share of planned orders that may be shed before a point counts as beyond saturation."""

LEAST_SHARE: Final = 1 / 3
"""Minimum share of its planned seconds that a closed run must have measured."""


def too_short(assignment: RunAssignment, measurement: Measurement) -> tuple[str, ...]:
    """Return why a closed run is void: it was calibrated while the machine was slow, and sold out too soon."""
    least = LEAST_SHARE * assignment.seconds
    if assignment.cell.stock is not None or measurement.window_s >= least:
        return ()
    return (f"sold out too soon: {measurement.window_s:.3f} s were measured, and it takes {least:.3f} s",)


def voided(sale: Sale, measurement: Measurement) -> tuple[str, ...]:
    """Return why an open run is void, one sentence each: a late generator, or a sale that was given up."""
    recorder = sale.recorder
    found = []
    if len(recorder.failures) >= FAILED_MAX:
        found.append(f"given up after {len(recorder.failures)} orders without an answer: {recorder.failures[0]}")
    if sale.unfinished_count:
        found.append(f"orders that had not ended when the run did: {sale.unfinished_count}")
    intended = np.asarray(recorder.intended)
    inside = (intended >= measurement.window_begin) & (intended < measurement.window_end)
    if inside.any():
        late = p99_ms((np.asarray(recorder.asked) - intended)[inside])
        response = p99_ms((np.asarray(recorder.done) - intended)[inside])
        if late > LATE_SHARE * response:
            found.append(
                f"the generator was late: p99 of the lateness is {late:.3f} ms, more than {LATE_SHARE:.0%} "
                f"of the response's {response:.3f} ms"
            )
    return tuple(found)


def noted(sale: Sale, measurement: Measurement) -> tuple[str, ...]:
    """Return notes on an open run that is not void: whether the load was beyond saturation."""
    if measurement.shed <= SHED_SHARE * measurement.planned:
        return ()
    share = measurement.shed / measurement.planned
    note = (
        f"beyond saturation: {measurement.shed} of {measurement.planned} orders ({share:.1%}) found all "
        f"{sale.cell.buyers} buyers busy, were never sent, and count as failures"
    )
    return (note,)
