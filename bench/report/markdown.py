"""The table of the README, the verdicts on the hypotheses, and how to repeat the session: Markdown.

Markdown may contain HTML, so every "<" is escaped: it may be from a results file of somebody else.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from bench.analysis.hypotheses import judge
from bench.analysis.intervals import number
from bench.analysis.model_error import model_error
from bench.report.comparisons import noise
from bench.report.tables import GUARANTEES, main_family, main_setting, rendered, settings, strategy_rows, with_interval

if TYPE_CHECKING:
    from bench.report.facts import Facts, Spot

EXPECTED_MAX = 40
SHOWN = ("code.commit", "machine.cpu_model", "machine.cores", "machine.kernel", "servers.redis.version", "placement")
HEXADECIMAL: Final = re.compile(r"[0-9a-f]{7,64}(-dirty)?")


def table(facts: Facts) -> str:
    """Return the table for the README: absolute rates, their intervals, and guarantees."""
    heads = ["strategy", "K", "orders/s [95 %]", "runs", "sold out/s", "failed/s", "sold of min(stock, demand), %"]
    heads += [label for _, label in GUARANTEES] + ["lock requests", "commands", "server CPU, µs"]
    is_number = [False, *[True] * 6, *[False] * len(GUARANTEES), *[True] * 3]
    if facts.core_hour is not None:
        heads += ["server CPU, s a million orders", "price of a million orders"]
        is_number += [True] * 2
    lines = [_row(heads), _row(["--:" if one else "---" for one in is_number])]
    for row in strategy_rows(facts):
        name = f"{row.strategy} (control)" if row.is_control else row.strategy
        rate = f"{row.rate} ({row.used_up} saturated)" if row.used_up and not row.is_void else row.rate
        cells = [name, str(row.segments), rate, row.runs, row.sold_out, row.failed, row.sold_share]
        cost = [] if facts.core_hour is None else [row.server_s, row.price]
        lines.append(_row([*cells, *row.guarantees, row.attempts, row.commands, row.server_us, *cost]))
    session = facts.results.session
    priced = ""
    if facts.core_hour is not None:
        priced = f" Price: CPU of Redis and of the database at {facts.core_hour:g} a core-hour."
    found = dict(settings(session.environment))
    machine = "; ".join(f"{name.rpartition('.')[2]} {found[name]}" for name in SHOWN if name in found)
    kind = "quick profile, not to be published" if session.is_quick else "published profile"
    return _joined(
        [
            *lines,
            "",
            (
                f"{_first_up(main_setting(facts))}; {kind}. Geometric means over runs with 95 % intervals (Student's "
                "t); lock requests, commands and CPU are those of an order that was sold. Void: no rate, since a "
                f"promise was broken or too little measured. {noise(facts).said}{priced}"
            ),
            f"Conditions: {machine}.",
            "",
        ]
    )


def verdicts(facts: Facts) -> str:
    """Return the plan's hypotheses, each with its verdict and figures, and the model's error."""
    rows = [_row([one.id, one.sentence, one.verdict, one.why]) for one in judge(facts.results)]
    heads = [_row(["", "hypothesis, written before", "verdict", "found [95 % together]"]), _row(["---"] * 4)]
    return _joined([*heads, *rows, "", *model_error(facts.results).sentences(), ""])


def reproduce(facts: Facts) -> str:
    """Return REPRODUCE.md: one command, and what to expect of it."""
    session = facts.results.session
    quick = " --quick" if session.is_quick else ""
    sweeps = "".join(f" --sweep {shlex.quote(_line(name))}" for name in session.sweeps)
    found = {_line(name): _line(str(value)) for name, value in settings(session.environment)}
    family = main_family(facts)
    spots = [] if family is None else [spot for spots in family.by_strategy().values() for spot in spots]
    expected = [_expected(spot) for spot in spots if not spot.is_void][:EXPECTED_MAX]
    told = {
        "commit": _number(found.get("code.commit", found.get("commit", "-"))),
        "plan_sha256": _number(session.plan_sha256),
        "options": quick + sweeps,
        "setting": _first_up(main_setting(facts)),
        "noise": noise(facts).said,
        "expected": expected,
        "environment": [(name, value) for name, value in found.items() if ".config." not in name],
    }
    return _joined([rendered("reproduce.md.j2", told), ""])


def _expected(spot: Spot) -> str:
    ends = f"{number(min(spot.rates))} to {number(max(spot.rates))}"
    return _row([spot.cell.strategy, str(spot.cell.segments), with_interval(spot), ends, ", ".join(spot.saturated)])


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).replace("<", "&lt;")


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_line(cell).replace("|", "/") for cell in cells) + " |"


def _line(text: str) -> str:
    """Return text of a results file as a part of one line: nothing in it begins a line, or a block to run."""
    return "".join(one if one.isprintable() else " " for one in text).replace("`", "'")


def _number(text: str) -> str:
    """Return a commit or a sum, or a dash for anything else."""
    return text if HEXADECIMAL.fullmatch(text) else "-"


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
