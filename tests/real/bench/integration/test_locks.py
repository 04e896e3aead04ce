"""The lock benchmark on a real server, in small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from bench.micro.locks import measure
from bench.micro.locks.cycles import OURS, PEERS, RAW, REDIS_PY
from bench.micro.locks.measure import measure_contended, measure_renewal, measure_uncontended
from bench.micro.locks.turns import Task, measure as measure_turns

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer


EVEN_BUT_FOR_TWO: Final = 0.74
"""Jain's index of eight shares that are equal, but for two processes that stood still all the time: six eighths."""
LOOKS: Final = 100
"""Scripts more of waiters that look whether the lock is gone, while a process stands still."""


def nobody_told(_: str, __: int, ___: int) -> None:
    """Look away."""


def test_every_subject_of_this_environment_is_timed_and_a_cycle_is_two_round_trips(
    private_valkey: ValkeyServer,
) -> None:
    figures = {figure.name: figure for figure in measure_uncontended(private_valkey.url, {}, nobody_told, rounds=2)}
    for name in (OURS, REDIS_PY, RAW):
        assert figures[f"{name}: acquire and release"].value > 0
    assert not [name for name in figures if any(peer in name for peer in PEERS)]
    assert figures["round trips a cycle"].value == pytest.approx(2.0, abs=0.05)


@pytest.mark.long
def test_10_parked_waiters_cost_2_commands_a_second_in_all_and_2_each_when_served(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "PARKED_SECONDS", 6.0)
    monkeypatch.setattr(measure, "WAITER_ROUNDS", 3)
    parked, delay, floor, commands = measure_contended(private_valkey.url, nobody_told)
    assert 0 < parked.value <= 0.2
    assert min(floor.value, delay.value) > 0
    assert delay.at_most == pytest.approx(max(5.0, 1.5 * floor.value))
    assert 2.0 <= commands.value <= 3.0  # some more where hand-overs take long: then a release wakes other processes


@pytest.mark.long
@pytest.mark.parametrize(("subject", "scripts"), [("lock", 2.5), ("grant", 3.5)])
def test_processes_with_one_waiter_each_have_equal_shares_for_two_attempts_each(
    private_valkey: ValkeyServer, subject: str, scripts: float
) -> None:
    turns = measure_turns(Task(subject, private_valkey.url, seconds=3.0, threads=1), 8)
    assert len(turns.counts) == 8
    assert turns.jain >= EVEN_BUT_FOR_TWO
    assert turns.scripts <= scripts * sum(turns.counts) + LOOKS


@pytest.mark.long
def test_a_thousand_leases_are_kept_by_one_thread(
    private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "LEASES", 1_000)
    monkeypatch.setattr(measure, "TTL_MS", 18_000)  # a machine may stand still for two thirds of it
    monkeypatch.setattr(measure, "WATCHED_SECONDS", 8.0)
    used, lost, threads = measure_renewal(private_valkey.url, nobody_told)
    assert used.value > 0
    assert (lost.value, threads.value) == (0, 1)
