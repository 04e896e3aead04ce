"""Redraws the report of a results folder from the raw results: the same results give the same bytes.

The report is one HTML file: nothing is fetched, figures stand in it as SVG, and it can be printed. Its first screen is
one sentence, and its conditions in a line; the first figure follows it. A published copy has all that its report and
its lint need.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from bench.analysis.hypotheses import judge
from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import noise_floor
from bench.analysis.model_error import model_error
from bench.engine.folder import CALIBRATIONS, ENVIRONMENT, HISTORIES, PLAN, refuse_links
from bench.engine.record import read_results
from bench.lint import check
from bench.report import tables
from bench.report.comparisons import batches, durability, noise, ratios
from bench.report.crossover import crossover
from bench.report.facts import ONE_LOCK, OURS, WITHOUT_LOCK, Drawn, Facts, NotDrawn, ends, section
from bench.report.load import latency_by_load, spectrum, throughput, throughput_by_buyers
from bench.report.markdown import reproduce, table, verdicts
from bench.report.strategies import strategies, unfavourable_figure, unfavourable_rows, work
from bench.report.style import as_png, as_svg, house_style, inlined
from segmented.errors import InvalidInput
from segmented.files import MIB, write_instead
from segmented.models.ids import counted, plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.engine.record import ResultFile
    from bench.lint import Finding
    from bench.report.facts import Family, Outcome, Spot
    from bench.results import Progress

NO_PAIR: Final = (
    "This session compares no segments with one lock: that takes two cells of one sku in a closed loop, one with one "
    "lock and one with more segments, equal otherwise and both with a rate."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of the session in one sentence, and its conditions; without any if nothing can be compared."""

    sentence: str
    conditions: str = ""


def answer(facts: Facts) -> Answer:
    """Compare our segments with one lock in the headline's cells, or say that the session has no such pair of cells."""
    found = (_compared(facts, family) for family in tables.main_families(facts) if family.cell.skus == 1)
    return next((one for one in found if one is not None), Answer(NO_PAIR))


def _compared(facts: Facts, family: Family) -> Answer | None:
    """Return the comparison of these cells; None if they lack one lock, or more segments than one."""
    ours = [spot for spot in family.of(OURS) if not spot.is_void]
    one_lock = _best([*family.of(ONE_LOCK), *(spot for spot in ours if spot.cell.segments == 1)])
    best = _fewest([spot for spot in ours if spot.cell.segments > 1], noise_floor(facts.results).floor or 0.0)
    if one_lock is None or best is None:
        return None
    free = _best([spot for strategy in WITHOUT_LOCK for spot in family.of(strategy)])
    counted = [one_lock, best, *(() if free is None else (free,))]
    return Answer(_sentence(best, one_lock, free), _conditions(facts, family, counted))


def _best(spots: list[Spot]) -> Spot | None:
    return max((spot for spot in spots if not spot.is_void), key=lambda spot: spot.mean, default=None)


def _fewest(spots: list[Spot], floor: float) -> Spot | None:
    """Return the cell with the fewest segments whose rate is within the noise floor of the highest."""
    best = _best(spots)
    enough = [spot for spot in spots if best is not None and spot.mean * (1 + floor) >= best.mean]
    return min(enough, key=lambda spot: spot.cell.segments, default=None)


def _sentence(best: Spot, one_lock: Spot, free: Spot | None) -> str:
    found = paired_ratio(best.by_round, one_lock.by_round)
    times = best.mean / one_lock.mean if found is None else found.value
    interval = ends(found)
    why_none = "no common round, so no interval" if found is None else found.why_no_interval
    within = why_none if interval is None else f"95 % interval {number(interval[0])} to {number(interval[1])}"
    said = (
        f"{best.cell.segments} segments sold {number(times)} times as much as one lock ({within}): "
        f"{number(best.mean)} against {number(one_lock.mean)} orders/s."
    )
    if free is None:
        return said
    return f"{said} Without a lock, {free.cell.strategy} sold {number(free.mean)}."


def _conditions(facts: Facts, family: Family, spots: list[Spot]) -> str:
    counts = sorted({len(spot.whole) for spot in spots})
    runs = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    quick = " A quick session: directions, not results." if facts.results.session.is_quick else ""
    return f"{tables.setting_of(family)}; {runs} {plural(counts[-1], 'run')} each.{quick}"


