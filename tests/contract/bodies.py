"""What goes on in the body of a `with` statement under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from segmented import protocol as op

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.locks import Lease
    from tests.fixtures.stores import Side


def let_lapse(side: Side, lease: Lease) -> None:
    """End a lease on the server while its holder still trusts it, as after a long pause of the holder."""
    side.execute(op.RenewLock(lease.name, lease.holder_id, ttl_ms=1))
    side.pass_time(0.005)


def fail_after(step: Callable[[], object]) -> NoReturn:
    """Be a body that does something and then raises."""
    step()
    message = "the body's own error"
    raise ZeroDivisionError(message)
