"""Redraws the report of a results folder from the raw results: the same results give the same bytes.

A published copy has all that its report and its lint need.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.engine.folder import CALIBRATIONS, ENVIRONMENT, HISTORIES, PLAN, refuse_links
from bench.engine.record import read_results
from bench.lint import check, may_publish
from bench.report.answer import answer
from bench.report.comparisons import ratios
from bench.report.facts import Drawn, Facts, NotDrawn
from bench.report.figures.batches import batches, durability
from bench.report.figures.crossover import crossover
from bench.report.figures.load import latency_by_load, spectrum, throughput_by_buyers
from bench.report.figures.segments import throughput
from bench.report.figures.strategies import strategies, work
from bench.report.markdown import reproduce, table, verdicts
from bench.report.page import page
from bench.report.style import as_png, as_svg, house_style
from bench.report.unfavourable import unfavourable_figure
from segmented.errors import InvalidInput
from segmented.files import MIB, write_instead
from segmented.models.ids import counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.display import Progress
    from bench.engine.record import ResultFile
    from bench.lint import Finding
    from bench.report.facts import Outcome

FIGURES: Final[tuple[Callable[[Facts], Outcome], ...]] = (
    throughput,
    strategies,
    throughput_by_buyers,
    latency_by_load,
    spectrum,
    work,
    crossover,
    batches,
    durability,
    ratios,
    unfavourable_figure,
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
        message = f"{folder / RESULTS} has no finished run, so there is nothing to draw"
        raise InvalidInput(message)
    findings = check(results, folder)
    why_no_table = _refusal(findings)
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
        _write(folder / SUMS, _sums(folder))
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}"
        raise InvalidInput(message) from error
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
        message = f"{folder} cannot be published: {strange[0]!r} is not the name of a history"
        raise InvalidInput(message)
    kept = _histories(results, folder)
    files = [RESULTS, PLAN, ENVIRONMENT, CALIBRATIONS, *kept]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing or not kept:
        message = f"{folder} cannot be published: {missing[0] if missing else HISTORIES} is not there"
        raise InvalidInput(message)
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
    for place, names in enumerate(by_round[number] for number in sorted(by_round)):
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


def _refusal(findings: Sequence[Finding]) -> str | None:
    if may_publish(findings):
        return None
    broken = [f"{one.check} ({one.evidence})" for one in findings if not one.holds]
    return f"the lint finds broken: {'; '.join(broken)}."


def _write(file: Path, text: str) -> None:
    """Write text with the characters of a results file that would control a terminal as escapes."""
    write_instead(file, visible(text).encode())


def _sums(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != SUMS)
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder).as_posix()}" for file in files]
    return "\n".join(sums) + "\n"
