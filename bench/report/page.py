"""The report as one HTML file: nothing is fetched, figures stand in it as SVG, and it can be printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from bench.analysis.hypotheses import judge
from bench.analysis.model_error import model_error
from bench.report.answer import answer
from bench.report.comparisons import noise
from bench.report.facts import Drawn, NotDrawn, section
from bench.report.style import inlined
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
    from bench.report.facts import Facts, Outcome

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
        "findings": findings,
        "why_no_table": why_no_table,
        "plan_lines": list(settings({name: session.plan[name] for name in RULES if name in session.plan})),
        "environment": [one for one in environment if ".config." not in one[0]],
        "server_settings": [one for one in environment if ".config." in one[0]],
    }
    return rendered(TEMPLATE, told)
