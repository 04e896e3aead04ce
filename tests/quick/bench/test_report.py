"""Reports and pages that are drawn from results."""

import json
import re
from collections import Counter
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Final

import pytest
from rich.console import Console

from bench.analysis.measured import price, server_seconds
from bench.commands import check_folder, write_report
from bench.engine.cell import Cell
from bench.engine.record import Cpu, Run, as_line
from bench.figures import Figure, FigureResults
from bench.micro.shards import LANE, LONE, Part, Sale, costs_of, measure_masters, order_id, predicted, sale_figures
from bench.micro.shards.page import chart, read_figures, tables, with_table
from bench.report.drawing import NO_PAIR, Answer, answer, page, publish, redraw
from bench.report.facts import Facts, Spot
from bench.report.markdown import table
from bench.report.strategies import work
from bench.report.tables import cell_row
from bench.results import display_on
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput, SegmentedError
from segmented.stock.sharded.opening import home_of
from tests.support.bench.records import CELL, file_of, run
from tests.support.bench.report_session import AA, ROUNDS, rate_of, session
from tests.support.command_line import ran
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts(session())


def without(facts: Facts, *strategies: str) -> Facts:
    kept = tuple(run for run in facts.results.runs if run.cell.strategy not in strategies)
    return Facts(facts.results.model_copy(update={"runs": kept}))


def test_of_two_segment_counts_that_noise_cannot_tell_apart_it_names_the_smaller(facts: Facts) -> None:
    kept = [run for run in facts.results.runs if (run.cell.strategy, run.cell.segments) != ("segment-locks", 128)]
    twice = [
        run.model_copy(
            update={
                "cell": run.cell.model_copy(update={"segments": 128}),
                "cell_id": run.cell_id.replace("K=64 ", "K=128 "),
                "orders_per_s": (run.orders_per_s or 0.0) * 1.001,
                "run": run.run + 10_000,
            }
        )
        for run in kept
        if run.cell.strategy == "segment-locks" and run.cell.segments == 64
    ]
    found = answer(Facts(facts.results.model_copy(update={"runs": (*kept, *twice)})))
    assert found.sentence.startswith("64 segments sold ")


def test_a_ratio_without_an_interval_says_why(facts: Facts) -> None:
    for rounds, why in (
        ({"segment-locks": {0, 1}, "global-lock": {0, 1}}, "(2 runs give no interval: it takes 3)"),
        ({"segment-locks": {0}, "global-lock": {1}}, "(no common round, so no interval)"),
    ):
        kept = tuple(run for run in facts.results.runs if run.round in rounds.get(run.cell.strategy, {run.round}))
        found = answer(Facts(facts.results.model_copy(update={"runs": kept})))
        assert re.fullmatch(r"64 segments sold [\d.]+ times as much as one lock", found.sentence.partition(" (")[0])
        assert why in found.sentence


def test_a_session_without_a_pair_to_compare_says_so_in_one_sentence(facts: Facts) -> None:
    assert answer(without(facts, "segment-locks")) == Answer(NO_PAIR)
    html = page(without(facts, "segment-locks"), [], {}, findings=[], why_no_table=None)
    assert html.index(NO_PAIR) < html.index("<nav")


def of_four_skus(run: Run, number: int) -> Run:
    cell = run.cell.model_copy(update={"skus": 4})
    return run.model_copy(update={"cell": cell, "cell_id": cell.cell_id, "run": number})


def test_cells_of_several_skus_are_never_the_headline(facts: Facts) -> None:
    closed = [run for run in facts.results.runs if run.cell.loop == "closed"]
    several = [of_four_skus(run, len(facts.results.runs) + place) for place, run in enumerate(closed)]
    alone = Facts(facts.results.model_copy(update={"runs": tuple(several)}))
    assert answer(alone) == Answer(NO_PAIR)
    pair = [run for run in closed if run.cell.strategy in {"segment-locks", "global-lock"} and run.cell.batch == 1]
    pair = [run for run in pair if run.cell.section == "commit" or (run.cell.section, run.cell.hold_ms) == ("none", 0)]
    beside = Facts(facts.results.model_copy(update={"runs": (*several, *pair)}))
    assert answer(beside).conditions.startswith("closed loop, no slow step, 64 buyers; 3 runs each")


WITH_SQL = Cpu(generator=0.5, redis=0.2, database=0.4, machine=0.9, others=0.2, steal=0.0)
IN_SQL = Cell(strategy="pg-hot-row", section="commit")


def test_microseconds_an_order_are_seconds_a_million_and_the_databases_are_added() -> None:
    """A record of the tests has 80 microseconds an order; 0.4 cores at 500 orders a second are 800 more."""
    assert server_seconds(run(orders_per_s=500.0)) == 80.0
    assert server_seconds(run(orders_per_s=500.0, cpu=WITH_SQL)) == 880.0
    assert server_seconds(run(IN_SQL, orders_per_s=500.0, cpu=WITH_SQL)) == 800.0


