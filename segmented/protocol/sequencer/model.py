"""The model of the checks of sequencers and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import WrongKind
from segmented.keys import fenced_keys
from segmented.models import Standing
from segmented.protocol import CheckSequencer, FencedSet, ShowLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.locks import LockState
    from segmented.protocol.kinds import Bodies


class SequencerModel:
    """Checks who holds a lock, and keeps the values that are written under tokens."""

    def __init__(self, show: Callable[[ShowLock], LockState | None]) -> None:
        """Create a model without values that gets the state of locks from `show`."""
        self._show = show
        self.values: dict[str, tuple[str, int]] = {}
        """By key: the value, and the highest token that has written."""

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            op.CheckSequencer: self.check,
            op.FencedSet: self.set,
        }

    def check(self, operation: CheckSequencer) -> Standing:
        """Compare the token with the current generation."""
        state = self._show(ShowLock(operation.name, 1))
        if state is None or state.is_delayed:
            return Standing(None, is_good=False)
        if any(holder.mode == "permit" for holder in state.holders):
            message = f"lock {operation.name!r} has no single current generation"
            raise WrongKind(message)
        mode = "shared" if any(holder.mode == "read" for holder in state.holders) else "exclusive"
        is_good = (state.fencing_token, mode) == (operation.token, operation.mode)
        return Standing(state.fencing_token, is_good=is_good)

    def set(self, operation: FencedSet) -> Standing:
        """Compare the token, and write the value."""
        key = fenced_keys(operation.key).value
        _, newest = self.values.get(key, ("", 0))
        if newest > operation.token:
            return Standing(newest, is_good=False)
        self.values[key] = (operation.value, operation.token)
        return Standing(operation.token, is_good=True)
