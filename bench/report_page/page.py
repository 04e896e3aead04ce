"""The report as one HTML file: nothing is fetched, figures stand in it as SVG, and it can be printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from bench.analysis.hypotheses import judge
from bench.analysis.model_error import model_error
from bench.report_page.comparisons import noise
from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.facts import section
from bench.report_page.html import rendered
from bench.report_page.practices import practices
from bench.report_page.style import inlined
from bench.report_page.tables import (
    GUARANTEES,
    every_row,
    main_setting,
    settings,
    strategy_rows,
    void_rows,
)
from bench.report_page.unfavourable import unfavourable_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.lint import RuleFinding
    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts

TEMPLATE: Final = "report.html.j2"


@dataclass(frozen=True, slots=True)
class Inline:
    """A figure as the page shows it."""

    number: str
    name: str
    title: str
    caption: str
    svg: Markup


def page(
    facts: Facts,
    outcomes: Sequence[Outcome],
    svgs: Mapping[str, str],
    *,
    findings: Sequence[RuleFinding],
    why_no_table: str | None,
) -> str:
    """Return the HTML. The same results give the same text."""
    return rendered(TEMPLATE, _told(facts, outcomes, svgs, findings, why_no_table))


def _told(
    facts: Facts,
    outcomes: Sequence[Outcome],
    svgs: Mapping[str, str],
    findings: Sequence[RuleFinding],
    why_no_table: str | None,
) -> dict[str, Any]:
    session, end = facts.results.session, facts.results.end
    error = model_error(facts.results)
    drawn = [_inline(one, svgs) for one in outcomes if isinstance(one, Drawn)]
    servers = [(name, value) for name, value in settings(session.environment) if ".config." in name]
    return {
        "session": session,
        "end": end,
        "run_count": len(facts.results.runs),
        "cell_count": len(facts.spots),
        "setting": main_setting(facts),
        "sections": sorted({section(spot.cell) for spot in facts.spots}),
        "guarantees": [label for _, label in GUARANTEES],
        "strategies": strategy_rows(facts),
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
        "plan_lines": list(settings(_rules(session.plan))),
        "environment": [(name, value) for name, value in settings(session.environment) if ".config." not in name],
        "server_settings": servers,
    }


def _rules(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan[name] for name in ("rounds", "seconds", "warm_up", "seed", "stop", "quick") if name in plan}


def _inline(one: Drawn, svgs: Mapping[str, str]) -> Inline:
    body = Markup(inlined(svgs[one.name], one.name, f"{one.number}: {one.title}"))  # noqa: S704  # drawn by us, escaped by matplotlib
    return Inline(one.number, one.name, one.title, one.caption, body)
