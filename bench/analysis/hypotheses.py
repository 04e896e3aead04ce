"""Judges the plan's hypotheses: each is kept, refuted or undecided, with the figures that show it.

A hypothesis that a program can check has expectations in the plan, written before anything is measured:

    [[hypotheses]]
    id = "H1"
    sweep = "k"
    expect = [{ of = { segments = 20 }, over = { segments = 1 }, at_least = 19.4 }]

An expectation is kept if the whole 95 % interval of its figure is within the bounds, refuted if the whole interval is
outside a bound, and undecided otherwise, also with too few runs. A hypothesis is refuted if one of its expectations is,
and kept if all of them are. The intervals of all rates that the plan's hypotheses ask for are one family: together they
are 95 %, so that the more a plan asks, the less it is answered by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from bench.analysis.intervals import Estimate, number, paired_ratio, rate_of
from bench.analysis.measured import cells_of, noise_floor
from bench.analysis.model_error import model_error
from bench.engine.cell import PERCENT, Cell, Expectation
from bench.engine.percentiles import merged

if TYPE_CHECKING:
    from bench.analysis.measured import Measured
    from bench.engine.cell import Part
    from bench.engine.record import ResultFile

PLAIN: Final = ("batch", "rtt_ms", "proxied", "loop", "quantity", "stock", "case", "skus")
"""If several cells have the values, the one without these fields is taken."""
Verdict = Literal["kept", "refuted", "undecided"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A hypothesis after the measurement."""

    id: str
    sentence: str
    refuted_by: str
    verdict: Verdict
    figures: tuple[Estimate, ...]
    why: str
    """The figures and their bounds, or why there are none."""


def judge(results: ResultFile) -> tuple[Judged, ...]:
    """Judge every hypothesis of the session's plan, in the plan's order."""
    written: list[dict[str, Any]] = results.session.plan.get("hypotheses") or []
    return tuple(_judged(results, one) for one in written)


def verdict_of(found: Estimate, expected: Expectation) -> Verdict:
    """Compare an interval with the bounds."""
    if found.low is None or found.high is None:
        return "undecided"
    least = -math.inf if expected.at_least is None else expected.at_least
    most = math.inf if expected.at_most is None else expected.at_most
    if least <= found.low and found.high <= most:
        return "kept"
    return "refuted" if found.high < least or found.low > most else "undecided"


def _judged(results: ResultFile, written: dict[str, Any]) -> Judged:
    verdicts: list[Verdict] = []
    figures: list[Estimate] = []
    said: list[str] = []
    for one in written.get("expect") or ():
        try:
            expected = Expectation.model_validate(one)
        except ValidationError as error:
            verdicts.append("undecided")
            said.append(f"an expectation cannot be read: {error.errors()[0]['msg']}")
            continue
        found = _figure(results, expected, str(written.get("sweep", "")))
        if isinstance(found, str):
            verdicts.append("undecided")
            said.append(found)
        else:
            verdicts.append(verdict_of(found, expected))
            figures.append(found)
            said.append(f"{_named(expected)}: {found}, expected {_bounds(expected)}")
    verdict: Verdict = "undecided"
    if "refuted" in verdicts:
        verdict = "refuted"
    elif verdicts and set(verdicts) == {"kept"}:
        verdict = "kept"
    return Judged(
        id=str(written.get("id", "")),
        sentence=str(written.get("sentence", "")),
        refuted_by=str(written.get("refuted_by", "")),
        verdict=verdict,
        figures=tuple(figures),
        why="; ".join(said) or "no machine can check it: read the figures of its sweep",
    )


def _named(expected: Expectation) -> str:
    over = f" over {_said(expected.over)}" if expected.over else ""
    of = f" of {_said(expected.of)}" if expected.of else ""
    return f"{expected.figure}{of}{over}"


def _said(part: Part) -> str:
    return ", ".join(f"{name} = {value}" for name, value in part.items())


def _bounds(expected: Expectation) -> str:
    bounds = [f"at least {number(expected.at_least)}"] if expected.at_least is not None else []
    return " and ".join(bounds + ([f"at most {number(expected.at_most)}"] if expected.at_most is not None else []))


