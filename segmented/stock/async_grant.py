"""A grant for asyncio: the pending call and the granted order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from segmented.errors import NotGranted, SegmentedError
from segmented.stock.grant import GrantState

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from segmented import protocol as op
    from segmented.models import Granted, Refusal, Settled, Superseded
    from segmented.stock.async_pool import AsyncPool


class Grants(Protocol):
    """A pool, in one hash slot or in shards, that can grant orders."""

    async def _granted(self, operation: op.Grant, timeout: float | None, *, fair: bool) -> AsyncGrant | Refusal:
        """Grant, or refuse."""


class Granting:
    """A pending grant: an awaitable and an asynchronous context manager."""

    def __init__(self, pool: Grants, operation: op.Grant, timeout: float | None, *, fair: bool) -> None:
        """Create a pending call; `pool` gets `operation` when this is awaited or entered."""
        self._pool = pool
        self._operation = operation
        self._timeout = timeout
        self._fair = fair
        self._grant: AsyncGrant | None = None

    def __await__(self) -> Generator[Any, Any, AsyncGrant | Refusal]:
        """Return the grant or the refusal."""
        granted = self._pool._granted(self._operation, self._timeout, fair=self._fair)  # noqa: SLF001  # made by the pool
        return granted.__await__()

    async def __aenter__(self) -> AsyncGrant:
        """Return the grant; raises NotGranted on a refusal."""
        answer = await self
        if not isinstance(answer, AsyncGrant):
            _refuse(answer)
        self._grant = answer
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised."""
        if self._grant is not None:
            await self._grant.__aexit__(kind, error, trace)


def _refuse(refusal: Refusal) -> NoReturn:
    raise NotGranted(refusal)


class AsyncGrant(GrantState):
    """A granted order, for asyncio."""

    def __init__(self, pool: AsyncPool, granted: Granted, asked_at: float) -> None:
        """Create a grant of `pool`, requested at local time `asked_at`."""
        super().__init__(granted, pool._settings.ttl_ms, asked_at, pool.store.clock)  # noqa: SLF001  # made by the pool
        self.pool = pool
        """The pool, or the shard, that owns the segment and the units."""

    async def confirm(self) -> Settled:
        """Make the order final and free the segment."""
        settled = await self.pool.confirm(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return settled

    async def cancel(self) -> Settled | Superseded:
        """Give the units back and free the segment, unless another holder has taken over the order."""
        answer = await self.pool.cancel(self.order_id, holder_id=self.holder_id)
        self._is_settled = True
        return answer

    async def renew(self) -> None:
        """Extend the lease and the hold. Raises LeaseLost when it is too late."""
        await self.pool.renew(self)

    async def __aenter__(self) -> Self:
        """Return the grant."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Confirm the order, or cancel it if the body raised, without hiding the body's error."""
        if self._is_settled:
            return
        if error is None:
            settled = await self.confirm()
            if settled.state != "confirmed":
                raise NotGranted(settled)
            return
        try:
            await self.cancel()
        except SegmentedError as failure:
            error.add_note(f"and the order could not be cancelled: {failure}")
