"""What every lease does alike, whatever holds it: it ends with its `with` statement, and stays in its process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn, Self

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from types import TracebackType


class StaysInItsProcess:
    """Of use in the process that acquired it: two processes would otherwise both believe that they hold it."""

    name: str

    def __init__(self) -> None:
        """Belong to this process."""
        self._process_id = os.getpid()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process_id:
            message = f"the lease on {self.name!r} belongs to process {self._process_id}; acquire in this one"
            raise InvalidInput(message)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        message = f"the lease on {self.name!r} cannot be pickled: acquire in the process that needs it"
        raise InvalidInput(message)


class EndsWithItsBlock:
    """Released at the end of a `with` statement."""

    def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return the lease."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


class EndsWithItsAsyncBlock:
    """Released at the end of an `async with` statement."""

    async def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Return the lease."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            await self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
