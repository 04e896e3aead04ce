"""Comparisons of cells. F12: batches; F13: durability; F15: ratios with their intervals, and the noise floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matplotlib.patches import Patch

from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import cells_of, noise_floor
from bench.report import style
from bench.report.facts import (
    LOCK_FREE,
    ONE_LOCK,
    OURS,
    Drawn,
    NotDrawn,
    Spot,
    counted,
    ends,
    families,
    said,
    section,
    shared,
    with_ends,
)
from bench.report.points import BAR_OPACITY, LEGEND, RATE, Measure, across_bar, gid, model_line, plot, void_gid, whisker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.report.facts import Facts, Outcome

NAME: Final = "f15-ratios"
TITLE: Final = "Ratios and the noise floor"
ROWS_MAX: Final = 24


@dataclass(frozen=True, slots=True)
class Row:
    """The ratio of two means."""

    name: str
    ratio: float
    interval: tuple[float, float] | None
    said: str
    """The two rates, and the runs of each."""
    is_same_code: bool
    is_hollow: bool


@dataclass(frozen=True, slots=True)
class Noise:
    """How much two measurements of the same code differ."""

    rows: tuple[Row, ...]
    band: tuple[float, float] | None
    said: str


def noise(facts: Facts) -> Noise:
    """Return the A/A rows and the widest of their intervals."""
    found = noise_floor(facts.results)
    again = cells_of(facts.results, arm="B")
    first = {spot.cell.cell_id: spot for spot in facts.spots}
    rows = []
    for one in found.rows:
        once, twice = first[one.cell_id], Spot(again[one.cell_id].cell, "B", again[one.cell_id].runs)
        where = said(once.cell, without=("segments",))
        name = f"B/A of {once.cell.strategy}, K={once.cell.segments}: {where}, {once.cell.loop}"
        made = row(name, twice, once, is_same_code=True)
        if made is not None:
            rows.append(made)
    if found.floor is None:
        return Noise(tuple(rows), None, f"There is no noise floor: {found.why_none}.")
    told = (
        f"The noise floor is {100 * found.floor:.1f} %: so far from 1 is the farthest end of any interval, 95 % "
        "together, of the same code run twice a round. Ignore smaller differences."
    )
    return Noise(tuple(rows), (1 / (1 + found.floor), 1 + found.floor), told)


def compared(facts: Facts) -> list[Row]:
    """Return our rate over one lock, and over the lock-free script, for each setting with both."""
    found = []
    for other in (ONE_LOCK, LOCK_FREE):
        best: dict[str, Spot] = {}
        for spot in facts.usual:
            key = shared(spot.cell, ("segments", "batch"))
            if spot.cell.strategy == other and not spot.is_void and (key not in best or spot.mean > best[key].mean):
                best[key] = spot
        ours: dict[str, Spot] = {}
        for spot in [one for one in facts.usual if one.cell.strategy == OURS and one.cell.batch == 1]:
            key = shared(spot.cell, ("segments", "batch"))
            if not spot.is_void and key in best and (key not in ours or spot.cell.segments > ours[key].cell.segments):
                ours[key] = spot
        for key, spot in ours.items():
            where = said(spot.cell, without=("segments",))
            made = row(
                f"K={spot.cell.segments} / {other}: {where}, {spot.cell.loop}", spot, best[key], is_same_code=False
            )
            if made is not None:
                found.append(made)
    return found


def row(name: str, over: Spot, under: Spot, *, is_same_code: bool) -> Row | None:
    """Return the ratio of two cells, or None if they share no valid round."""
    found = paired_ratio(over.by_round, under.by_round)
    if found is None:
        return None
    return Row(
        name=name,
        ratio=found.value,
        interval=ends(found),
        said=f"{number(over.mean)} / {number(under.mean)}, n = {found.n}",
        is_same_code=is_same_code,
        is_hollow=bool(over.saturated or under.saturated),
    )


def ratios(facts: Facts) -> Outcome:
    """F15: one row per comparison; the band is the noise floor."""
    floor = noise(facts)
    rows = [*floor.rows, *compared(facts)][:ROWS_MAX]
    if not rows:
        return NotDrawn("F15", NAME, TITLE, "neither an A/A row nor two strategies that differ in nothing else")
    figure = style.new_figure(f"F15  {TITLE} (each row names its loop)", height=1.3 + 0.27 * len(rows))
    axes = figure.subplots()
    if floor.band is not None:
        band = axes.axvspan(*floor.band, color=style.LIGHT, zorder=0, label="noise floor: no difference within")
        band.set_gid("noise")
    axes.axvline(1, color=style.BLACK, linewidth=0.8)
    for place, row in enumerate(rows):
        colour = style.GREY if row.is_same_code else style.BLUE
        value = f"{with_ends(row.ratio, row.interval)} times, {row.said}"
        whisker(
            axes,
            (row.ratio, place),
            row.interval,
            f"{style.HOLLOW if row.is_hollow else style.POINT}:{row.name}: {value}",
            colour=colour,
            marker="D" if row.is_same_code else "o",
            is_hollow=row.is_hollow,
            capsize=3,
        )
        axes.annotate(row.said, (1.01, place), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    style.log_axis(axes, "x", "ratio of orders/s", base=2)
    axes.grid(visible=False, axis="y")
    if floor.band is not None:
        style.legend_below(figure, [axes])
    caption = (
        "Each row: orders/s of the first divided by those of the second, all else equal: the geometric mean over "
        "rounds, with its 95 % interval (Student's t); at the right the two absolute rates and the rounds. Diamonds: "
        f"the same code run twice a round. {floor.said} Hollow: one of the two saturated something."
    )
    return Drawn("F15", NAME, TITLE, caption, figure)


# --- batches and commits ---

TITLE_12: Final = "Batch size: rate and latency"
TITLE_13: Final = "The price of a commit"


def batches(facts: Facts) -> Outcome:
    """F12: orders per second and the p99 of the service time, by orders per batch."""
    name = "f12-batches"
    found = families(facts.select(loop="closed"), "batch")
    if not found:
        return NotDrawn("F12", name, TITLE_12, "no closed sweep over three sizes of a batch")
    family = found[0]
    figure = style.new_figure(f"F12  {TITLE_12} (closed loop)", height=3.6)
    rates, latency = figure.subplots(1, 2)
    ticks = family.values
    for strategy, spots in family.by_strategy().items():
        if len(spots) == 1 and strategy != OURS:
            continue
        look = facts.looks[strategy]
        plot(rates, spots, look, x=lambda spot: spot.cell.batch, label=strategy)
        told = [spot for spot in spots if _p99(spot) is not None]
        plot(latency, told, look, x=lambda spot: spot.cell.batch, y=LATENCY, label=strategy)
    if family.cell.section == "sleep" and family.cell.hold_ms:
        lanes = min(family.cell.segments, family.cell.buyers)
        ideal = [one * lanes * 1_000 / family.cell.hold_ms for one in ticks]
        model_line(rates, ticks, ideal, "ideal B min(K, N)/hold", style=":")
    for axes in (rates, latency):
        style.log_axis(axes, "x", "orders in a batch B", base=2, ticks=ticks)
    style.log_axis(rates, "y", "orders/s")
    style.from_zero(latency, "p99 from sending to the answer, ms")
    style.legend_below(figure, [rates], ncols=4)
    caption = (
        f"Closed loop, {said(family.cell, without=('batch',))}: each buyer sends the next batch once the last is "
        f"answered. {counted(family.spots)}. Left: orders, not batches. Right: an order's time is that of its batch; "
        "the time to gather a batch is not in it, since a closed loop has its orders at hand. The p99 is that of all "
        f"runs' histograms added up; its bars are the lowest and the highest run. {LEGEND}"
    )
    return Drawn("F12", name, TITLE_12, caption, figure)


def _p99(spot: Spot) -> float | None:
    """Return the p99 of all runs together, not a mean of theirs; None with too few samples."""
    found = spot.percentiles("service")
    return None if found is None else found.p99


def _p99_span(spot: Spot) -> tuple[float, float] | None:
    """Return the lowest and the highest run's p99; None unless every run has enough samples."""
    each = [run.times.service.p99 for run in spot.whole]
    known = [one for one in each if one is not None]
    return (min(known), max(known)) if known and len(known) == len(each) else None