# --- the page ---

TEMPLATE: Final = "report.html.j2"
RULES: Final = ("rounds", "seconds", "warm_up", "seed", "stop", "quick")


def page(
    facts: Facts,
    outcomes: Sequence[Outcome],
    svgs: Mapping[str, str],
    *,
    findings: Sequence[Finding],
    why_no_table: str | None,
) -> str:
    """Return the HTML. The same results give the same text."""
    session, end = facts.results.session, facts.results.end
    error = model_error(facts.results)
    drawn = [one for one in outcomes if isinstance(one, Drawn)]
    environment = list(tables.settings(session.environment))
    told = {
        "session": session,
        "end": end,
        "run_count": len(facts.results.runs),
        "cell_count": len(facts.spots),
        "answer": answer(facts),
        "setting": tables.main_setting(facts),
        "sections": sorted({section(spot.cell) for spot in facts.spots}),
        "guarantees": [label for _, label in tables.GUARANTEES],
        "strategies": tables.strategy_rows(facts),
        "core_hour": facts.core_hour,
        "svgs": {
            one.name: Markup(inlined(svgs[one.name], f"{one.number}: {one.title}"))  # noqa: S704  # drawn by us, escaped as XML
            for one in drawn
        },
        "figures": [one for one in drawn if one.number != "U"],
        "unfavourable_figure": next((one for one in drawn if one.number == "U"), None),
        "missing": [one for one in outcomes if isinstance(one, NotDrawn)],
        "hypotheses": judge(facts.results),
        "unfavourable": unfavourable_rows(facts),
        "voids": tables.void_rows(facts),
        "cells": tables.every_row(facts),
        "noise": noise(facts),
        "model_sentences": error.sentences(),
        "model_points": error.points,
        "model_without": error.without,
        "findings": findings,
        "why_no_table": why_no_table,
        "plan_lines": list(tables.settings({name: session.plan[name] for name in RULES if name in session.plan})),
        "environment": [one for one in environment if ".config." not in one[0]],
        "server_settings": [one for one in environment if ".config." in one[0]],
    }
    return tables.rendered(TEMPLATE, told)


# --- the folder ---

FIGURES: Final[tuple[Callable[[Facts], Outcome], ...]] = (
    *(throughput, strategies, throughput_by_buyers, latency_by_load, spectrum, work),
    *(crossover, batches, durability, ratios, unfavourable_figure),
)
"""All strategies come after the first figure, and the unfavourable cases last."""
RESULTS: Final = "results.jsonl"
HISTORY: Final = re.compile(rf"{HISTORIES}/[0-9]+\.jsonl\.zst")
HISTORIES_MAX: Final = 4 * MIB
"""Histories of further rounds are left out above this many bytes; those of the first round never are."""
FIGURE_FOLDER: Final = "figures"
SUMS: Final = "SHA256SUMS"
TABLE: Final = "table.md"
VERDICTS: Final = "verdicts.md"


@dataclass(frozen=True, slots=True)
class Report:
    """The drawn report."""

    folder: Path
    drawn: tuple[str, ...]
    not_drawn: tuple[str, ...]
    """Figures without data, with reasons."""
    why_no_table: str | None
    """Why there is no table for the README; None if there is one."""
    answer: str
    """The sentence with which the page begins."""

    def sentences(self) -> list[str]:
        """Return a summary for a terminal."""
        said = [f"{counted(len(self.drawn), 'figure')}, report.html and REPRODUCE.md are in {self.folder}."]
        said += [f"Not drawn: {one}." for one in self.not_drawn]
        said.append(f"No {TABLE}: {self.why_no_table}" if self.why_no_table else f"{TABLE} may go into a README.")
        return [*said, self.answer]


