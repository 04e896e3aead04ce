"""The report as one HTML file: nothing is fetched, figures stand in it as SVG, and it can be printed.

Its list of practices names the dishonest ones of benchmarks, each with what stands here instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from bench.analysis.hypotheses import judge
from bench.analysis.model_error import model_error
from bench.report.answer import answer
from bench.report.comparisons import noise
from bench.report.drawn import Drawn, NotDrawn
from bench.report.facts import LOCK_FREE, section
from bench.report.svg import inlined
from bench.report.tables import (
    GUARANTEES,
    every_row,
    main_setting,
    rendered,
    settings,
    strategy_rows,
    void_rows,
)
from bench.report.unfavourable import unfavourable_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.lint import Finding
    from bench.report.drawn import Outcome
    from bench.report.facts import Facts

TEMPLATE: Final = "report.html.j2"
LEASE_SECONDS: Final = 10
RULES: Final = ("rounds", "seconds", "warm_up", "seed", "stop", "quick")
NOT_HERE: Final = "not in this session"
PRACTICES: Final = (
    ("A sleep under the lock, long enough that any striping looks linear", "Run: {sections}."),
    (
        "One badly tuned lock as the baseline",
        "Strategies: {strategies}. F10 counts their lock requests.",
    ),
    ("No baseline that needs no lock", "{free}."),
    (
        "The p99 of a closed loop as a user's latency",
        "Closed-loop times are called service times; users' are in F4 and F5.",
    ),
    ("Zero milliseconds of a tool's coarse bins as 'sub-millisecond'", "HdrHistogram, microseconds, three digits."),
    (
        "Answers 'sold out' counted as throughput",
        "Rates are orders that hold stock; refusals and failures are columns.",
    ),
    ("'No oversell' with units left over", "Units sold of min(stock, demand) are beside each rate."),
    (
        "Averages of percentiles, percentiles of few samples",
        "Histograms are added up; ten samples must lie beyond.",
    ),
    (
        "The best of n runs; runs one strategy after the other",
        "Means over all runs that count, {counts} a cell, in rounds of random order.",
    ),
    (
        "Pipelining on one side only",
        "A batch is a cell of its own, B; commands and bytes of all are counted in F10.",
    ),
    ("Durability off on the winner", "The table says where an acknowledged order is kept; {same}."),
    (
        "kill -9 called crash-safe",
        "No fault was injected in these runs, and nothing about crashes is claimed by them.",
    ),
    (
        "A test shorter than one period of what it depends on",
        (
            "Windows of {shortest:.2g} to {longest:.2g} s: less "
            "than a rewrite of a log takes to come, and less than a lease of {lease} s where they are "
            "shorter. A limit of this session."
        ),
    ),
    (
        "Speed-ups without absolute values",
        "Absolute rates are beside every ratio, in F2's caption and F15's rows.",
    ),
    (
        "Generator and server on the same cores, without saying so",
        "{where}. Saturated: hollow.",
    ),
    ("Errors hidden by retries", "An order that ends without an answer is a failure; failures void a closed run."),
    ("Time-outs left out of the histogram", "Orders that failed are in it, with the time they took to fail."),
    ("Unmarked log axes, cut-off y axes", "Every log axis says so; linear rates begin at 0."),
    (
        "A model calibrated on the data that validates it",
        "S comes from histograms of cells that are left out of its error.",
    ),
    ("Uniform keys only", "{skus}"),
)
"""Each practice, and the answer to it, with what the data tells in braces."""


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
    environment = list(settings(session.environment))
    told = {
        "session": session,
        "end": end,
        "run_count": len(facts.results.runs),
        "cell_count": len(facts.spots),
        "answer": answer(facts),
        "setting": main_setting(facts),
        "sections": sorted({section(spot.cell) for spot in facts.spots}),
        "guarantees": [label for _, label in GUARANTEES],
        "strategies": strategy_rows(facts),
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
        "voids": void_rows(facts),
        "cells": every_row(facts),
        "noise": noise(facts),
        "model_sentences": error.sentences(),
        "model_points": error.points,
        "model_without": error.without,
        "practices": practices(facts),
        "findings": findings,
        "why_no_table": why_no_table,
        "plan_lines": list(settings({name: session.plan[name] for name in RULES if name in session.plan})),
        "environment": [one for one in environment if ".config." not in one[0]],
        "server_settings": [one for one in environment if ".config." in one[0]],
    }
    return rendered(TEMPLATE, told)


def practices(facts: Facts) -> list[tuple[str, str]]:
    """Return each practice and the answer to it."""
    runs = facts.results.runs
    sections = sorted({section(spot.cell) for spot in facts.spots})
    strategies = sorted({spot.cell.strategy for spot in facts.spots})
    counts = sorted({len(spot.runs) for spot in facts.spots}) or [0]
    windows = sorted(run.window_s for run in runs) or [0.0]
    servers = {tuple(sorted(run.server.items())) for run in runs}
    free = f"{LOCK_FREE} is in F1, F11 and F15" if LOCK_FREE in strategies else f"{LOCK_FREE} is {NOT_HERE}"
    same = (
        "every run had the same server settings" if len(servers) <= 1 else f"{len(servers)} server settings were used"
    )
    where = str(facts.results.session.environment.get("placement") or "where they ran is unknown")
    many = {(spot.cell.skus, spot.cell.zipf) for spot in facts.spots if spot.cell.skus > 1}
    told = {
        "skus": _skus_said(sorted(many)),
        "sections": "; ".join(sections),
        "strategies": ", ".join(strategies),
        "free": free,
        "counts": _span(counts),
        "same": same,
        "shortest": windows[0],
        "longest": windows[-1],
        "lease": LEASE_SECONDS,
        "where": f"{where[0].upper()}{where[1:]}",
    }
    return [(practice, answer.format(**told)) for practice, answer in PRACTICES]


def _skus_said(many: list[tuple[int, float]]) -> str:
    if not many:
        return "One sku is sold: all buyers want the same one. Skew over many skus was not measured."
    each = ", ".join(f"{skus} with Zipf {zipf:g}" for skus, zipf in many)
    return f"One sku is sold, which all buyers want, except in the cells of several skus: {each}."


def _span(counts: list[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
