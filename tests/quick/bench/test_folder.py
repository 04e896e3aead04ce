"""The folder of results: one session at a time, and conditions without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bench.engine.folder import ResultsFolder
from bench.engine.record import EndLine, SessionLine
from segmented.errors import InvalidInput
from tests.support.bench.records import run

if TYPE_CHECKING:
    from pathlib import Path

SESSION = SessionLine(
    plan={},
    plan_sha256="0" * 64,
    plan_commit=None,
    is_quick=True,
    left_out=(),
    started_at="2026-11-22T04:00:00+00:00",
    environment={
        "code": {"commit": "a" * 40, "python": "3.11.7"},
        "machine": {"kernel": "6.1", "cpu_model": "a processor", "cores": 2},
        "servers": {"redis": {"version": "9.1.2", "embedded": True}},
    },
)


def on(**changes: object) -> SessionLine:
    """Return the session with one thing of its code or machine changed."""
    found = {
        part: {**values, **{key: value for key, value in changes.items() if key in values}}
        for part, values in SESSION.environment.items()
    }
    return SESSION.model_copy(update={"environment": found})


def test_a_folder_is_in_use_by_one_session_at_a_time(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "a") as first:
        assert first.is_new()
        with pytest.raises(InvalidInput, match=r"^--report \S+ is in use by another session$"):
            ResultsFolder(tmp_path / "a")
    with ResultsFolder(tmp_path / "a"):
        pass


def test_what_is_written_is_read_back_and_a_cut_line_is_removed(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path) as folder:
        folder.begin(SESSION, "the plan")
        folder.keep_rate("a cell", 12.5)
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"schema":"segm')
    with ResultsFolder(tmp_path) as folder:
        assert not folder.is_new()
        assert folder.go_on(SESSION) == {}
        assert folder.rates == {"a cell": 12.5}
        folder.append(EndLine(finished_at="now", runs_planned=2, runs_done=0, stopped_by="interrupted"))
    lines = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["session", "end"]


def test_results_of_somebody_else_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    for first in ("my own notes, without a newline", "[]\n", '{"schema":"segmented-bench/2"}\n{"cut'):
        file = tmp_path / "results.jsonl"
        file.write_text(first, encoding="utf-8")
        with pytest.raises(
            InvalidInput, match=r"its results\.jsonl is not one of segmented-bench/1: name a new folder"
        ):
            ResultsFolder(tmp_path)
        assert [one.name for one in tmp_path.iterdir()] == ["results.jsonl"]
        assert file.read_text(encoding="utf-8") == first


def test_a_folder_with_files_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"has files, and no results\.jsonl among them: name a new folder"):
        ResultsFolder(tmp_path)
    assert [one.read_text(encoding="utf-8") for one in tmp_path.iterdir()] == ["mine"]


def test_where_no_session_began_nothing_is_left_behind(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "new" / "results") as folder:
        assert folder.is_new()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with ResultsFolder(tmp_path / "mine"):
        pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_session_under_other_conditions_does_not_go_on_there(tmp_path: Path) -> None:
    placed = SESSION.model_copy(update={"environment": SESSION.environment | {"placement": "anywhere"}})
    with ResultsFolder(tmp_path) as folder:
        folder.begin(SESSION, "the plan")
        for now, sentence in (
            (on(commit="b" * 40), f"has runs with another commit of the code ({'a' * 40}, this is {'b' * 40})"),
            (on(cores=4), "has runs with another number of cores (2, this is 4)"),
            (placed, "has runs with another placement (None, this is anywhere)"),
            (SESSION.model_copy(update={"is_quick": False}), "has runs with another profile (True, this is False)"),
        ):
            with pytest.raises(InvalidInput) as caught:
                folder.go_on(now)
            assert str(caught.value).startswith(f"--report {tmp_path} {sentence}")


def test_a_session_does_not_go_on_by_other_calibrations(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    with ResultsFolder(tmp_path) as folder:
        folder.begin(SESSION, "the plan")
        folder.append(run())
        for text, sentence in (
            (None, " is missing, and the runs beside it were measured by it: name another folder"),
            ('["a cell"]', " is not a calibration file: 'list' object has no attribute 'items'"),
            ('{"a cell": null}', " is not a calibration file: "),
        ):
            if text is not None:
                file.write_text(text, encoding="utf-8")
            with pytest.raises(InvalidInput) as caught:
                folder.go_on(SESSION)
            assert str(caught.value).startswith(f"{file}{sentence}")
