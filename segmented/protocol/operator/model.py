"""The model of operator commands, over the models of all kinds of lock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.models.locks import NamesPage, Revoked

if TYPE_CHECKING:
    from segmented.models.locks import LockState
    from segmented.protocol import ListLocks, ListMasters, RevokeLock, ShowLock, SlotRanges
    from segmented.protocol.kinds import Bodies, KindModel

WILD: Final = re.compile(r"\\(?P<plain>.)|\[(?P<not>\^?)(?P<set>[^\]]*)\]|(?P<any>\*)|(?P<one>\?)", re.DOTALL)


class OperatorModel:
    """Asks every kind; a name belongs to at most one of them."""

    def __init__(self, *kinds: KindModel) -> None:
        """Create the operator's view of `kinds`."""
        self._kinds = kinds
        self._revoked: dict[str, tuple[str, Revoked]] = {}

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {
            op.ShowLock: self.show,
            op.RevokeLock: self.revoke,
            op.ListLocks: self.list_locks,
            op.ListMasters: self.list_masters,
        }

    def show(self, operation: ShowLock) -> LockState | None:
        """Return the lock's state."""
        states = (kind.state(operation.name, operation.holders_max) for kind in self._kinds)
        return next((state for state in states if state is not None), None)

    def revoke(self, operation: RevokeLock) -> Revoked | None:
        """End the leases, once per revoke id."""
        last_id, answer = self._revoked.get(operation.name, ("", None))
        if last_id == operation.revoke_id:
            return answer
        for kind in self._kinds:
            state = kind.state(operation.name, 0)
            if state is not None:
                kind.revoke(operation.name)
                answer = Revoked(state.kind, state.fencing_token)
                self._revoked[operation.name] = (operation.revoke_id, answer)
                return answer
        return None

    def list_locks(self, operation: ListLocks) -> NamesPage:
        """Return all names in one page."""
        pattern = _regular(operation.match)
        found = {name for kind in self._kinds for name in kind.names() if kind.state(name, 0) is not None}
        return NamesPage(tuple(sorted(name for name in found if pattern.fullmatch(name))), 0)

    def list_masters(self, _: ListMasters) -> tuple[SlotRanges, ...]:
        """Return nothing: the model is not a cluster."""
        return ()


def _regular(match: str) -> re.Pattern[str]:
    """Convert a server's pattern (`*`, `?`, `[abc]`, `[^abc]`, or escaped by a backslash) into a regular expression."""
    written, end = "", 0
    for found in WILD.finditer(match):
        written += re.escape(match[end : found.start()])
        end = found.end()
        if found["plain"] is not None:
            written += re.escape(found["plain"])
        elif found["any"]:
            written += ".*"
        elif found["one"]:
            written += "."
        else:
            inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", found["set"])
            written += f"[{found['not']}{inside}]"
    return re.compile(written + re.escape(match[end:]), re.DOTALL)
