"""All rules in order, and their verdicts on a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.lint import baselines, limits, loops, promises, repetition
from bench.lint.finding import RuleFinding
from bench.lint.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.granularity.record import ResultFile
    from bench.lint.finding import Verdict


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
    Rule("R11", "repeated, randomised, interleaved", repetition.repeated_and_interleaved),
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
)


def check(results: ResultFile, folder: Path) -> list[RuleFinding]:
    """Return the verdict of each rule, in order. `folder` has the file and its histories."""
    subject = Subject(results, folder)
    found = [(rule, rule.verdict(subject)) for rule in RULES]
    return [RuleFinding(rule.number, rule.title, verdict.outcome, verdict.evidence) for rule, verdict in found]


def may_publish(findings: Iterable[RuleFinding]) -> bool:
    """Return whether no rule is broken: only then may the README show a table of these results."""
    return all(finding.outcome != "broken" for finding in findings)
