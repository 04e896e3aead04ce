"""The comparisons of cells, and the noise floor; F15: ratios with their intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import cells_of, noise_floor
from bench.report.facts import LOCK_FREE, ONE_LOCK, OURS, Drawn, NotDrawn, Spot, ends, said, shared, with_ends
from bench.report.points import whisker
from bench.report.style import BLACK, BLUE, GREY, HOLLOW, LIGHT, POINT, legend_below, log_axis, new_figure

if TYPE_CHECKING:
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
        is_hollow=over.is_hollow or under.is_hollow,
    )


def ratios(facts: Facts) -> Outcome:
    """F15: one row per comparison; the band is the noise floor."""
    floor = noise(facts)
    rows = [*floor.rows, *compared(facts)][:ROWS_MAX]
    if not rows:
        return NotDrawn("F15", NAME, TITLE, "neither an A/A row nor two strategies that differ in nothing else")
    figure = new_figure(f"F15  {TITLE} (each row names its loop)", height=1.3 + 0.27 * len(rows))
    axes = figure.subplots()
    if floor.band is not None:
        band = axes.axvspan(*floor.band, color=LIGHT, zorder=0, label="noise floor: no difference within")
        band.set_gid("noise")
    axes.axvline(1, color=BLACK, linewidth=0.8)
    for place, row in enumerate(rows):
        colour = GREY if row.is_same_code else BLUE
        value = f"{with_ends(row.ratio, row.interval)} times, {row.said}"
        whisker(
            axes,
            (row.ratio, place),
            row.interval,
            f"{HOLLOW if row.is_hollow else POINT}:{row.name}: {value}",
            colour=colour,
            marker="D" if row.is_same_code else "o",
            is_hollow=row.is_hollow,
            capsize=3,
        )
        axes.annotate(row.said, (1.01, place), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    log_axis(axes, "x", "ratio of orders/s", base=2)
    axes.grid(visible=False, axis="y")
    if floor.band is not None:
        legend_below(figure, [axes])
    caption = (
        "Each row: orders/s of the first divided by those of the second, all else equal: the geometric mean over "
        "rounds, "
        "with its 95 % interval (Student's t); at the right the two absolute rates and the rounds. Diamonds: the same "
        "code run "
        f"twice a round. {floor.said} Hollow: one of the two saturated something."
    )
    return Drawn("F15", NAME, TITLE, caption, figure)
