"""The lint on a session that the engine made: it agrees with its plan and its histories, and with no other figures."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from bench.granularity.record import ResultFile, Run, read_results
from bench.granularity.session import SessionOptions, run_session
from bench.lint.planned import as_planned
from bench.lint.recomputed import follows
from bench.lint.subject import Subject
from tests.bench.integration.test_session import RecordingDisplay
from tests.bench.plans import ONE_CELL, small_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("session")
    loaded = small_plan(tmp_path_factory.mktemp("plan"), ONE_CELL, ("rounds = 2", "rounds = 1"))
    return run_session(SessionOptions(loaded=loaded, folder=found), RecordingDisplay()).parent


def _with(found: ResultFile, run: Run) -> ResultFile:
    return found.model_copy(update={"runs": tuple(run if one.run == run.run else one for one in found.runs)})


@pytest.mark.full
def test_a_real_session_follows_from_its_plan_and_its_histories(folder: Path) -> None:
    results = read_results(folder / "results.jsonl")
    subject = Subject(results, folder)
    count = len(results.runs)
    assert (
        follows(subject).evidence == f"{count} records agree with themselves, and {count} of them with their histories"
    )
    assert as_planned(subject).evidence.startswith("no commit of the plan")  # all before it agreed


@pytest.mark.full
def test_a_history_with_other_calls_contradicts_its_run(folder: Path) -> None:
    results = read_results(folder / "results.jsonl")
    closed = [one for one in results.runs if one.cell.loop == "closed" and one.cell.hold_ms]
    run = next(one for one in closed if one.orders_per_s is not None)  # one of several may have stood still
    file = folder / str(run.history)
    kept = file.read_bytes()
    calls = [json.loads(line) for line in zstandard.ZstdDecompressor().decompress(kept).splitlines()]

    def said(change: Any) -> str:  # noqa: ANN401  # a function of a call
        packed = zstandard.ZstdCompressor().compress("\n".join(json.dumps(change(dict(one))) for one in calls).encode())
        file.write_bytes(packed)
        signed = run.model_copy(update={"history_sha256": hashlib.sha256(packed).hexdigest()})
        return follows(Subject(_with(results, signed), folder)).evidence

    try:
        of = f": run {run.run} ({run.cell_id})"
        assert said(lambda one: one | {"sold": 0}) == f"the history gives another number of sold orders or refusals{of}"
        assert said(lambda one: one | {"done": one["done"] / 2}) == f"the history gives another rate{of}"
        assert said(lambda one: one | {"buyer": 0}) == f"the history gives another number of orders by buyer{of}"
        slower = said(lambda one: one | {"asked": one["asked"] - 0.004})
        assert slower.startswith("the history gives another median service time (")
        file.write_bytes(b"no history")
        assert follows(Subject(results, folder)).evidence.startswith(f"the history {file.name} cannot be read: ")
    finally:
        file.write_bytes(kept)
