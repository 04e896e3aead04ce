from __future__ import annotations

import os

import psutil
import pytest

from bench.cpu import CpuReading, busy_seconds
from bench.engine.meters import saturated
from bench.engine.record import Cpu


def reading(at: float, *used: float, database: float | None) -> CpuReading:
    generator, redis, machine = used
    return CpuReading(at=at, generator=generator, redis=redis, database=database, machine=machine)


def test_cores_are_seconds_of_cpu_over_seconds_passed() -> None:
    used = reading(20.0, 9.0, 3.0, 30.0, database=6.0).since(reading(10.0, 4.0, 1.0, 15.0, database=5.0))
    assert used == CpuReading(at=10.0, generator=0.5, redis=0.2, database=0.1, machine=1.5)
    assert used.others == pytest.approx(0.7)


def test_time_that_the_hypervisor_gave_to_others_is_not_counted_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    times = psutil.cpu_times()
    stolen = type(times)(**dict.fromkeys(times._fields, 0.0) | {"user": 3.0, "system": 2.0, "idle": 7.0, "steal": 4.0})
    monkeypatch.setattr(psutil, "cpu_times", lambda: stolen)
    assert busy_seconds() == 5.0


def test_a_generator_on_one_core_is_not_taken_for_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    quiet = Cpu(generator=0.6, redis=0.4, database=None, machine=1.2, others=0.2, steal=0.0)
    assert saturated(quiet) == ()
    assert saturated(quiet.model_copy(update={"machine": 1.9})) == ("machine",)


def test_a_core_that_redis_shares_with_a_database_or_proxy_is_saturated_by_them_all() -> None:
    behind = Cpu(generator=0.6, redis=0.3, database=0.65, machine=1.6, others=0.05, steal=0.0)
    assert saturated(behind, server_cores=1) == ("servers",)
    assert saturated(behind) == ()
    assert saturated(behind.model_copy(update={"database": 0.5}), server_cores=1) == ()
    delayed = Cpu(generator=0.6, redis=0.2, database=None, machine=1.55, others=0.75, steal=0.0)
    assert saturated(delayed, server_cores=1, is_delayed=True) == ("servers",)
    assert saturated(delayed, server_cores=1) == ()
