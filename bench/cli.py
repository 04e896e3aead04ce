"""`segmented bench`: a group with one command per benchmark, and commands that read results.

Without a command name it runs `granularity` with the given options.
"""

from __future__ import annotations

import json as json_module
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

from bench.ab import CELLS, ROUNDS, SECONDS, AbSizes, build_here, build_of, measure_ab
from bench.analysis.intervals import RUNS_MIN
from bench.analysis.measured import broken_promises
from bench.commands import PAGE, DatabaseOption, JsonOption, UrlOption, check_folder, exits_by_signal, write_report
from bench.demo import NAME as DEMO, DemoOptions, measure_demo
from bench.engine.cell import Cell
from bench.engine.folder import RESULTS
from bench.engine.plan import PLAN_FILE, nearest, own_plan, read_plan
from bench.engine.record import read_results
from bench.engine.session import SessionOptions, SessionView, kept_in, run_session, show_results
from bench.load.measure import NAME as LOCUST, Sizes as LocustSizes, measure_locust
from bench.micro.dedup import NAME as DEDUP, Sizes as DedupSizes, measure_dedup
from bench.micro.locks.measure import NAME as LOCKS, measure_locks
from bench.micro.shards import NAME as SHARDS, ShardSizes, measure_masters
from bench.micro.stock import Sizes as StockSizes
from bench.micro.stock.measure import NAME as STOCK, measure_stock
from bench.micro.workers import Sizes as WorkerSizes
from bench.micro.workers.lanes import NAME as CELERY, LaneSizes, measure_lanes
from bench.micro.workers.measure import NAME as WORKERS, measure_workers
from bench.results import check_writable, display_on, write
from bench.strategies import STRATEGIES
from bench.strategies.own import add_strategy
from segmented.cli.console import Console, console_beside
from segmented.errors import InvalidInput
from segmented.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.commands import Reported
    from bench.results import Display


# --- measuring a plan ---

FOLDER: Final = Path("bench-results")

QuickOption = Annotated[bool, typer.Option("--quick", help="Finish within two minutes, and list what is skipped.")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="Plan file. [default: the plan of the published figures]", metavar="FILE")
]
SweepOption = Annotated[
    list[str] | None, typer.Option("--sweep", help="Run only this sweep of the plan; repeatable.", metavar="NAME")
]
StrategyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        help="Class of a Python file to measure as a further strategy; repeatable. Without --plan, it is compared with"
        " one lock, 16 segment locks and no lock.",
        metavar="FILE:CLASS",
    ),
]
SessionOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Folder for the results; a stopped session continues there. [default: a new one in bench-results]",
        metavar="DIR",
    ),
]


