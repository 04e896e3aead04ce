"""A published session has all that its report needs: the report is drawn again there, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.engine.record import as_line
from bench.report.drawing import publish, redraw
from bench.report.figures.strategies import work
from segmented.errors import InvalidInput
from tests.support.bench.report_session import AA, session

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import Run

FILES = ("plan.toml", "environment.json", "calibrations.json")


def nothing(_: str, __: int, ___: int) -> None:
    """Look away."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("bench.report.drawing.FIGURES", (work,))
    found = tmp_path / "session"
    found.mkdir()
    whole = session(found)
    made = whole.model_copy(
        update={
            "runs": tuple(
                one for one in whole.runs if one.arm == "A" and (one.cell == AA or one.cell.strategy == "no-lock")
            )
        }
    )
    packed = (found / "histories" / "0001.jsonl.zst").read_bytes()

    def with_history(run: Run) -> Run:
        name = f"histories/{run.run:04}.jsonl.zst"
        (found / name).write_bytes(packed)
        return run.model_copy(update={"history": name})

    lines = [as_line(made.session), *(as_line(with_history(run)) for run in made.runs)]
    (found / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    for name in FILES:
        (found / name).write_text("{}", encoding="utf-8")
    return found


def test_a_published_report_is_drawn_again_by_one_command_to_the_last_byte(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large histories are published for the first round only; the folder has three rounds of two cells."""
    monkeypatch.setattr("bench.report.drawing.HISTORIES_MAX", 0)
    to = tmp_path / "published"
    report = publish(folder, to, nothing)
    assert report.drawn == ("f10-work",)
    assert len(list((to / "histories").iterdir())) == 2
    assert {one.name for one in to.iterdir()} >= {"results.jsonl", *FILES, "report.html", "SHA256SUMS"}
    before = {one.relative_to(to): one.read_bytes() for one in to.rglob("*") if one.is_file()}
    redraw(to, nothing)
    assert {one.relative_to(to): one.read_bytes() for one in to.rglob("*") if one.is_file()} == before


def test_small_histories_are_published_whole_and_a_missing_part_is_named(folder: Path, tmp_path: Path) -> None:
    publish(folder, tmp_path / "published", nothing)
    assert len(list((tmp_path / "published" / "histories").iterdir())) == 6
    with pytest.raises(InvalidInput, match=r"published cannot be written: File exists; name a folder that does not"):
        publish(folder, tmp_path / "published", nothing)
    (folder / "calibrations.json").unlink()
    with pytest.raises(InvalidInput, match=r"session cannot be published: calibrations.json is not there$"):
        publish(folder, tmp_path / "other", nothing)
    (folder / "calibrations.json").write_text("{}", encoding="utf-8")
    file = folder / "results.jsonl"
    file.write_text(file.read_text("utf-8").replace("histories/0061.jsonl.zst", "../results.jsonl"), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"'../results.jsonl' is not the name of a history$"):
        publish(folder, tmp_path / "other", nothing)
    assert not (tmp_path / "other").exists()
