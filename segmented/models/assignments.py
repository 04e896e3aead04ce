"""Which workers take the submitted orders of a pool: those of a queue, with a step, or any."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from segmented.errors import InvalidInput
from segmented.models.ids import checked_id, shortened

NAME_BYTES_MAX: Final = 200
STEP: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue and the step of its workers: those that a pool names for its submitted orders, or those of a worker."""

    queue: str | None = None
    """Name of the queue; None: a pool whose orders any queue may carry, or a worker of no queue."""
    step: str | None = None
    """The step as `module:function`; None: a pool that needs none, or a worker that has none."""

    def __post_init__(self) -> None:
        if self.queue is not None:
            object.__setattr__(self, "queue", checked_id(self.queue, "queue", bytes_max=NAME_BYTES_MAX))
        if self.step is not None:
            object.__setattr__(self, "step", checked_id(self.step, "step", bytes_max=NAME_BYTES_MAX))
            if not is_step(self.step):
                raise InvalidInput(f"step {shortened(self.step)} should be module:function, as SEGMENTED_STEP names it")

    @property
    def texts(self) -> tuple[str, str]:
        """Queue and step as scripts get them, empty without one."""
        return self.queue or "", self.step or ""

    def takes(self, queue: str | None, step: str | None) -> bool:
        """Return whether a worker with this queue and step may take the orders of a pool that names these two."""
        return queue in {None, self.queue} and step in {None, self.step}


UNASSIGNED: Final = Assignment()
"""A pool that names neither, so that any worker takes its orders; or a worker that has neither."""


def is_step(name: str) -> bool:
    """Return whether a text can name a step: `module:function`, of at most 200 bytes."""
    return len(name.encode()) <= NAME_BYTES_MAX and STEP.fullmatch(name) is not None
