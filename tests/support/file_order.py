"""In which order several test workers take the files: all rings side by side, the longest files of each ring first.

One ring after the other has all workers compute at once, then all wait at once; and a file of minutes that somebody
takes last keeps everybody. Side by side, who computes runs beside who waits, and short files fill the end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from tests.support.paths import TESTS
from tests.support.rings import ring_of

SECONDS_A_TEST: Final = {"quick": 0.03, "real": 0.5, "long": 1.0}
"""About, for files that are not named below. A wrong number costs some seconds at the end, and nothing else."""
SECONDS: Final[dict[str, float]] = {
    f"real/{file}.py": seconds
    for seconds, files in {
        60.0: ("faults/test_killed_steps", "faults/test_within_kills", "integration/test_testing_plugin"),
        40.0: ("bench/integration/test_stock", "faults/test_sell_faults", "integration/test_sell"),
        30.0: (
            *("bench/integration/test_locks", "bench/integration/test_own_strategies", "faults/test_orders_forged"),
            *("faults/test_orders_frozen_and_stopped", "faults/test_orders_kills", "integration/test_django_app"),
            *("integration/test_late_patch", "integration/test_watch", "integration/test_worker_tasks"),
        ),
    }.items()
    for file in files
}
"""File -> seconds, of those that take far longer than their number of tests says."""


def side_by_side(tests: Iterable[str]) -> list[str]:
    """Return the files, by ring and name, of tests (one entry for each test) in the order in which to take them."""
    counts = Counter(tests)
    rings: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for file, count in counts.items():
        ring = ring_of(TESTS / file)
        rings[ring].append((SECONDS.get(file, count * SECONDS_A_TEST[ring]), file))
    shares: list[tuple[float, str]] = []
    for files in rings.values():
        total, before = sum(seconds for seconds, _ in files), 0.0
        for seconds, file in sorted(files, key=lambda found: (-found[0], found[1])):
            shares.append((before / total, file))
            before += seconds
    return [file for _, file in sorted(shares)]
