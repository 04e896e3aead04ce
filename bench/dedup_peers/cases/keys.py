"""Which submissions are the same order, and whether a publisher can bypass the check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench.dedup_peers.context import ORDER
from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import LABEL
from bench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.dedup_peers.context import BenchContext


def parts_do_not_run_together(context: BenchContext) -> Finding:
    """F25: a part may contain the separator of the parts of a key."""
    return _runs_of(context, {"a": "1_b-2"}, {"a": 1, "b": 2}, expected=2)


def types_differ(context: BenchContext) -> Finding:
    """F25: a number and its text."""
    return _runs_of(context, {"a": 1}, {"a": "1"}, expected=2)


def names_and_positions(context: BenchContext) -> Finding:
    """F25: the same call, written in two ways."""
    return _runs_of(context, {"a": 1}, None, expected=1)


def foreign_publisher(context: BenchContext) -> Finding:
    """Foreign: the messages exist, whatever the library would have answered."""
    for _ in range(2):
        context.worker(replace(context.base, seconds_before=1))
    publisher = context.foreign_publisher()
    for _ in range(2):
        publisher.ask("send", {"order_id": ORDER})
    context.settle()
    return one_run(context)


def _runs_of(
    context: BenchContext, first: Mapping[str, object], second: Mapping[str, object] | None, *, expected: int
) -> Finding:
    """Submit both without a worker, then count; `second` None: the first one's value by position."""
    publisher = context.publisher()
    publisher.submit(LABEL, named=first)
    if second is None:
        publisher.submit(LABEL, first["a"])
    else:
        publisher.submit(LABEL, named=second)
    context.worker(context.base)
    context.settle()
    runs = len(context.seen("effect"))
    return Finding(runs == expected, f"{counted(runs, 'run')} of {counted(expected, 'order')}")
