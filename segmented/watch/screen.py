"""Draw readings for a terminal of any width: one block of up to seven lines a pool, whatever its number of segments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeVar

from rich.text import Text

from segmented.models.ids import counted, plural, visible
from segmented.watch.reading import NOT_OPEN, SOON_MS, pace, waiting_line, workers_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from segmented.watch.reading import PoolReading, Readings

PartT = TypeVar("PartT")

LABEL: Final = 8
"""Columns of the words before a row of segments."""
LEVELS: Final = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS: Final = " .:-=+*#@"
BLOCK_LINES: Final = 7
"""Lines of a pool's block, with the empty one below; one more where refusals are reported."""
REASONS_MAX: Final = 4
WIDTH_MAX: Final = 4
"""Columns of a segment, with the gap."""


def screen(
    now: Readings,
    before: Mapping[str, PoolReading],
    *,
    width: int,
    height: int,
    note: str = "",
    is_plain: bool = False,
) -> Text:
    """Draw as many pools as fit, then the workers; the last line says how to end, and how many pools are not shown.

    `is_plain` is for a terminal whose encoding has no block characters. `note` is why the numbers are old.
    """
    size = BLOCK_LINES + any(one.refused for one in now.pools)
    fit = max(1, (height - 3) // size)
    lines = [] if now.pools or note else [Text("no pool was opened yet", style="yellow")]
    for reading in now.pools[:fit]:
        lines += [*_block(reading, before.get(reading.sku), width, is_plain=is_plain), Text("")]
    if note:
        lines.append(Text(visible(note), style="red"))
    lines.append(Text(f"{'workers':<{LABEL}}{workers_line(now.workers)}"))
    busy = [one for one in now.workers if one.doing]
    for worker in busy[: max(0, height - len(lines) - 1)]:
        lines.append(Text(visible(f"{'':<{LABEL}}{worker.process}  {', '.join(worker.doing)}")))
    left = len(now.pools) - fit
    more = f"{left} more {plural(left, 'pool')}: name the ones to watch. " if left > 0 else ""
    lines.append(Text(f"{more}Ctrl-C ends this.", style="dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _block(now: PoolReading, before: PoolReading | None, width: int, *, is_plain: bool) -> Iterator[Text]:
    state = now.state
    if state is None:
        note = waiting_line(now) if now.note == NOT_OPEN else visible(now.note)
        yield Text.assemble((visible(now.sku), "bold"), "  ", (note, "yellow"))
        return
    share = f" ({100 * state.confirmed // state.stocked} %)" if state.stocked else ""
    yield Text.assemble(
        (visible(state.sku), "bold"),
        "  ",
        (visible(state.condition), "green" if state.condition == "open" else "yellow"),
        f"  {state.confirmed:,} of {state.stocked:,} sold{share}, {state.reserved:,} on hold, {state.available:,} free",
    )
    levels = PLAIN_LEVELS if is_plain else LEVELS
    columns = max(1, min(len(state.stock), width - LABEL))
    full = state.stocked / len(state.stock)
    yield Text("units".ljust(LABEL) + widened(bars(state.stock, columns, levels, full=full), width - LABEL))
    held = marks(now.held, columns, "#" if is_plain else "■", "." if is_plain else "·")
    yield Text.assemble("locks".ljust(LABEL), (widened(held, width - LABEL), "cyan"))
    speed = pace(before, now)
    rate = "-" if speed is None else f"{speed['orders']:,.1f} orders a second, {speed['units']:,.1f} units confirmed"
    yield Text(f"{'rate':<{LABEL}}{rate}")
    if now.refused:
        reasons = ", ".join(
            f"{number:,} {reason.replace('_', ' ')}" for reason, number in [*now.refused.items()][:REASONS_MAX]
        )
        yield Text(f"{'refused':<{LABEL}}{reasons}")
    waiting = sum(one.waiting for one in now.activities)
    beside = ", where one lock would hold 1" if len(now.held) > 1 else ""
    yield Text(
        f"{'held':<{LABEL}}{sum(now.held)} of {counted(len(now.held), 'segment')}{beside}; "
        f"{waiting} {'process' if waiting == 1 else 'processes'} waiting"
    )
    outbox, due = sum(one.outbox for one in now.activities), sum(one.outbox_due for one in now.activities)
    soon, overdue = sum(one.due_soon for one in now.activities), sum(one.overdue for one in now.activities)
    dead = sum(one.dead for one in now.activities)
    yield Text(
        f"{'holds':<{LABEL}}{soon} end within {SOON_MS // 1000} s, {overdue} overdue; "
        f"outbox: {outbox} {plural(outbox, 'order')}, {due} due, {dead} dead",
        style="yellow" if overdue or dead else "",
    )


def bars(units: Sequence[int], columns: int, levels: str = LEVELS, *, full: float = 0.0) -> str:
    """Return a character for each segment, or for each range of them if there are more than `columns`.

    The highest is a segment with `full` units, or the fullest column; a column with any unit left is never blank.
    """
    parts = [*_parts(units, columns)]
    sums = [sum(part) for part in parts]
    most, steps = max(1, math.ceil(full * len(parts[0])), *sums), len(levels) - 1
    return "".join(levels[-(-max(0, one) * steps // most)] for one in sums)


def widened(drawn: str, columns: int) -> str:
    """Return the characters as columns of up to three with a gap, if there is room."""
    size = min(WIDTH_MAX, columns // len(drawn))
    return drawn if size == 1 else "".join(one * (size - 1) + " " for one in drawn).rstrip()


def marks(held: Sequence[bool], columns: int, yes: str, no: str) -> str:
    """Return a character for each segment or range of them: whether any lock in it is held."""
    return "".join(yes if any(part) else no for part in _parts(held, columns))


def _parts(values: Sequence[PartT], columns: int) -> Iterator[Sequence[PartT]]:
    size = -(-len(values) // columns)
    return (values[first : first + size] for first in range(0, len(values), size))
