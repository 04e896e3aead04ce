"""What we did not do: the dishonest practices of benchmarks, each with what stands here instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.facts import LOCK_FREE, section

if TYPE_CHECKING:
    from bench.report_page.facts import Facts

LEASE_SECONDS: Final = 10
NOT_HERE: Final = "not in this session"


PRACTICES: Final = (
    ("A sleep under the lock, long enough that any striping looks linear", "Run: {sections}."),
    (
        "One badly tuned lock as the baseline",
        "Strategies: {strategies}. F10 counts their lock requests.",
    ),
    ("No baseline that needs no lock", "{free}."),
    (
        "The p99 of a closed loop as a user's latency",
        "Closed-loop times are called service times; users' are in F4 and F5.",
    ),
    ("Zero milliseconds of a tool's coarse bins as 'sub-millisecond'", "HdrHistogram, microseconds, three digits."),
    (
        "Answers 'sold out' counted as throughput",
        "Rates are orders that hold stock; refusals and failures are columns.",
    ),
    ("'No oversell' with units left over", "Units sold of min(stock, demand) stand beside each rate."),
    (
        "Averages of percentiles, percentiles of few samples",
        "Histograms are added up; ten samples must lie beyond.",
    ),
    (
        "The best of n runs; runs one strategy after the other",
        "Means over all runs that count, {counts} a cell, in rounds of random order.",
    ),
    (
        "Pipelining on one side only",
        "A batch is a cell of its own, B; commands and bytes of all are counted in F10.",
    ),
    ("Durability off on the winner", "Where an acknowledged order is stands in the table; {same}."),
    (
        "kill -9 called crash-safe",
        "No fault was injected in these runs, and nothing about crashes is claimed by them.",
    ),
    (
        "A test shorter than one period of what it depends on",
        (
            "Windows of {shortest:.2g} to {longest:.2g} s: less "
            "than a rewrite of a log takes to come, and less than a lease of {lease} s where they are "
            "shorter. A limit of this session."
        ),
    ),
    (
        "Speed-ups without absolute values",
        "Absolute rates stand beside every ratio, in F2's caption and F15's rows.",
    ),
    (
        "Generator and server on the same cores, unsaid",
        "{where}. Saturated: hollow.",
    ),
    ("Errors hidden by retries", "An order that ends without an answer is a failure; failures void a closed run."),
    ("Time-outs left out of the histogram", "Orders that failed are in it, with the time they took to fail."),
    ("Log axes unsaid, y axes cut of", "Every log axis says so; linear rates begin at 0."),
    (
        "A model calibrated on the data that validates it",
        "S comes from histograms of cells that are left out of its error.",
    ),
    ("Uniform keys only", "One sku is sold: all buyers want the same one. Skew over many skus was not measured."),
)
"""Each practice, and the answer to it, with what the data tells in braces."""


def practices(facts: Facts) -> list[tuple[str, str]]:
    """Return each practice and the answer to it."""
    runs = facts.results.runs
    sections = sorted({section(spot.cell) for spot in facts.spots})
    strategies = sorted({spot.cell.strategy for spot in facts.spots})
    counts = sorted({len(spot.runs) for spot in facts.spots}) or [0]
    windows = sorted(run.window_s for run in runs) or [0.0]
    servers = {tuple(sorted(run.server.items())) for run in runs}
    free = f"{LOCK_FREE} is in F1, F11 and F15" if LOCK_FREE in strategies else f"{LOCK_FREE} is {NOT_HERE}"
    same = (
        "every run had the same server settings" if len(servers) <= 1 else f"{len(servers)} server settings were used"
    )
    where = str(facts.results.session.environment.get("placement") or "where they ran is not told")
    told = {
        "sections": "; ".join(sections),
        "strategies": ", ".join(strategies),
        "free": free,
        "counts": _span(counts),
        "same": same,
        "shortest": windows[0],
        "longest": windows[-1],
        "lease": LEASE_SECONDS,
        "where": f"{where[0].upper()}{where[1:]}",
    }
    return [(practice, answer.format(**told)) for practice, answer in PRACTICES]


def _span(counts: list[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
