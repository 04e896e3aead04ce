"""The parts of the deduplication benchmark that need no server."""

from bench.figures import Figure
from bench.micro.dedup import Burst, figures_of


def burst(worked: float, *, trips: float = 0.0, published: float = 100.0, published_trips: float = 0.0) -> Burst:
    return Burst(published, published / 2, published_trips, worked, worked / 2, trips, 20.0)


def figures(ours: list[Burst]) -> dict[str, Figure]:
    plain = [burst(1_000.0), burst(2_000.0), burst(1_000.0)]
    by_script = [burst(1_100.0, trips=1.0) for _ in plain]
    found = {
        "plain": plain,
        "plain, one script": by_script,
        "unique": ours,
        "serial": ours,
        "unique, with an effect": [burst(1_210.0, trips=2.0) for _ in plain],
    }
    return {figure.name: figure for figure in figures_of(found)}


def test_a_third_round_trip_is_a_broken_promise() -> None:
    kept = figures([burst(1_200.0, trips=2.0) for _ in range(3)])["unique: round trips of the worker"]
    broken = figures([burst(1_200.0, trips=3.0) for _ in range(3)])["unique: round trips of the worker"]
    assert (kept.is_promise, kept.is_within) == (True, True)
    assert (broken.is_promise, broken.is_within) == (True, False)
