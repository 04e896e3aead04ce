"""Submit to a pool in shards: orders go to their home shard's outbox, and workers are notified shard by shard.

To a worker a shard is a pool like any other; its envelopes, sweep and dead letters are those of that pool.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from segmented.errors import InvalidInput, SegmentedError
from segmented.stock.outbox import Outbox, to_publish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models import Shard, Taken

Submission = tuple["Shard", "Taken"] | SegmentedError
"""A submitted order's answer and its home, or why it was not accepted."""


def sharded_outbox(sku: str, outbox: Outbox | None) -> Outbox:
    """Return how a pool in shards submits orders. Raises InvalidInput for an outbox that would refuse wrongly."""
    found = outbox or Outbox()
    if found.decides != "at acceptance":
        message = (
            f"decides={found.decides!r} is not supported for {sku!r} in shards: a worker decides in one shard, and "
            "would refuse orders while another has their units"
        )
        raise InvalidInput(message)
    return found


def publish(outbox: Outbox, submissions: Iterable[Submission]) -> None:
    """Notify workers, in messages that have orders of one shard each."""
    if outbox.publisher is None:
        return
    answers: defaultdict[Shard, list[Taken]] = defaultdict(list)
    for one in submissions:
        if not isinstance(one, SegmentedError):
            answers[one[0]].append(one[1])
    for home, found in answers.items():
        if waiting := to_publish(found):
            outbox.publisher.put(home, waiting)