def _figure(results: ResultFile, expected: Expectation, sweep: str) -> Estimate | str:
    """Return the figure, or why there is none."""
    if expected.figure == "noise-floor":
        noise = noise_floor(results)
        return noise.why_none or "" if noise.floor is None else _exactly(noise.floor, len(noise.rows))
    if expected.figure == "model-error":
        error = model_error(results)
        count = sum(one.counts for one in error.points)
        return "no cell checks the model" if error.largest is None else _exactly(error.largest, count)
    if expected.figure == "rate":
        return _rate(results, expected, sweep)
    if expected.figure == "p99":
        return _p99(results, expected, sweep)
    runs = [run for one in _cells(results, expected.of, sweep) for run in one.runs]
    name = "oversold" if expected.figure == "oversold" else "refused_wrongly"
    counted = sum(getattr(run.checker, name) for run in runs)
    return _exactly(counted, len(runs)) if runs else f"no cell has {_said(expected.of)}"


def _rate(results: ResultFile, expected: Expectation, sweep: str) -> Estimate | str:
    hypotheses = results.session.plan.get("hypotheses") or ()
    expected_of_all = [one for written in hypotheses for one in written.get("expect") or ()]
    family = max(1, [one.get("figure", "rate") for one in expected_of_all].count("rate"))
    above = _cell(results, expected.of, sweep)
    if isinstance(above, str):
        return above
    if not expected.over:
        return rate_of(above.rates, family=family)
    below = _cell(results, expected.over, sweep)
    if isinstance(below, str):
        return below
    ratio = paired_ratio(above.by_round, below.by_round, family=family)
    return f"{above.cell_id} and {below.cell_id} share no round" if ratio is None else ratio


def _p99(results: ResultFile, expected: Expectation, sweep: str) -> Estimate | str:
    """Return the p99 of all samples together, not a mean over runs.

    Void runs are those in which the generator was late, with the longest waits. Without them a tail is too short, and
    with them it is partly the generator's: the figure has both ends, and is decided only if both agree.
    """
    cells = [_one(results, part, sweep) for part in (expected.of, *((expected.over,) if expected.over else ()))]
    told: list[tuple[float, int]] = []
    for with_void in (True, False):
        each: list[float] = []
        counts: list[int] = []
        for found in cells:
            if isinstance(found, str):
                return found
            kept = [run.times.response for run in found.runs if run.times.response and (with_void or not run.void)]
            if not (p99 := merged(one.encoded for one in kept).p99):
                return f"{found.cell_id} has too few samples for a p99"
            each.append(p99)
            counts.append(len(kept))
        told.append((each[0] if len(each) == 1 else each[0] / each[1], min(counts)))
    (every, _), (kept_only, n) = told
    low, high = sorted((every, kept_only))
    return Estimate(kept_only, low, high, n, "all equal" if low == high else "with and without void runs")


def _cell(results: ResultFile, part: Part, sweep: str) -> Measured | str:
    """Return the one cell with these values and a throughput, or the error."""
    found = _one(results, part, sweep)
    if not isinstance(found, str) and found.void:
        return f"{found.cell_id} has void runs: {found.void[0]}"
    return found


def _one(results: ResultFile, part: Part, sweep: str) -> Measured | str:
    """Return the one cell with these values, or how many there are."""
    found = _cells(results, part, sweep)
    if len(found) > 1:
        others = [name for name in PLAIN if name not in part]
        usual = {name: Cell.model_fields[name].default for name in others}
        found = [one for one in found if all(getattr(one.cell, name) == usual[name] for name in others)] or found
    return found[0] if len(found) == 1 else f"{len(found) or 'no'} cells have {_said(part)}"


def _cells(results: ResultFile, part: Part, sweep: str) -> list[Measured]:
    """Return the cells with these values, of the sweep or else of the whole file."""
    found = [
        one for one in cells_of(results).values() if all(_value(one, name) == value for name, value in part.items())
    ]
    return [one for one in found if any(sweep in run.sweeps for run in one.runs)] or found


def _value(found: Measured, name: str) -> object:
    return found.first.offered_percent if name == PERCENT else getattr(found.cell, name)


def _exactly(value: float, n: int) -> Estimate:
    """Return a figure without an interval, such as a count or a bound."""
    return Estimate(value, value, value, n, "all equal")