def granularity(
    *,
    quick: QuickOption = False,
    plan: PlanOption = None,
    sweep: SweepOption = None,
    strategy: StrategyOption = None,
    report: SessionOption = None,
    json: JsonOption = None,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Measure the effect of lock granularity: run the plan's cells in rounds of random order, and check each run.

    Exit code 0 if every strategy kept its guarantees, 1 if one did not, 2 if the session had to stop: finished runs are
    kept, and the same command with the same --report continues.
    """
    own = [add_strategy(one) for one in dict.fromkeys(strategy or ())]
    loaded = own_plan(own) if own and plan is None else read_plan(plan or PLAN_FILE)
    names = [one.name for one in loaded.plan.sweeps]
    for name in sweep or ():
        if name not in names:
            raise InvalidInput(f"--sweep {name}: {loaded.file} has no such sweep{nearest(name, names)}")
    only = tuple(sweep or ())
    options = SessionOptions(loaded, report or _new_folder(), is_quick=quick, only=only, url=url, database=database)
    _measure_plan(options, json)


def orders(
    *,
    quick: QuickOption = False,
    plan: PlanOption = None,
    report: SessionOption = None,
    json: JsonOption = None,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Compare the strategies for single orders and for batches: a part of the plan."""
    loaded = read_plan(plan or PLAN_FILE)
    if not loaded.plan.orders:
        raise InvalidInput(f"{loaded.file}: orders: the plan names no sweeps for this benchmark")
    only = tuple(loaded.plan.orders)
    options = SessionOptions(loaded, report or _new_folder(), is_quick=quick, only=only, url=url, database=database)
    _measure_plan(options, json)


def _new_folder() -> Path:
    return FOLDER / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"


def _measure_plan(options: SessionOptions, json: Path | None) -> None:
    check_writable(json)
    folder, console = options.folder, console_beside(json)
    file = folder / RESULTS
    with exits_by_signal(lambda: kept_in(folder, len(read_results(file).runs) if file.is_file() else 0)):
        run_session(options, SessionView(console))
    found = read_results(file)
    show_results(found, console)
    if json is not None:
        write_whole(json, json_module.dumps(found.model_dump(mode="json", by_alias=True), indent=2) + "\n")
    if found.runs:
        draw(folder, console)
    kept = [(run, names) for run in found.runs if (names := broken_promises(run))]
    for run, names in kept:
        typer.echo(f"{run.cell_id} (run {run.run}) broke what it promises: {', '.join(names)}", err=True)
    if kept:
        raise typer.Exit(1)


# --- two builds ---

AB_ROUNDS_MAX: Final = 1_000
SECONDS_MAX: Final = 60.0


def ab(
    *,
    against: Annotated[
        str, typer.Option(help="A: a commit of this checkout, or a folder with `segmented` in it.", metavar="COMMIT")
    ] = "HEAD",
    strategy: Annotated[
        str | None, typer.Option(help="Measure only this strategy. [default: three cells]", metavar="NAME")
    ] = None,
    segments: Annotated[int, typer.Option(help="Segments of --strategy.", metavar="K", min=1)] = 16,
    hold: Annotated[float, typer.Option(help="Hold of --strategy; 0: none.", metavar="MS", min=0)] = 20.0,
    rounds: Annotated[
        int, typer.Option(help="Rounds of four runs, two of each build.", metavar="N", min=RUNS_MIN, max=AB_ROUNDS_MAX)
    ] = ROUNDS,
    seconds: Annotated[
        float, typer.Option(help="Planned seconds of a run.", metavar="S", min=1, max=SECONDS_MAX)
    ] = SECONDS,
    json: Annotated[
        Path | None,
        typer.Option(help="Write all runs and the findings to this file; - is standard output.", metavar="FILE"),
    ] = None,
) -> None:
    """Compare the code here (B) with a commit (A): both builds run in turns, seconds apart, on fresh servers.

    Exit code 0 if no cell is slower, 1 if one is or if B broke a promise, 2 for a commit that cannot be measured.
    """
    check_writable(json)
    cells = CELLS if strategy is None else (cell_of(strategy, segments, hold),)
    with exits_by_signal(), tempfile.TemporaryDirectory(prefix="segmented-ab-") as name:
        folders = [Path(name) / which for which in ("a", "b")]
        for folder in folders:
            folder.mkdir()
        a, b = build_of(against, folders[0]), build_here(folders[1])
        console = console_beside(json)
        found = measure_ab(a, b, cells, AbSizes(rounds, seconds), display_on(console))
    found.show(console)
    write(found, json)
    if found.is_worse:
        raise typer.Exit(1)


def cell_of(strategy: str, segments: int, hold: float) -> Cell:
    """Return the closed cell with 64 buyers that the options name. Raises InvalidInput."""
    if strategy not in STRATEGIES:
        raise InvalidInput(f"--strategy {strategy}: unknown strategy; known are: {', '.join(STRATEGIES)}")
    has_segments = STRATEGIES[strategy].has_segments
    return Cell(
        strategy=strategy, segments=segments if has_segments else 1, section="sleep" if hold else "none", hold_ms=hold
    )


# --- reading results ---

ResultsArgument = Annotated[Path, typer.Argument(help="Results file results.jsonl, or its folder.")]


def report(
    folder: Annotated[Path, typer.Argument(help="Results file results.jsonl, or its folder.", metavar="DIR")],
    *,
    publish: Annotated[
        Path | None,
        typer.Option(
            "--publish",
            metavar="DIR",
            help="Draw it in a new folder instead, with a copy of the results and of the histories that it needs.",
        ),
    ] = None,
    core_hour: Annotated[
        float | None,
        typer.Option(
            "--core-hour",
            metavar="PRICE",
            help="Price of an hour of a server's core, in any currency: the tables show the price of a million orders."
            "  [default: no prices]",
        ),
    ] = None,
) -> None:
    """Redraw a session's report from its results: figures, page, table."""
    if core_hour is not None:
        _part("bench.analysis.measured", "check_price")(core_hour)
        if publish is not None:
            message = "--core-hour with --publish: a published report has no prices; draw it again with --core-hour"
            raise InvalidInput(message)
    whole = folder.parent if folder.name == RESULTS and folder.is_file() else folder
    draw(whole, Console(), to=publish, core_hour=core_hour)


def compare(
    first: ResultsArgument,
    second: ResultsArgument,
    *,
    json: Annotated[
        Path | None,
        typer.Option("--json", help="Write the findings to this file; - is standard output.", metavar="FILE"),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write the comparison to this file as a page; - is standard output.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Compare two sessions cell by cell. Exit code 1 if a cell of the second is slower, or breaks a promise."""
    check_writable(json)
    check_writable(html, option="--html")
    found = _part("bench.analysis.compare", "compare")(*(read_results(_file(one)) for one in (first, second)))
    found.show(console_beside(json, html))
    write(found, json)
    if html is not None:
        write_whole(html, _part("bench.report.tables", "compared_page")(found, (str(first), str(second))))
    _exit(int(found.is_worse))


def lint(results: ResultsArgument) -> None:
    """Compute a results file again from its plan, histories and books. Exit code 0 only if every check holds."""
    _exit(_part("bench.lint", "lint_file")(results, Console()))


def counts(
    *,
    write: Annotated[bool, typer.Option("--write", help="Save the current counts as the baseline.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with the baseline. This is the default.")] = False,
) -> None:
    """Count what an order costs (commands, round trips, attempts), and compare with the committed baseline."""
    if write and check:
        raise InvalidInput("--check compares and --write replaces the baseline: give one of them")
    _exit(_part("bench.micro.counts", "count")(Console(), writes=write))


def draw(folder: Path, console: Console, *, to: Path | None = None, core_hour: float | None = None) -> None:
    """Draw a session's report: figures, page, table if the lint allows one, and how to repeat it."""
    with display_on(console).strategy("report") as progress:
        if to is None:
            drawn = _part("bench.report.drawing", "redraw")(folder, progress, core_hour=core_hour)
        else:
            drawn = _part("bench.report.drawing", "publish")(folder, to, progress)
    for sentence in drawn.sentences():
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _file(path: Path) -> Path:
    return path / RESULTS if path.is_dir() else path


def _part(module: str, name: str) -> Callable[..., Any]:
    """Import a function on demand: figures and statistics take a second to load."""
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


# --- benchmarks with fixed options ---

SALE_SECONDS: Final = 15.0
QUICK_SALE_SECONDS: Final = 4.0
QUICK_STOCK: Final = StockSizes(
    rounds=1,
    bare_calls=20_000,
    batch_orders=10_000,
    calls=10,
    order_counts=(10_000, 50_000),
    sharded_stock=5_000,
    grant_seconds=1.0,
)
QUICK_DEDUP: Final = DedupSizes(rounds=3, records=2_000, claims=5_000, seconds=5.0)
QUICK_WORKERS: Final = WorkerSizes(
    rounds=2, singles=200, stored_singles=100, envelopes=30, stored_envelopes=10, latencies=60, kills=1
)
QUICK_CELERY: Final = LaneSizes(rounds=2, seconds=1.0, empty=1_000, lone=10, singles=1_000)
QUICK_LOCUST: Final = LocustSizes(rounds=2, seconds=1.5, warm_up=0.5, lone_seconds=2.0, commits=(False,))
QUICK_SHARDS: Final = ShardSizes(rounds=1, masters=(1, 2, 4), stock_each=400, seconds=0.5)


SizesT = TypeVar("SizesT", StockSizes, DedupSizes, WorkerSizes, LaneSizes, LocustSizes, ShardSizes)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of every benchmark: its servers, if they are not embedded ones, and its size."""

    url: str | None = None
    database: str | None = None
    quick: bool = False
    rounds: int | None = None

    def of(self, whole: SizesT, quick: SizesT) -> SizesT:
        """Return the sizes: the quick ones if they are wanted, with this number of rounds if one is given."""
        sizes = quick if self.quick else whole
        return replace(sizes, rounds=self.rounds or sizes.rounds)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark with fixed options."""

    summary: str
    measure: Callable[[Asked, Display], Reported]
    leaves_out: str
    """Measurements that the quick form, which takes less than two minutes, leaves out."""


BENCHMARKS: Final[dict[str, Benchmark]] = {
    DEMO: Benchmark(
        "no lock, one lock, 20 segment locks and lock-free, a hold of 20 ms, 64 buyers",
        lambda want, display: measure_demo(
            DemoOptions(
                url=want.url, database=want.database, seconds=QUICK_SALE_SECONDS if want.quick else SALE_SECONDS
            ),
            display,
        ),
        f"sales of {QUICK_SALE_SECONDS:g} s instead of {SALE_SECONDS:g} s",
    ),
    LOCKS: Benchmark(
        "an uncontended lock compared with other libraries' locks; ten waiters; 10,000 leases renewed",
        lambda want, display: measure_locks(want.url, display, is_quick=want.quick, rounds=want.rounds),
        "libraries that are not installed, and the 10,000 leases",
    ),
    STOCK: Benchmark(
        "orders of a pool compared with a bare decrement; time, memory and commands per order; grants",
        lambda want, display: measure_stock(want.url, display, want.of(StockSizes(), QUICK_STOCK)),
        f"{QUICK_STOCK.rounds} round instead of {StockSizes().rounds}, pools of 50,000 orders instead of 1,000,000",
    ),
    DEDUP: Benchmark(
        "a trivial task with Once compared with a plain one; memory per record; a claim among live keys",
        lambda want, display: measure_dedup(want.url, display, want.of(DedupSizes(), QUICK_DEDUP)),
        f"{QUICK_DEDUP.rounds} rounds instead of {DedupSizes().rounds}, and claims among fewer keys",
    ),
    WORKERS: Benchmark(
        "orders through workers compared with an empty task, singly and by the hundred; idle latency; after a kill",
        lambda want, display: measure_workers(want.url, want.database, display, want.of(WorkerSizes(), QUICK_WORKERS)),
        "2 rounds instead of 7, fewer messages, and one kill each",
    ),
    CELERY: Benchmark(
        "one lock against 4, 20 and 64 segments in two Celery workers of 32 threads, beside Celery's own ceiling",
        lambda want, display: measure_lanes(want.url, want.database, display, want.of(LaneSizes(), QUICK_CELERY)),
        "2 rounds instead of 5, of 1 s instead of 3 s",
    ),
    LOCUST: Benchmark(
        "one lock against 4, 20 and 64 segments with the same 64 Locust users; 20 ms, and 20 ms and a commit",
        lambda want, display: measure_locust(want.url, want.database, display, want.of(LocustSizes(), QUICK_LOCUST)),
        "sales with a commit, and 2 rounds instead of 6, of 1.5 s instead of 6 s",
    ),
    SHARDS: Benchmark(
        "a pool in shards on 1 to 8 masters: CPU and commands per order, transfers; throughput beside a queueing model",
        lambda want, display: measure_masters(want.url, display, want.of(ShardSizes(), QUICK_SHARDS)),
        "1 round instead of 6 without intervals, 1, 2 and 4 masters only, and shorter sales and cells",
    ),
}

ROUNDS_MAX: Final = 1_000
RoundsOption = Annotated[
    int | None, typer.Option(help="Rounds per ratio; the demo has none.", metavar="N", min=1, max=ROUNDS_MAX)
]
ReportOption = Annotated[
    Path | None, typer.Option(help="New folder for the results, their page, and a Markdown table.", metavar="DIR")
]


def _fixed(name: str) -> Callable[..., None]:
    def run(
        *,
        quick: QuickOption = False,
        rounds: RoundsOption = None,
        report: ReportOption = None,
        json: JsonOption = None,
        url: UrlOption = None,
        database: DatabaseOption = None,
    ) -> None:
        _measure(name, Asked(url, database, quick, rounds), report, json)

    return run


def _measure(name: str, asked: Asked, report: Path | None, json: Path | None) -> None:
    """Run a benchmark by name; exit with 1 if a guarantee was broken."""
    benchmark = BENCHMARKS[name]
    if name == DEMO and asked.rounds is not None:
        raise InvalidInput("--rounds does not fit: the demo has one sale for each strategy; leave it out")
    check_writable(json)
    check_folder(report)
    console = console_beside(json)
    left_out = benchmark.leaves_out if asked.quick else ""
    if left_out:
        console.print(f"Left out: {left_out}.", highlight=False, soft_wrap=True, markup=False)
    with exits_by_signal():
        results = benchmark.measure(asked, display_on(console))
    results.show(console)
    write(results, json)
    write_report(results, report, summary=benchmark.summary, left_out=left_out)
    if report is not None:
        console.print(f"Report: {report / PAGE}", highlight=False, soft_wrap=True, markup=False)
    if not results.is_kept:
        raise typer.Exit(1)


# --- the group ---

DEFAULT: Final = "granularity"


class BenchGroup(TyperGroup):
    """A group with a default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's own copy of click
        """Insert the default command. Raises InvalidInput for an unknown benchmark."""
        return super().parse_args(ctx, whole(args, list(self.commands), ctx.help_option_names))


def whole(words: list[str], known: Sequence[str], helps: Sequence[str] = ("--help",)) -> list[str]:
    """Return the arguments with a command name first. Raises InvalidInput for an unknown name."""
    if not words or (words[0].startswith("-") and words[0] not in helps):
        return [DEFAULT, *words]
    if not words[0].startswith("-") and words[0] not in known:
        raise InvalidInput(f"unknown benchmark {words[0]!r}{nearest(words[0], known)}")
    return words


HELP: Final = "Measure, and read what was measured. Without a name: granularity, with its options, as in bench --quick."
bench = typer.Typer(cls=BenchGroup, help=HELP)


@bench.callback(help=HELP)
def _group() -> None:
    """Exist so that typer keeps the commands a group."""


for measures in (granularity, orders, ab):
    bench.command()(measures)
for name, benchmark in BENCHMARKS.items():
    bench.command(name, help=f"Measure: {benchmark.summary}.")(_fixed(name))
for tool in (report, compare, lint, counts):
    bench.command()(tool)
