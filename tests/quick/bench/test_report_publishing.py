"""A published session has all that its report needs: the report is drawn again there, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.engine.record import as_line
from bench.report.drawing import redraw
from bench.report.figures.over_time import outcomes
from bench.report.publishing import publish
from segmented.errors import InvalidInput
from tests.support.bench.report_session import session

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.record import Run

pytestmark = [pytest.mark.timeout(240)]
FILES = ("plan.toml", "environment.json", "calibrations.json")


def nothing(_: str, __: int, ___: int) -> None:
    """Look away."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("bench.report.drawing.FIGURES", (outcomes,))
    found = tmp_path / "session"
    found.mkdir()
    made = session(found)
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
    monkeypatch.setattr("bench.report.publishing.HISTORIES_MAX", 0)
    to = tmp_path / "published"
    report = publish(folder, to, nothing, history_max=1)
    runs = session().runs
    in_first_round = [one for one in runs if one.round == 0]
    assert report.drawn == ("f16-outcomes",)
    assert len(list((to / "histories").iterdir())) == len(in_first_round) < len(runs)
    assert {one.name for one in to.iterdir()} >= {"results.jsonl", *FILES, "report.html", "SHA256SUMS"}
    before = {one.relative_to(to): one.read_bytes() for one in to.rglob("*") if one.is_file()}
    redraw(to, nothing)
    assert {one.relative_to(to): one.read_bytes() for one in to.rglob("*") if one.is_file()} == before


def test_small_histories_are_published_whole_and_a_missing_part_is_named(folder: Path, tmp_path: Path) -> None:
    publish(folder, tmp_path / "published", nothing, history_max=1)
    assert len(list((tmp_path / "published" / "histories").iterdir())) == len(session().runs)
    with pytest.raises(
        InvalidInput, match=r"published cannot be written: File exists; name a folder that does not exist$"
    ):
        publish(folder, tmp_path / "published", nothing, history_max=1)
    (folder / "calibrations.json").unlink()
    with pytest.raises(InvalidInput, match=r"session cannot be published: calibrations.json is not there$"):
        publish(folder, tmp_path / "other", nothing, history_max=1)
    file = folder / "results.jsonl"
    file.write_text(file.read_text("utf-8").replace("histories/0003.jsonl.zst", "../results.jsonl"), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"'../results.jsonl' is not the name of a history$"):
        publish(folder, tmp_path / "other", nothing, history_max=1)
    assert not (tmp_path / "other").exists()
