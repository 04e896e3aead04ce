"""All rules in order, and their verdicts on a file: `segmented bench lint FILE`.

The verdicts are a table on a terminal, or lines in a pipe.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text

from bench.engine.record import read_results
from bench.lint import baselines, limits, loops, planned, promises, recomputed, repetition
from bench.lint.subject import RuleFinding, Subject
from bench.results import say, show_rows
from segmented.models.ids import counted, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rich.console import Console

    from bench.engine.record import ResultFile
    from bench.lint.subject import Outcome, Verdict

RESULTS: Final = "results.jsonl"
COLOURS: Final[dict[Outcome, str]] = {"holds": "green", "broken": "bold red", "not applicable": "dim"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its number, its title, and its check."""

    number: str
    title: str
    verdict: Callable[[Subject], Verdict]


RULES: Final = (
    Rule("R1", "closed and open loops are never mixed", loops.one_loop_each),
    Rule("R2", "latency from the intended time", loops.from_the_intended_time),
    Rule("R3", "what the generator failed to do", loops.what_the_generator_missed),
    Rule("R4", "histograms, merged and never averaged", loops.whole_histograms),
    Rule("R5", "percentiles with enough samples", loops.enough_samples),
    Rule("R6", "absolute numbers beside their base", baselines.a_base_each),
    Rule("R7", "baselines that can win", baselines.baselines_that_can_win),
    Rule("R8", "the same guarantees on both sides", baselines.the_same_on_both_sides),
    Rule("R9", "correctness is part of the result", promises.checked_to_the_unit),
    Rule("R10", "goodput, not requests", promises.goodput),
    Rule("R11", "repeated", repetition.repeated),
    Rule("R12", "warm-up and drain left out by a rule", loops.one_warm_up),
    Rule("R13", "saturation is reported", limits.what_was_used_up),
    Rule("R14", "what is held, and for how long", limits.what_was_held),
    Rule("R15", "swept to the collapse", limits.to_the_collapse),
    Rule("R16", "where segments should lose", limits.where_segments_lose),
    Rule("R17", "imbalance is shown", promises.evenness),
    Rule("R18", "work is counted", promises.work_done),
    Rule("R19", "everything can be reproduced", repetition.reproducible),
    Rule("R20", "planned before, reported whole", repetition.planned_before),
    Rule("R21", "the noise floor is known", repetition.noise_floor),
    Rule("R22", "no micro-benchmark as a headline", baselines.whole_sales),
    Rule("R23", "regressions are gated by counts", baselines.counts_have_a_baseline),
    Rule("R24", "round trips are swept", limits.round_trips),
    Rule("R25", "every run is the planned one", planned.as_planned),
    Rule("R26", "every figure follows from its record", recomputed.follows),
)


def check(results: ResultFile, folder: Path) -> list[RuleFinding]:
    """Return the verdict of each rule, in order. `folder` has the file and its histories."""
    subject = Subject(results, folder)
    found = [(rule, rule.verdict(subject)) for rule in RULES]
    return [RuleFinding(rule.number, rule.title, verdict.outcome, verdict.evidence) for rule, verdict in found]


def may_publish(findings: Iterable[RuleFinding]) -> bool:
    """Return whether no rule is broken: only then may the README show a table of these results."""
    return all(finding.outcome != "broken" for finding in findings)


def lint_file(path: Path, console: Console) -> int:
    """Check a results file, or the one in a folder, and return the exit code.

    0: every rule holds or does not apply. 1: some are broken. Raises InvalidInput for an invalid results file.
    """
    file = path / RESULTS if path.is_dir() else path
    results = read_results(file)
    findings = check(results, file.parent)
    show(findings, console)
    return 0 if may_publish(findings) else 1


def show(findings: Sequence[RuleFinding], console: Console) -> None:
    """Print rule, verdict and evidence, and how many hold."""
    rows = [
        (one.rule, one.title, Text(one.outcome, style=COLOURS[one.outcome]), Text(one.evidence)) for one in findings
    ]
    show_rows(console, ("rule", "asks for", "verdict", "evidence"), rows, "{} {}: {}: {}".format)
    say(console, summary(findings))


def summary(findings: Sequence[RuleFinding]) -> str:
    """Return the summary as one sentence."""
    count = Counter(one.outcome for one in findings)
    holding, broken, apart = count["holds"], count["broken"], count["not applicable"]
    told = f"{holding} of {counted(len(findings), 'rule')} {plural(holding, 'holds')}"
    told += f", {broken} {plural(broken, 'is')} broken"
    told += f", {apart} {plural(apart, 'does')} not apply" if apart else ""
    end = "not be published" if broken else "be published"
    return f"{told}: a table of these results may {end}."
