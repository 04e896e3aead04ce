"""Two sessions side by side, cell by cell of their closed loops: faster, slower, or no difference.

The rate of an open loop is its load, so it is not compared.

The sessions ran at different times, so nothing is paired, and the intervals do not include changes between them other
than the code; known differences are listed first. The intervals of all compared cells are 95 % together. A difference
counts if the interval of the ratio excludes 1 and the ratio is beyond the noise floor of its cell, the larger one of
both files. If neither file has an A/A row, a difference below `UNKNOWN_NOISE` is not judged, since it may be noise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from bench.analysis.intervals import unpaired_ratio
from bench.analysis.measured import broken_promises, cells_of, noise_floor
from bench.results import say, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bench.analysis.intervals import Estimate
    from bench.analysis.measured import Measured, NoiseFloor
    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile, SessionLine

UNKNOWN_NOISE: Final = 0.10
"""The noise floor that is assumed without an A/A row."""
Verdict = Literal["faster", "slower", "no difference", "not judged", "no throughput"]
PASSING: Final = frozenset({"load_before", "steal_percent", "fdatasync_us", "memory_gib", "at", "started_at"})
"""Values that every session measures again, so they are never equal and not compared."""
HEAD: Final = ("cell", "A, orders/s", "B, orders/s", "B / A [95 % together]", "verdict", "why")
SHOWN: Final = 60
"""Maximum length of a shown value."""


@dataclass(frozen=True, slots=True)
class Row:
    """A cell in both files: geometric means of orders per second over runs."""

    cell_id: str
    before: float | None
    after: float | None
    ratio: Estimate | None
    """After / before."""
    verdict: Verdict
    why: str
    is_saturated: bool
    """Whether something was saturated in either file, so that the ratio may be that of the generators."""

    def cells(self) -> tuple[str, str, str]:
        """Return both rates and the ratio, as text."""
        rates = ["-" if one is None else f"{one:,.1f}" for one in (self.before, self.after)]
        return rates[0], rates[1], "-" if self.ratio is None else str(self.ratio)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of B with A."""

    noise_floors: dict[str, float]
    """The noise floor as a share, by slow step; empty if neither file has an A/A row with an interval."""
    not_whole: dict[str, str]
    """Missing parts of each session, `A` and `B`."""
    differences: tuple[str, ...]
    """Other differences between the sessions, one sentence each."""
    cells: tuple[Row, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    broken_in_a: dict[str, str]
    """Broken guarantees by cell, open loops included, without controls."""
    broken_in_b: dict[str, str]

    @property
    def is_worse(self) -> bool:
        """Return whether B broke a guarantee, or a cell is slower; the command's exit code is 1 then."""
        return bool(self.broken_in_b) or any(row.verdict == "slower" for row in self.cells)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the `--json` file."""
        return {"benchmark": "compare", **asdict(self)}

    def show(self, console: Console) -> None:
        """Print differences, table and totals; in a pipe one line per cell."""
        for name, why in self.not_whole.items():
            say(console, f"{name} is not a whole session: {why}.")
        for sentence in self.differences:
            say(console, f"Not the same: {sentence}.")
        say(console, self.noise())
        rows = [
            (row.cell_id, *row.cells(), f"{row.verdict}{' (saturated)' * row.is_saturated}", row.why)
            for row in self.cells
        ]
        show_rows(console, HEAD, rows, "{}: {} {} {}: {} ({})".format)
        for name, cells in (("A", self.only_in_a), ("B", self.only_in_b)):
            if cells:
                say(console, f"Only in {name}: {'; '.join(cells)}.")
        for name, broken in (("A", self.broken_in_a), ("B", self.broken_in_b)):
            for cell_id, what in broken.items():
                say(console, f"{name} broke a promise: {cell_id}: {what}.")
        say(console, self.totals())

    def totals(self) -> str:
        """Return how many cells got which verdict, as a sentence."""
        counts = {verdict: sum(row.verdict == verdict for row in self.cells) for verdict in get_args(Verdict)}
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        return f"{len(self.cells)} closed-loop cells in both: {said or 'nothing to compare'}."

    def noise(self) -> str:
        """Return which differences are noise, as a sentence."""
        if not self.noise_floors:
            return f"There is no A/A row for the noise: differences below {UNKNOWN_NOISE:.0%} are not judged."
        said = ", ".join(f"{floor:.1%} with the slow step {step}" for step, floor in self.noise_floors.items())
        return f"Noise floor, by the A/A row: {said}; for other cells the largest. Ignore smaller differences."


def compare(before: ResultFile, after: ResultFile) -> Comparison:
    """Compare B (`after`) with A (`before`), cell by cell."""
    noises = (noise_floor(before), noise_floor(after))
    floors: dict[str, float] = {}
    for step, floor in (item for noise in noises for item in noise.by_step.items()):
        floors[step] = max(floor, floors.get(step, 0.0))
    first, second = _closed(before), _closed(after)
    both = [one for one in first if one in second]
    return Comparison(
        noise_floors=floors,
        not_whole={name: why for name, one in (("A", before), ("B", after)) if (why := one.why_not_whole)},
        differences=tuple(differences(before.session, after.session)),
        cells=tuple(_row(first[one], second[one], _floor(noises, first[one].cell), len(both)) for one in both),
        only_in_a=tuple(one for one in first if one not in second),
        only_in_b=tuple(one for one in second if one not in first),
        broken_in_a=_broken(before),
        broken_in_b=_broken(after),
    )


def _floor(noises: Sequence[NoiseFloor], cell: Cell) -> float | None:
    return max((one for noise in noises if (one := noise.of(cell)) is not None), default=None)


def _closed(results: ResultFile) -> dict[str, Measured]:
    return {cell_id: one for cell_id, one in cells_of(results).items() if one.cell.loop == "closed"}


def _row(before: Measured, after: Measured, floor: float | None, family: int) -> Row:
    ratio = unpaired_ratio(after.rates, before.rates, family=family)
    if ratio is None:
        void = " and ".join(name for name, one in (("A", before), ("B", after)) if not one.rates)
        verdict: Verdict = "no throughput"
        why = f"every run of {void} is void"
    else:
        verdict, why = verdict_of(ratio, floor)
    is_saturated = bool(before.saturated or after.saturated)
    return Row(before.cell_id, before.mean_rate, after.mean_rate, ratio, verdict, why, is_saturated)


def verdict_of(ratio: Estimate, floor: float | None) -> tuple[Verdict, str]:
    """Return the verdict on a ratio and its reason, in order of precedence. `floor`: the noise, None if unknown."""
    if ratio.low is None or ratio.high is None:
        return "not judged", str(ratio.why_no_interval)
    size, change = max(ratio.value, 1 / ratio.value) - 1, abs(ratio.value - 1)
    if floor is None and size < UNKNOWN_NOISE:
        return "not judged", f"{change:.1%}, and there is no A/A row for the noise"
    if ratio.low <= 1 <= ratio.high:
        return "no difference", "the interval has 1 in it"
    if floor is not None and size <= floor:
        return "no difference", f"{change:.1%} is below the noise floor of {floor:.1%}"
    return ("faster" if ratio.value > 1 else "slower"), f"by {change:.1%}"


def _broken(results: ResultFile) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for run in results.runs:
        if names := broken_promises(run):
            found.setdefault(run.cell_id, []).append(f"round {run.round}, arm {run.arm}: {', '.join(names)}")
    return {cell_id: "; ".join(runs) for cell_id, runs in found.items()}


def differences(before: SessionLine, after: SessionLine) -> Iterator[str]:
    """Yield the differences, A first, each as a sentence without its full stop."""
    if before.is_quick != after.is_quick:
        yield "profile: quick, published" if before.is_quick else "profile: published, quick"
    if before.plan_sha256 != after.plan_sha256:
        yield f"plan: {before.plan_sha256[:12]}, {after.plan_sha256[:12]}"
    yield from _differing(before.environment, after.environment)


def _differing(first: dict[str, Any], second: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted((first.keys() | second.keys()) - PASSING):
        one, other, name = first.get(key), second.get(key), f"{prefix}{key}"
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differing(one, other, f"{name}.")
        elif isinstance(one, dict) and other is None:
            yield f"{name}: A alone has it"
        elif isinstance(other, dict) and one is None:
            yield f"{name}: B alone has it"
        elif one != other:
            yield f"{name}: {_short(one)}, {_short(other)}"


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
