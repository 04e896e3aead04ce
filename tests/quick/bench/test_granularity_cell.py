"""A cell is checked when it is made, and its id says all of it."""

from __future__ import annotations

from typing import Final

import pytest
from pydantic import ValidationError

from bench.engine.cell import Cell

PLAIN = {"strategy": "segment-locks", "segments": 16, "buyers": 64, "hold_ms": 20.0}


NAMED: Final[list[tuple[dict[str, object], str]]] = [
    ({}, "segment-locks K=16 N=64 B=1 20ms"),
    ({"batch": 64, "rtt_ms": 0.5}, "segment-locks K=16 N=64 B=64 20ms rtt=0.5ms"),
    ({"proxied": True}, "segment-locks K=16 N=64 B=1 20ms rtt=0ms"),
    ({"section": "none", "hold_ms": 0.0}, "segment-locks K=16 N=64 B=1 none"),
    ({"section": "cpu", "hold_ms": 1.0}, "segment-locks K=16 N=64 B=1 cpu-1ms"),
    ({"section": "commit", "hold_ms": 0.0}, "segment-locks K=16 N=64 B=1 commit"),
    ({"section": "commit"}, "segment-locks K=16 N=64 B=1 commit+20ms"),
    ({"loop": "open", "offered_per_s": 500.0, "arrivals": "spike"}, "segment-locks K=16 N=64 B=1 20ms spike=500/s"),
    ({"quantity": 3, "stock": 7, "case": "restock"}, "segment-locks K=16 N=64 B=1 20ms q=3 stock=7 restock"),
    ({"skus": 16, "zipf": 1.1}, "segment-locks K=16 N=64 B=1 20ms skus=16 zipf=1.1"),
    ({"skus": 2}, "segment-locks K=16 N=64 B=1 20ms skus=2 zipf=0"),
]


def test_a_cell_is_named_by_its_values() -> None:
    assert [Cell.model_validate(PLAIN | more).cell_id for more, _ in NAMED] == [cell_id for _, cell_id in NAMED]


REFUSED: Final[list[tuple[dict[str, object], str]]] = [
    ({"segments": 0}, "greater than or equal to 1"),
    ({"hold_ms": float("nan")}, "less than or equal to 2000|greater than or equal to 0"),
    ({"section": "none"}, "a critical section of kind none has no hold, so 20 ms says two things"),
    ({"hold_ms": 0.0}, "a critical section of kind sleep needs a hold above 0 ms; with 0 it is: none"),
    ({"loop": "open"}, "an open loop needs it"),
    ({"offered_per_s": 5.0}, "offered_per_s belongs to an open loop"),
    ({"segmnets": 3}, "Extra inputs are not permitted"),
    ({"zipf": 1.1}, "zipf = 1.1 is a choice between several skus; give skus, such as skus = 16"),
    ({"skus": 2, "stock": 7}, "stock and case are of a cell with one sku, not with 2"),
]


def test_what_cannot_be_measured_is_refused() -> None:
    for more, said in REFUSED:
        with pytest.raises(ValidationError, match=said):
            Cell.model_validate(PLAIN | more)
