"""The lint on a session that the engine made: it agrees with its plan and its histories, and with no other figures."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from bench.engine.record import ResultFile, Run, read_results
from bench.engine.session import SessionOptions, run_session
from bench.lint import Subject, verdict
from bench.report.facts import Facts
from bench.report.markdown import reproduce
from segmented.cli.main import run as run_command
from tests.real.bench.integration.test_session import RecordingDisplay
from tests.support.bench.plans import ONE_CELL, small_plan
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.engine.record import EndLine

PUBLISHED = ROOT / "docs" / "results" / "2026-11-28"
MANY_SKUS = ('{ section = "none" }', '{ section = "none", skus = 4, zipf = 1.1 }')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("session")
    loaded = small_plan(tmp_path_factory.mktemp("plan"), ONE_CELL, MANY_SKUS, ("rounds = 2", "rounds = 1"))
    return run_session(SessionOptions(loaded=loaded, folder=found, only=("hold",)), RecordingDisplay()).parent


def _with(found: ResultFile, run: Run) -> ResultFile:
    return found.model_copy(update={"runs": tuple(run if one.run == run.run else one for one in found.runs)})


def said(check: str, results: ResultFile, folder: Path) -> str:
    return verdict(check, Subject(results, folder)).evidence


def test_a_real_session_follows_from_its_plan_and_its_histories(folder: Path) -> None:
    results = read_results(folder / "results.jsonl")
    whole = len([1 for run in results.runs if run.window_s > 0])  # one may have been lost on a machine that stood still
    assert said("records", results, folder) == f"{whole} records agree with themselves"
    assert said("histories", results, folder) == f"{whole} of {whole} histories are there, and give the records"
    assert said("books", results, folder).startswith(f"{len(results.runs)} runs checked, ")
    assert said("plan", results, folder).startswith("no commit of the plan")  # all before it agreed


def test_a_history_with_other_calls_contradicts_its_run(tmp_path: Path) -> None:
    results = read_results(PUBLISHED / "results.jsonl")
    held = [one for one in results.runs if one.cell.loop == "closed" and one.cell.hold_ms and one.orders_per_s]
    run = next(one for one in held if one.history and (PUBLISHED / one.history).exists())
    file = tmp_path / str(run.history)
    file.parent.mkdir()
    kept = (PUBLISHED / str(run.history)).read_bytes()
    calls = [json.loads(line) for line in zstandard.ZstdDecompressor().decompress(kept).splitlines()]

    def found(packed: bytes) -> str:
        file.write_bytes(packed)
        signed = run.model_copy(update={"history_sha256": hashlib.sha256(packed).hexdigest()})
        return said("histories", results.model_copy(update={"runs": (signed,)}), tmp_path)

    def replayed(change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
        lines = "\n".join(json.dumps(change(dict(one))) for one in calls)
        return found(zstandard.ZstdCompressor().compress(lines.encode()))

    of = f": run {run.run} ({run.cell_id})"
    assert found(kept) == "1 of 1 histories are there, and give the records"
    assert replayed(lambda one: one | {"sold": 0}) == (
        f"the history gives another number of sold, refused or failed orders{of}"
    )
    assert replayed(lambda one: one | {"done": one["done"] / 2}) == f"the history gives another rate{of}"
    assert replayed(lambda one: one | {"buyer": 0}) == f"the history gives another number of orders by buyer{of}"
    slower = replayed(lambda one: one | {"asked": one["asked"] - 0.004})
    assert slower.startswith("the history gives another median service time (")
    assert found(b"no history").startswith(f"the history {file.name} cannot be read: ")


def test_books_of_skus_that_do_not_follow_from_seed_record_and_history_are_named(folder: Path) -> None:
    results = read_results(folder / "results.jsonl")
    run = next(one for one in results.runs if one.cell.skus > 1)
    of = f": run {run.run} ({run.cell_id})"
    first, second, *others = run.skus

    def moved(name: str) -> ResultFile:
        less = first.model_copy(update={name: getattr(first, name) - 1})
        more = second.model_copy(update={name: getattr(second, name) + 1})
        return _with(results, run.model_copy(update={"skus": (less, more, *others)}))

    assert said("plan", moved("stock"), folder) == (
        f"stock or arrivals do not follow from seed, calibration and earlier runs{of}"
    )
    assert said("histories", moved("sold"), folder) == f"the history gives another number of units sold of each sku{of}"
    alone = _with(results, run.model_copy(update={"skus": ()}))
    assert said("books", alone, folder) == f"the books are not those of the skus together{of}"


def test_a_session_of_one_sweep_is_compared_with_that_sweep_and_misses_no_cell_of_it(folder: Path) -> None:
    results = read_results(folder / "results.jsonl")
    assert results.session.sweeps == ("hold",)
    assert "$ segmented bench granularity --sweep hold --plan plan.toml --report again" in reproduce(Facts(results))
    dropped = results.model_copy(update={"runs": results.runs[:1], "end": results.end and _of_one_run(results.end)})
    assert said("plan", dropped, folder) == "the last line does not say that 2 runs were planned and 1 done"
    whole = results.model_copy(update={"session": results.session.model_copy(update={"sweeps": ()})})
    assert said("plan", whole, folder).startswith("the last line does not say that ")


def test_the_report_of_a_session_is_drawn_and_its_lint_names_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.report.drawing.FIGURES", ())  # they take seconds
    assert run_command(["bench", "report", str(folder)]) == 0
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    assert run_command(["bench", "lint", str(folder)]) == 1
    assert "checks hold: " in capsys.readouterr().out


def _of_one_run(end: EndLine) -> EndLine:
    return end.model_copy(update={"runs_planned": 1, "runs_done": 1})