def redraw(folder: Path, progress: Progress, *, core_hour: float | None = None) -> Report:
    """Draw every figure, the HTML report, both tables and REPRODUCE.md of a results folder.

    Figures and tables of an earlier drawing that no longer have their data are removed. Raises InvalidInput for
    results that cannot be read, and for a folder that cannot be written.
    """
    refuse_links(folder, str(folder))
    results = read_results(folder / RESULTS)
    if not results.runs:
        raise InvalidInput(f"{folder / RESULTS} has no finished run, so there is nothing to draw")
    findings = check(results, folder)
    broken = "; ".join(f"{one.check} ({one.evidence})" for one in findings if not one.holds)
    why_no_table = f"the lint finds broken: {broken}." if broken else None
    facts = Facts(results, core_hour=core_hour)
    try:
        outcomes, svgs = _figures(facts, folder / FIGURE_FOLDER, progress)
        progress("report", 0, 1)
        html = page(facts, outcomes, svgs, findings=findings, why_no_table=why_no_table)
        _write(folder / "report.html", html)
        _write(folder / "REPRODUCE.md", reproduce(facts))
        for name, written in ((TABLE, table), (VERDICTS, verdicts)):
            if why_no_table is None:
                _write(folder / name, written(facts))
            else:
                (folder / name).unlink(missing_ok=True)
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != SUMS)
        sums = ((hashlib.sha256(file.read_bytes()).hexdigest(), file.relative_to(folder).as_posix()) for file in files)
        _write(folder / SUMS, "".join(f"{digest}  {name}\n" for digest, name in sums))
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error.strerror}") from error
    progress("report", 1, 1)
    return Report(
        folder,
        tuple(one.name for one in outcomes if isinstance(one, Drawn)),
        tuple(f"{one.number} {one.title}: {one.why}" for one in outcomes if isinstance(one, NotDrawn)),
        why_no_table,
        answer(facts).sentence,
    )


def publish(folder: Path, to: Path, progress: Progress) -> Report:
    """Copy a session to a new folder, and draw its report there.

    The copy has the results, the plan, the environment, the calibrations, and the histories of whole rounds: the first
    one, so that one run of each cell can be replayed, and as many as are small enough.
    Raises InvalidInput if the session lacks one of these, or the new folder is there already.
    """
    refuse_links(folder, str(folder))
    results = read_results(folder / RESULTS)
    strange = [run.history for run in results.runs if run.history and not HISTORY.fullmatch(run.history)]
    if strange:
        raise InvalidInput(f"{folder} cannot be published: {strange[0]!r} is not the name of a history")
    kept = _histories(results, folder)
    files = [RESULTS, PLAN, ENVIRONMENT, CALIBRATIONS, *kept]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing or not kept:
        raise InvalidInput(f"{folder} cannot be published: {missing[0] if missing else HISTORIES} is not there")
    try:
        (to / HISTORIES).mkdir(parents=True)
        for name in files:
            shutil.copyfile(folder / name, to / name)
    except OSError as error:
        message = f"--publish {to} cannot be written: {error.strerror}; name a folder that does not exist"
        raise InvalidInput(message) from error
    return redraw(to, progress)


def _histories(results: ResultFile, folder: Path) -> list[str]:
    """Return the names of the histories to keep, in order."""
    by_round: dict[int, list[str]] = defaultdict(list)
    for run in results.runs:
        if run.history is not None:
            by_round[run.round].append(run.history)
    kept: set[str] = set()
    for place, names in enumerate(by_round[one] for one in sorted(by_round)):
        more = kept | set(names)
        sizes = [(folder / name).stat().st_size for name in more if (folder / name).is_file()]
        if place and sum(sizes) > HISTORIES_MAX:
            break
        kept = more
    return sorted(kept)


def _figures(facts: Facts, folder: Path, progress: Progress) -> tuple[list[Outcome], dict[str, str]]:
    folder.mkdir(exist_ok=True)
    outcomes: list[Outcome] = []
    svgs: dict[str, str] = {}
    with house_style():
        for place, draw in enumerate(FIGURES):
            progress("figures", place, len(FIGURES))
            outcome = draw(facts)
            files = [folder / f"{outcome.name}{ending}" for ending in (".svg", ".png")]
            if isinstance(outcome, Drawn):
                svgs[outcome.name] = as_svg(outcome.figure, outcome.name)
                _write(files[0], svgs[outcome.name])
                write_instead(files[1], as_png(outcome.figure))
                outcome.figure.clear()
            else:
                for file in files:
                    file.unlink(missing_ok=True)
            outcomes.append(outcome)
    progress("figures", len(FIGURES), len(FIGURES))
    return outcomes, svgs


def _write(file: Path, text: str) -> None:
    """Write text with the characters of a results file that would control a terminal as escapes."""
    write_instead(file, visible(text).encode())
