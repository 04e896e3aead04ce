"""The model of the historical lock's keys: plain strings without expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.models.locks import HOLDER_ID_SHOWN, LockHolder, LockState
from segmented.protocol.get_set.operations import DeleteValue, GetSet, GetValue, SetNx
from segmented.protocol.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.protocol.kinds import Bodies


class GetSetModel:
    """Values by name."""

    def __init__(self) -> None:
        """Create a model without values."""
        self._values: dict[str, str] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            SetNx: self.set_nx,
            GetValue: self.get,
            GetSet: self.get_set,
            DeleteValue: self.delete,
        }

    def holds(self, name: str) -> bool:
        """Return whether there is a value of any age."""
        return name in self._values

    def names(self) -> Iterable[str]:
        """Return the names it has seen."""
        return list(self._values)

    def state(self, name: str, holders_max: int) -> LockState | None:  # noqa: ARG002  # there is one at most
        """Return that there is a value; only clients know when it expires."""
        value = self._values.get(name)
        if value is None:
            return None
        return LockState(name, "get_set", (LockHolder(value[:HOLDER_ID_SHOWN], "exclusive", None),), 1, None, None)

    def revoke(self, name: str) -> None:
        """Delete the value; waiters poll."""
        del self._values[name]

    def set_nx(self, operation: SetNx) -> bool:
        """Write if there is no value."""
        if operation.name in self._values:
            return False
        self._values[operation.name] = operation.value
        return True

    def get(self, operation: GetValue) -> str:
        """Read."""
        return self._values.get(operation.name, "")

    def get_set(self, operation: GetSet) -> str:
        """Write, and return the previous value."""
        before = self._values.get(operation.name, "")
        self._values[operation.name] = operation.value
        return before

    def delete(self, operation: DeleteValue) -> bool:
        """Delete."""
        return self._values.pop(operation.name, None) is not None


KIND: Final = Kind(
    "get_set",
    "GetSetLock",
    "one at a time, if all clocks agree: the historical algorithm, for study",
    lambda _, __: GetSetModel(),
    takes=(SetNx,),
    has_token=False,
)
