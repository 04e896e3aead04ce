"""The lint on servers: what several use up together, and what of them no buyer, or no Redis, can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.lint import RULES
from bench.lint.subject import Subject
from tests.support.bench.lint_results import BASE, changed, honest, place_of, with_run
from tests.support.bench.records import times

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import ResultFile, Run

AT = place_of(BASE)
RUN = honest().runs[AT]
NAMED = f"run {RUN.run} ({RUN.cell_id})"


def part(run: Run, name: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401  # any field of any part
    """Return a run's part with some fields changed, as what is to be changed of the run."""
    return {name: getattr(run, name).model_copy(update=values)}


def verdict(rule: str, results: ResultFile, folder: Path) -> tuple[str, str]:
    (asked,) = (one for one in RULES if one.number == rule)
    found = asked.verdict(Subject(results, folder))
    return found.outcome, found.evidence


def test_what_buyers_cannot_see_of_workers_and_what_redis_does_not_do_breaks_no_rule(tmp_path: Path) -> None:
    """Buyers of the Celery path are told nothing of its slow step; Redis idles while PostgreSQL sells."""
    celery = RUN.model_copy(
        update={"cell": changed(BASE, strategy="celery-one")} | part(RUN, "times", hold=times(0, n=0))
    )
    idle = part(RUN, "cpu", redis=0.0, database=0.4) | part(RUN, "work", commands=0.0, server_us=0.0)
    alone = RUN.model_copy(update={"cell": changed(BASE, strategy="pg-rows")} | idle)
    more = honest().model_copy(update={"runs": (*honest().runs, celery, alone)})
    outcome, evidence = verdict("R14", more, tmp_path)
    assert (outcome, "workers hold, and buyers do not see it: celery-one;" in evidence) == ("holds", True)
    assert [verdict(rule, more, tmp_path)[0] for rule in ("R13", "R18")] == ["holds", "holds"]


def test_a_core_that_servers_share_is_marked_when_all_of_them_fill_it(tmp_path: Path) -> None:
    shared = {"server_cores": 1} | part(RUN, "cpu", redis=0.3, database=0.65)
    outcome, evidence = verdict("R13", with_run(AT, **shared), tmp_path)
    assert (outcome, evidence.endswith(NAMED)) == ("broken", True)
    assert verdict("R13", with_run(AT, saturated=("servers",), **shared), tmp_path)[0] == "holds"
