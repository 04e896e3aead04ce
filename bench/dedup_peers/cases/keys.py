"""Which submissions are the same order, and whether a publisher can get round it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import LABEL
from bench.dedup_peers.testbed import ORDER
from bench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.dedup_peers.testbed import Testbed


def parts_do_not_run_together(testbed: Testbed) -> Finding:
    """F25: what separates the parts of a key may be in a part."""
    return _runs_of(testbed, {"a": "1_b-2"}, {"a": 1, "b": 2}, expected=2)


def types_differ(testbed: Testbed) -> Finding:
    """F25: a number and its text."""
    return _runs_of(testbed, {"a": 1}, {"a": "1"}, expected=2)


def names_and_positions(testbed: Testbed) -> Finding:
    """F25: the same call, written in two ways."""
    return _runs_of(testbed, {"a": 1}, None, expected=1)


def foreign_publisher(testbed: Testbed) -> Finding:
    """Foreign: the messages are there, whatever the library would have said of them."""
    for _ in range(2):
        testbed.worker(replace(testbed.base, seconds_before=1))
    publisher = testbed.foreign_publisher()
    for _ in range(2):
        publisher.ask("send", {"order_id": ORDER})
    testbed.settle()
    return one_run(testbed)


def _runs_of(
    testbed: Testbed, first: Mapping[str, object], second: Mapping[str, object] | None, *, expected: int
) -> Finding:
    """Submit both while no worker is there, then count; `second` None: the first one's value by position."""
    publisher = testbed.publisher()
    publisher.submit(LABEL, named=first)
    if second is None:
        publisher.submit(LABEL, first["a"])
    else:
        publisher.submit(LABEL, named=second)
    testbed.worker(testbed.base)
    testbed.settle()
    runs = len(testbed.seen("effect"))
    return Finding(runs == expected, f"{counted(runs, 'run')} of {counted(expected, 'order')}")
