"""A lease that is given another holder id keeps its token and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import Acquired, Held, Lost, Released

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_a_renamed_holder_has_the_lease_and_the_old_one_has_lost_it(side: Side) -> None:
    name = side.name()
    acquired = side.execute(op.AcquireLock(name, "old", 60_000))
    assert isinstance(acquired, Acquired)
    assert side.execute(op.RenameHolder(name, "old", "new")) is True
    assert side.execute(op.RenameHolder(name, "old", "new")) is True
    assert side.execute(op.RenewLock(name, "old", 60_000)) == Lost()
    assert side.execute(op.ReleaseLock(name, "old")) in (Lost(), Lost(is_unsure=True))
    assert isinstance(side.execute(op.AcquireLock(name, "old", 60_000)), Held)
    found = side.execute(op.AdoptLock(name, "new", 1))
    assert isinstance(found, Acquired)
    assert found.fencing_token == acquired.fencing_token
    assert 30_000 < found.ttl_ms <= 60_000
    assert side.execute(op.ReleaseLock(name, "new")) == Released()


def test_nobody_is_renamed_where_nobody_holds(side: Side) -> None:
    name = side.name()
    assert side.execute(op.RenameHolder(name, "old", "new")) is False
    side.execute(op.AcquireLock(name, "another", 60_000))
    assert side.execute(op.RenameHolder(name, "old", "new")) is False


def test_a_delay_goes_on_with_the_new_holder(side: Side) -> None:
    name = side.name()
    side.execute(op.AcquireLock(name, "old", 60_000, 60_000))
    assert side.execute(op.RenameHolder(name, "old", "new"))
    side.execute(op.RenewLock(name, "new", 50, 60_000))
    side.pass_time(0.1)
    held = side.execute(op.AcquireLock(name, "next", 50))
    assert isinstance(held, Held)
    assert held.is_delayed
