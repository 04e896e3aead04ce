"""F3: rates by number of buyers, with the fit of the Universal Scalability Law and its residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.analysis.usl import Fit
from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.facts import OURS, Family, counted, families, said
from bench.report_page.figures.points import LEGEND, model_line, plot
from bench.report_page.models import by_buyers, said_of, scalability
from bench.report_page.style import from_zero, log_axis, new_figure, ramp

if TYPE_CHECKING:
    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts, Spot

TITLE: Final = "Orders a second by number of buyers"
NAME: Final = "f03-buyers"
MODEL: Final = "model: the closed network"
LINES_MAX: Final = 6


def throughput_by_buyers(facts: Facts) -> Outcome:
    """F3: one line per K (or per strategy with only one K), the fit, and its residuals."""
    closed = [spot for spot in facts.usual if spot.cell.loop == "closed"]
    found = families(closed, "buyers", "segments")
    if not found:
        return NotDrawn("F3", NAME, TITLE, "no closed sweep over three numbers of buyers")
    lines = _lines(found[0])
    figure = new_figure(f"F3  {TITLE} (closed loop)", height=5.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    fits, ticks = [], sorted({spot.cell.buyers for _, spots in lines for spot in spots})
    for look, (label, spots) in zip(ramp(len(lines)), lines, strict=True):
        plot(upper, spots, look, x=_buyers, label=label, joined=False)
        told = [spot for spot in spots if not spot.is_void]
        if (modelled := by_buyers(facts, spots)) is not None:
            is_named = any(line.get_label() == MODEL for line in upper.lines)
            model_line(upper, *modelled, "" if is_named else MODEL)
        fit = scalability(told)
        if not isinstance(fit, Fit):
            upper.plot(
                [_buyers(one) for one in told], [one.mean for one in told], color=look.colour, lw=0.8, ls=look.line
            )
            fits.append(f"{label}: no fit, {fit.why}.")
            if modelled is not None:
                says = dict(zip(*modelled, strict=True))
                beside = [100 * (one.mean / says[_buyers(one)] - 1) for one in told]
                lower.plot(
                    [_buyers(one) for one in told], beside, color=look.colour, marker=look.marker, linestyle="none"
                )
            continue
        where = np.geomspace(ticks[0], ticks[-1], 120)
        upper.plot(where, [fit.law.rate(one) for one in where], color=look.colour, linestyle=look.line)
        over = [100 * one for one in fit.residuals]
        lower.plot(fit.clients, over, color=look.colour, marker=look.marker, linestyle="none")
        fits.append(f"{label}: {said_of(fit)}.")
    log_axis(lower, "x", "buyers N", base=2, ticks=ticks)
    from_zero(upper, "orders/s")
    lower.axhline(0, color="black", linewidth=0.8)
    lower.set_ylabel("residual, %")
    upper.set_title(said(found[0].cell, without=("segments", "buyers")))
    upper.legend(loc="upper left")
    caption = (
        f"Closed loop. {counted(found[0].spots)}. Dashed black: the closed network of N buyers and K lanes, its S and "
        "Z from cells of one lane and of one buyer. In colour: the Universal Scalability Law, X(N) = gamma N / (1 + "
        "alpha (N - 1) + beta N (N - 1)); a thin line joins points without a fit. "
        f"{' '.join(fits)} Lower panel: points less the fit, which was made from "
        "the same points, so it shows the shape and proves nothing; without a fit, less the closed network. y of the "
        f"upper panel begins at 0. {LEGEND}"
    )
    return Drawn("F3", NAME, TITLE, caption, figure)


def _lines(family: Family) -> list[tuple[str, list[Spot]]]:
    """Return a line per K with several numbers of buyers, our strategies first."""
    found: dict[tuple[str, int], list[Spot]] = {}
    for strategy, spots in family.by_strategy().items():
        for spot in spots:
            found.setdefault((strategy, spot.cell.segments), []).append(spot)
    swept = {key: spots for key, spots in found.items() if len(spots) > 1}
    order = sorted(swept, key=lambda key: (key[0] != OURS, key))[:LINES_MAX]
    return [(f"{strategy}, K={segments}", swept[strategy, segments]) for strategy, segments in order]


def _buyers(spot: Spot) -> float:
    return float(spot.cell.buyers)
