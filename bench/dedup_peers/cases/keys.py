"""Which submissions are the same order, and whether a publisher can get round it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import LABEL
from bench.dedup_peers.stage import ORDER
from bench.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.dedup_peers.stage import Stage


def parts_do_not_run_together(stage: Stage) -> Finding:
    """F25: what separates the parts of a key may be in a part."""
    return _runs_of(stage, {"a": "1_b-2"}, {"a": 1, "b": 2}, expected=2)


def types_differ(stage: Stage) -> Finding:
    """F25: a number and its text."""
    return _runs_of(stage, {"a": 1}, {"a": "1"}, expected=2)


def names_and_positions(stage: Stage) -> Finding:
    """F25: the same call, written in two ways."""
    return _runs_of(stage, {"a": 1}, None, expected=1)


def foreign_publisher(stage: Stage) -> Finding:
    """Foreign: the messages are there, whatever the library would have said of them."""
    for _ in range(2):
        stage.worker(replace(stage.base, seconds_before=1))
    publisher = stage.foreign_publisher()
    for _ in range(2):
        publisher.ask("send", {"order_id": ORDER})
    stage.settle()
    return one_run(stage)


def _runs_of(
    stage: Stage, first: Mapping[str, object], second: Mapping[str, object] | None, *, expected: int
) -> Finding:
    """Submit both while no worker is there, then count; `second` None: the first one's value by position."""
    publisher = stage.publisher()
    publisher.submit(LABEL, named=first)
    if second is None:
        publisher.submit(LABEL, first["a"])
    else:
        publisher.submit(LABEL, named=second)
    stage.worker(stage.base)
    stage.settle()
    runs = len(stage.seen("effect"))
    return Finding(runs == expected, f"{counted(runs, 'run')} of {counted(expected, 'order')}")