def test_a_row_has_a_price_only_where_the_reader_names_one() -> None:
    """880 s at 0.036 an hour."""
    spot = Spot(CELL, "A", (run(orders_per_s=500.0, cpu=WITH_SQL),))
    assert price(880.0, 0.036) == pytest.approx(0.0088)
    assert (cell_row(spot).server_s, cell_row(spot).price) == ("880", "-")
    assert (cell_row(spot, 0.036).server_s, cell_row(spot, 0.036).price) == ("880", "0.0088")
    results = file_of([run(orders_per_s=500.0, cpu=WITH_SQL)])
    plain, priced = table(Facts(results)), table(Facts(results, core_hour=0.036))
    assert plain.splitlines()[0].endswith("| server CPU, µs |")
    assert "price" not in plain.lower()
    assert priced.splitlines()[0].endswith("| server CPU, s a million orders | price of a million orders |")
    assert priced.splitlines()[2].endswith("| 880 | 0.0088 |")
    assert " Price: CPU of Redis and of the database at 0.036 a core-hour." in priced


def test_a_price_that_is_none_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    for words, said in (
        (["--core-hour", "0"], "--core-hour 0: the price of a core-hour is a number above 0, such as 0.04"),
        (["--core-hour", "nan"], "--core-hour nan: the price of a core-hour is a number above 0, such as 0.04"),
        (
            ["--core-hour", "1", "--publish", "elsewhere"],
            "--core-hour with --publish: a published report has no prices",
        ),
    ):
        refused = ran("bench", "report", str(tmp_path), *words, url=None)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


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


FIGURES: Final = (
    Figure("a cycle <b> | ours / theirs", 0.75, "", low=0.7, high=0.8, at_most=0.85),
    Figure("round trips a cycle", 3, "", at_most=2, is_promise=True),
)
CONDITIONS: Final = {"versions": {"python": "3.11.7"}, "cores": 2, "cpu_model": "a processor", "commit": None}
FOUND: Final = FigureResults("locks", FIGURES, CONDITIONS, ("Everything ran.",))


