"""The measure of unused segments, fed with samples: a segment is unused while it is free and the same buyer waits."""

from pathlib import Path
from typing import Final

from tests.torture.segments import UnusedSegments, WaitingBuyers

MS: Final = 1_000_000
Sample = tuple[int, set[int], int | None]
"""When it was taken, which segments were free, and since when the longest waiting buyer waits, in milliseconds."""
CASES: Final[dict[str, tuple[list[Sample], list[float]]]] = {
    "from the sample that sees it free to the one that sees it taken": (
        [(1, set(), 0), (2, {0}, 0), (9, {0}, 0), (12, set(), 0)],
        [10.0],
    ),
    "from the moment at which a buyer begins to wait": ([(1, {0}, None), (8, {0}, 5), (12, set(), 5)], [7.0]),
    "from the next buyer on, once the longest waiting one has left": (
        [(1, {0}, 1), (40, {0}, 35), (42, set(), 35)],
        [7.0],
    ),
    "until the last buyer has left": ([(1, {0}, 0), (7, {0}, None), (90, set(), 80)], [6.0]),
    "not while nobody waits": ([(1, {0, 1}, None), (90, set(), None)], []),
    "each segment on its own": ([(1, {0, 1}, 0), (5, {1}, 0), (9, set(), 0)], [4.0, 8.0]),
}


def test_a_segment_is_unused_while_it_is_free_and_the_same_buyer_waits() -> None:
    assert {name: measured(samples) for name, (samples, _) in CASES.items()} == {
        name: expected for name, (_, expected) in CASES.items()
    }


def measured(samples: list[Sample]) -> list[float]:
    unused = UnusedSegments(2)
    for at, free, longest in samples:
        unused.sample(at * MS, free, None if longest is None else longest * MS)
    return [one / MS for one in unused.unused_ns]


def test_killed_buyers_do_not_wait_and_paused_ones_wait_from_their_resumption(tmp_path: Path) -> None:
    waiting = WaitingBuyers(tmp_path / "waiting", 2, processes=2)
    waiting.note(0, 1, 7)
    WaitingBuyers(tmp_path / "waiting", 2).note(1, 0, 5)  # another process has mapped the same file
    assert waiting.longest_since([0, 0]) == 5
    assert waiting.longest_since([0, None]) == 7
    assert waiting.longest_since([0, 9]) == 7
    assert waiting.longest_since([8, 9]) == 8
    waiting.forget(0)
    assert waiting.longest_since([0, None]) is None
