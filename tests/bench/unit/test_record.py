from __future__ import annotations

import json
from typing import Any

import pytest

from bench.record import RunRecord, Wait, check_record
from tests.bench.records import record


def as_written(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # any value, also a wrong one
    written: dict[str, Any] = json.loads(json.dumps(record().as_json()))
    return written | changes


def test_a_record_comes_back_from_its_file_as_it_was() -> None:
    assert RunRecord.from_json(as_written()) == record()


def test_the_keys_of_the_interface_are_there() -> None:
    wanted = {
        "strategy", "segments", "buyers", "hold_ms", "orders_per_s", "bound_per_s", "stock", "sold", "oversold",
        "refused_wrongly", "wait_ms", "generator_cpu", "redis_cpu", "database_cpu",
    }  # fmt: skip
    assert wanted - set(as_written()) == set()
    assert {"p50", "p99"} - set(as_written()["wait_ms"]) == set()


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"strategy": 3}, "strategy is 3"),
        ({"sold": 1.5}, "sold is 1.5"),
        ({"sold": True}, "sold is True"),
        ({"sold": None}, "sold is None"),
        ({"orders_per_s": "fast"}, "orders_per_s is 'fast'"),
        ({"speed": 1}, "unknown speed"),
        ({"wait_ms": {"p50": 1.0, "p99": 2.0}}, "no wait_ms.max"),
        ({"wait_ms": {"p50": 3.0, "p99": 2.0, "max": 4.0}}, "wait_ms is not in order: "),
        ({"oversold_in_sql": 7}, "oversold is not the greater one of Redis and SQL"),
        ({"violations": ["oversold"]}, "a run that broke a promise has no throughput"),
    ],
)
def test_what_is_no_record_is_named(changes: dict[str, Any], wrong: str) -> None:
    found = check_record(as_written(**changes))
    assert len(found) == 1
    assert found[0].startswith(wrong)
    with pytest.raises(ValueError, match="not a record of a run: "):
        RunRecord.from_json(as_written(**changes))


@pytest.mark.parametrize("key", ["strategy", "wait_ms", "audit", "violations"])
def test_a_missing_key_is_named(key: str) -> None:
    written = as_written()
    del written[key]
    assert check_record(written) == [f"no {key}"]


@pytest.mark.parametrize("changes", [{"database_cpu": None}, {"orders_per_s": None}, {"hold_ms": 20}])
def test_what_cannot_be_had_may_be_null_and_a_whole_number_stands_for_a_float(changes: dict[str, Any]) -> None:
    assert check_record(as_written(**changes)) == []


def test_waits_are_milliseconds() -> None:
    assert record().as_json()["wait_ms"] == {"p50": 50.0, "p99": 60.0, "max": 61.0}
    assert record().wait_ms == Wait(50.0, 60.0, 61.0)
