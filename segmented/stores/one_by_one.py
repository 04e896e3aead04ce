"""`execute_many` of stores that have no round trip to save: one operation after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


async def async_one_by_one(
    store: AsyncStore, operations: Sequence[Operation[AnswerT]], deadline: float
) -> list[AnswerT | SegmentedError]:
    """Perform operations one after the other; return one answer or error each."""
    answers: list[AnswerT | SegmentedError] = []
    for operation in operations:
        try:
            answers.append(await store.execute(operation, deadline=deadline))
        except SegmentedError as error:
            answers.append(error)
    return answers


# --- For threads: written by `make sync` from the classes above. ---


def one_by_one(
    store: Store, operations: Sequence[Operation[AnswerT]], deadline: float
) -> list[AnswerT | SegmentedError]:
    """Perform operations one after the other; return one answer or error each."""
    answers: list[AnswerT | SegmentedError] = []
    for operation in operations:
        try:
            answers.append(store.execute(operation, deadline=deadline))
        except SegmentedError as error:
            answers.append(error)
    return answers