LATENCY: Final = Measure(lambda spot: _p99(spot) or 0.0, _p99_span, "ms at p99, lowest and highest run")


def durability(facts: Facts) -> Outcome:
    """F13: the same strategy with and without a commit in the order database."""
    name = "f13-durability"
    closed = facts.select(loop="closed")
    pairs = []
    for spot in closed:
        if spot.cell.section == "commit":
            wanted = shared(spot.cell, ("section",))
            same = [
                one
                for one in closed
                if one.cell.strategy == spot.cell.strategy and one.cell.section in {"none", "sleep"}
            ]
            pairs += [(one, spot) for one in same if shared(one.cell, ("section",)) == wanted]
    if not pairs:
        return NotDrawn("F13", name, TITLE_13, "no strategy was run both with a commit and, all else equal, without")
    figure = style.new_figure(f"F13  {TITLE_13} (closed loop)", height=1.8 + 0.42 * len(pairs))
    rate, latency = figure.subplots(1, 2, sharey=True)
    labels = []
    for place, pair in enumerate(pairs):
        labels.append(f"{pair[0].cell.strategy}, K={pair[0].cell.segments}")
        for shift, spot, hatch in zip((-0.2, 0.2), pair, (None, "////"), strict=True):
            at = place + shift
            _bar(facts, rate, at, spot, hatch=hatch, shown=RATE)
            _bar(facts, latency, at, spot, hatch=hatch, shown=LATENCY)
    rate.set_yticks(range(len(labels)), labels)
    rate.invert_yaxis()
    rate.set_xlabel("orders/s")
    latency.set_xlabel("p99 from sending to the answer, ms")
    for axes in (rate, latency):
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
    kinds = [
        Patch(facecolor=(style.GREY, BAR_OPACITY), edgecolor=style.GREY, label="in memory only"),
        Patch(facecolor=style.PAPER, edgecolor=style.GREY, hatch="////", label="committed"),
    ]
    figure.legend(handles=kinds, loc="outside lower center", ncols=2)
    settings = sorted({f"{key} {value}" for _, spot in pairs for key, value in spot.runs[0].server.items()})
    caption = (
        f"Closed loop, {pairs[0][0].cell.buyers} buyers; {counted(one for pair in pairs for one in pair)}. Plain: in "
        f"memory only ({section(pairs[0][0].cell)}). Hatched: every order committed in the order database before it is "
        f"acknowledged. Server: {'; '.join(settings)}. What is lost when the power fails was not measured here: no "
        "fault was injected. Bars: rates 95 % over runs; p99 of all runs' histograms added up, from the lowest to the "
        "highest run, and none below 1,000 samples. Void cells have no bar. Both axes begin at 0."
    )
    return Drawn("F13", name, TITLE_13, caption, figure)


def _bar(facts: Facts, axes: Axes, place: float, spot: Spot, *, hatch: str | None, shown: Measure) -> None:
    colour = facts.looks[spot.cell.strategy].colour
    if spot.is_void:
        (mark,) = axes.plot(
            [0.01], [place], transform=axes.get_yaxis_transform(), marker="x", color=colour, linestyle="none"
        )
        mark.set_gid(void_gid(spot))
    elif value := shown.value(spot):
        bounds = shown.bounds(spot)
        named = gid(spot, f"{with_ends(value, bounds)} {shown.unit}")
        across_bar(axes, (value, place), bounds, named, colour=colour, height=0.36, hatch=hatch)
