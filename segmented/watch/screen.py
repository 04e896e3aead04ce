"""Draw readings for a terminal of any width: one block of six lines a pool, whatever its number of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rich.text import Text

from segmented.models.ids import plural, visible
from segmented.watch.reading import NOT_OPEN, SOON_MS, pace, waiting_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from segmented.watch.reading import PoolReading

PartT = TypeVar("PartT")

LABEL: Final = 7
"""Columns of the words before a row of segments."""
LEVELS: Final = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS: Final = " .:-=+*#@"
BLOCK_LINES: Final = 7
"""Lines of a pool's block, with the empty one below."""


def screen(
    readings: Sequence[PoolReading],
    before: Mapping[str, PoolReading],
    *,
    width: int,
    height: int,
    note: str = "",
    is_plain: bool = False,
) -> Text:
    """Draw as many pools as fit; the last line says how to end, and how many pools are not shown.

    `is_plain` is for a terminal whose encoding has no block characters. `note` is why the numbers are old.
    """
    fit = max(1, (height - 2) // BLOCK_LINES)
    lines: list[Text] = []
    for reading in readings[:fit]:
        lines += [*_block(reading, before.get(reading.sku), width, is_plain=is_plain), Text("")]
    if note:
        lines.append(Text(visible(note), style="red"))
    left = len(readings) - fit
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
    yield Text("units".ljust(LABEL) + bars(state.stock, columns, levels))
    held = marks(now.held, columns, "#" if is_plain else "■", "." if is_plain else "·")
    yield Text.assemble("locks".ljust(LABEL), (held, "cyan"))
    speed = pace(before, now)
    rate = "-" if speed is None else f"{speed['orders']:,.1f} orders a second, {speed['units']:,.1f} units confirmed"
    yield Text(f"{'rate':<{LABEL}}{rate}")
    waiting = sum(one.waiting for one in now.activities)
    yield Text(
        f"{'held':<{LABEL}}{sum(now.held)} of {len(now.held)} segments, where one lock would hold 1; "
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


def bars(units: Sequence[int], columns: int, levels: str = LEVELS) -> str:
    """Return a character for each segment, or for each range of them if there are more than `columns`.

    The highest is the fullest column; a column with any unit left is never blank.
    """
    sums = [sum(part) for part in _parts(units, columns)]
    most, steps = max(1, *sums), len(levels) - 1
    return "".join(levels[-(-max(0, one) * steps // most)] for one in sums)


def marks(held: Sequence[bool], columns: int, yes: str, no: str) -> str:
    """Return a character for each segment or range of them: whether any lock in it is held."""
    return "".join(yes if any(part) else no for part in _parts(held, columns))


def _parts(values: Sequence[PartT], columns: int) -> Iterator[Sequence[PartT]]:
    size = -(-len(values) // columns)
    return (values[first : first + size] for first in range(0, len(values), size))
