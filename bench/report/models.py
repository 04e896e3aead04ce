"""The models of bench.analysis as lines in the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.analysis.calibration import Calibration, calibrate
from bench.analysis.model_error import MODELS, ceiling_of, ideal_hold, predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.analysis.model_error import Model
    from bench.report.facts import Facts, Family, Spot

STYLES: Final[dict[Model, str]] = {"any free lane": "--", "random lane": "-."}
"""The models that depend on K."""
IDEAL: Final = "ideal min(K, N)/hold"
STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Line:
    """The prediction of a model at each K."""

    label: str
    style: str
    segments: list[float]
    per_s: list[float]


def lines_over_segments(facts: Facts, family: Family) -> tuple[list[Line], str]:
    """Return the ceiling and the models of a sweep over K, and the times that each was computed with.

    Strategies with the same model share a line, with the S of the first.
    """
    cell = family.cell
    where = sorted({int(one) for one in np.geomspace(family.values[0], family.values[-1], STEPS)})
    found: dict[str, Line] = {}
    said: list[str] = []
    why_none = "no model: no cell of one lane tells S"
    for strategy in family.by_strategy():
        model = MODELS.get(strategy)
        if model not in STYLES or model in found or len(family.of(strategy)) == 1:
            continue
        own = cell.model_copy(update={"strategy": strategy})
        calibration = calibrate(own, facts.measured)
        if not isinstance(calibration, Calibration):
            why_none = calibration.why
            continue
        if not found:
            ideal = [ceiling_of(own, calibration, lanes=lanes) for lanes in where]
            found[IDEAL] = Line(IDEAL, ":", [*map(float, where)], ideal)
            kind = "configured" if own.section == "sleep" else "measured"
            said.append(f"hold = {ideal_hold(own, calibration):.3g} ms ({kind})")
        rates = [predict(own, calibration, lanes=lanes, model=model) for lanes in where]
        found[model] = Line(f"model: {model}", STYLES[model], [*map(float, where)], rates)
        said.append(f"S = {calibration.service:.3g} ms ({model})")
    return list(found.values()), ", ".join(said) or why_none


def by_buyers(facts: Facts, spots: Sequence[Spot]) -> tuple[list[float], list[float]] | None:
    """Return the closed-network prediction for these cells by number of buyers; None without a model or S and Z."""
    cell = spots[0].cell
    model, calibration = MODELS.get(cell.strategy), calibrate(cell, facts.measured)
    if model is None or not isinstance(calibration, Calibration):
        return None
    numbers = [spot.cell.buyers for spot in spots]
    where = sorted({*numbers, *(int(one) for one in np.geomspace(min(numbers), max(numbers), STEPS))})
    cells = [cell.model_copy(update={"buyers": one}) for one in where]
    return [*map(float, where)], [predict(one, calibration, lanes=one.segments, model=model) for one in cells]