def test_the_folder_has_the_results_a_page_and_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    check_folder(folder)
    write_report(FOUND, folder, summary="locks beside others", left_out="the 10,000 leases")
    assert sorted(one.name for one in folder.iterdir()) == ["report.html", "results.json", "table.md"]
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == json.loads(json.dumps(FOUND.as_json()))
    assert (folder / "table.md").read_text(encoding="utf-8") == (
        "| figure | value | 95 % interval | bound | kept |\n"
        "| --- | --: | --: | --: | --: |\n"
        "| a cycle <b> \\| ours / theirs | 0.75 | 0.7 to 0.8 | goal <= 0.85 | yes |\n"
        "| round trips a cycle | 3 |  | <= 2 | no |\n"
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "a cycle &lt;b&gt; | ours / theirs" in page
    assert "<strong>A promise was broken.</strong>" in page
    assert "Left out: the 10,000 leases." in page
    assert "<td>versions.python</td><td>3.11.7</td>" in page
    assert "<li>Everything ran.</li>" in page
    assert "http" not in page


def test_a_used_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("notes", encoding="utf-8")
    refused = ran("bench", "locks", "--quick", "--report", str(tmp_path), url=None)
    assert refused.returncode == 2
    why = "is not an empty folder: name a new one"
    assert refused.stderr == f"segmented: --report {tmp_path} {why}\n"
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
ROW = re.compile(r"^\| `(?P<name>[a-z-]+)` \| [^|]+ \| (?P<segments>[^|]*)\| (?P<batches>[^|]*)\|$", re.MULTILINE)


def test_the_page_has_a_row_for_every_strategy_and_knows_what_changes_it() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Strategies\n")[2].partition("\n## ")[0]
    found = {row["name"]: (bool(row["segments"].strip()), bool(row["batches"].strip())) for row in ROW.finditer(page)}
    assert found == {name: (one.has_segments, one.has_batches) for name, one in STRATEGIES.items()}


RESULTS: Final = ROOT / "bench" / "micro" / "shards" / "results.json"
SHARDS_PAGE: Final = ROOT / "docs" / "explanation" / "units-between-shards.md"


def test_the_chart_of_the_shards_is_drawn_again_exactly_from_the_results() -> None:
    assert (ROOT / "docs" / "charts" / "shards.svg").read_text("utf-8") == chart(read_figures(RESULTS))


def test_the_page_has_the_tables_and_the_model_of_the_kept_results() -> None:
    page = SHARDS_PAGE.read_text("utf-8")
    found = tables(read_figures(RESULTS))
    assert [table in page for table in found] == [True] * 3
    (work,) = [one for one in json.loads(RESULTS.read_text("utf-8"))["remarks"] if "us of client CPU" in one]
    client, server, each = (int(one) for one in re.findall(r"(\d+) us", work))
    words = " ".join(page.split())
    assert f"{client} us of client CPU and {server} us of server CPU an order, {each} us more" in words
    assert f"is {server} us with one master, and rises by {each} us" in words


def test_a_table_replaces_the_one_with_the_same_heading() -> None:
    page = "one\n\n| a |\n| - |\n| 1 |\n\ntwo\n"
    assert with_table(page, "| a |\n| - |\n| 2 |\n") == page.replace("1", "2")
    with pytest.raises(InvalidInput, match=r"the page has no table with the heading \| b \|"):
        with_table(page, "| b |\n")


def sale(masters: int, *, each_us: float, transfers: int = 0) -> Sale:
    """Return a sale of 100 and 10 orders in which an order costs each master so many microseconds."""
    operations = Counter({"Grant": 100, "Confirm": 100, "LookAtShard": 2 * masters})
    early = Part(
        orders=100,
        servers_us=(each_us * 100,) * masters,
        client_us=40_000,
        operations=operations,
        commands=Counter({"evalsha": 200, "hset": 500}),
        transfers=transfers,
        messages=100 * (masters - 1),
    )
    late = Part(10, (5.0,) * masters, 50, Counter(), Counter({"evalsha": 30, "eval": 5, "delifeq": 5}), 2, 0)
    return Sale(masters, early, late, 2_000)


def test_counts_and_times_are_divided_by_the_orders_of_their_part() -> None:
    sales = {1: [sale(1, each_us=400)] * 3, 4: [sale(4, each_us=150, transfers=6)] * 3}
    found = {figure.name: figure for figure in sale_figures(sales, 4)}
    values = {name.removeprefix("4 masters: "): figure.value for name, figure in found.items()}
    assert values == {
        "server CPU an order": 600,
        "CPU of the most loaded one an order": 150,
        "server CPU an order / with 1": 1.5,
        "client CPU an order": 400,
        "commands an order, until 90 % is sold": 2,
        "commands for other shards an order, until 90 % is sold": 0.08,
        "commands an order, of the last 10 %": 4,
        "commands for other shards an order, of the last 10 %": 0,
        "messages to other masters an order, until 90 % is sold": 3,
        "transfers an order, until 90 % is sold": 0.06,
        "transfers an order, of the last 10 %": 0.2,
    }
    broken = found["4 masters: transfers an order, until 90 % is sold"]
    assert (broken.is_promise, broken.is_within) == (True, False)


def test_the_times_of_an_order_come_from_a_lone_worker_and_a_busy_segment() -> None:
    costs = costs_of(1 / 0.034, 1 / 0.031, client=0.0005, server=0.0003)
    assert (costs.locked, costs.outside) == pytest.approx((0.001, 0.003))
    assert predicted(LONE, costs) == pytest.approx(1 / 0.034)
    assert predicted(LANE, costs) == pytest.approx(1 / 0.031, rel=0.03)
    with pytest.raises(SegmentedError, match=r"^a worker sold no order in a cell: the machine is too busy to measure$"):
        costs_of(0.0, 1.0, client=0.1, server=0.1)


def test_orders_of_a_cell_are_at_home_in_random_shards() -> None:
    numbered = [len({home_of(f"{worker}-{number}", 8) for worker in range(8)}) for number in range(100)]
    assert set(numbered) == {8}  # no two of eight workers ever met
    homes = [len({home_of(order_id(), 8) for _ in range(8)}) for _ in range(4_000)]
    assert fmean(homes) == pytest.approx(8 * (1 - (7 / 8) ** 8), abs=0.15)  # 5.25; ten times its standard deviation


def test_no_server_can_be_named() -> None:
    with pytest.raises(
        InvalidInput, match=r"^--url does not fit: bench shards starts clusters of 1 to 8 masters of its"
    ):
        measure_masters("redis://localhost", display_on(Console()))


def _geometric(rates: list[float]) -> float:
    return exp(fmean(log(rate) for rate in rates))


def test_it_says_the_ratio_of_our_best_to_one_lock_with_both_rates(facts: Facts) -> None:
    cells = {
        (spot.cell.strategy, spot.cell.segments): spot.cell
        for spot in facts.usual
        if spot.cell.loop == "closed" and (spot.cell.section, spot.cell.hold_ms) == ("sleep", 20.0)
        if (spot.cell.buyers, spot.cell.batch, spot.cell.rtt_ms) == (64, 1, 0.0)
    }
    rates = {key: [rate_of(cell, each) for each in range(ROUNDS)] for key, cell in cells.items()}
    best, lock = rates["segment-locks", 64], rates["global-lock", 1]
    times = exp(fmean(log(over / under) for over, under in zip(best, lock, strict=True)))
    found = answer(facts)
    assert found.sentence.startswith(f"64 segments sold {times:.4g} times as much as one lock (95 % interval ")
    assert f"{_geometric(best):,.4g}".replace(",", "") in found.sentence.replace(",", "")
    assert f" against {_geometric(lock):.4g} orders/s." in found.sentence
    assert "Without a lock, lock-free sold" in found.sentence
