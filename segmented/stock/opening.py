"""Open a pool, once its server is known to keep to its profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import ChangeGated, PoolMissing, ShardVanished
from segmented.models import AlreadyOpen
from segmented.plans import perform

if TYPE_CHECKING:
    from segmented.models import Opened
    from segmented.plans import Plan


def open_pool_plan(operation: op.OpenPool) -> Plan[Opened | AlreadyOpen]:
    """Open a pool, on a server that can keep to its profile. Raises ChangeGated if it is open, and gated unasked."""
    yield from check_profile_plan(operation)
    answer = yield from perform(operation)
    if isinstance(answer, AlreadyOpen) and answer.state.gated and not operation.gated:
        raise ChangeGated(operation.sku, "open")
    return answer


def check_profile_plan(operation: op.OpenPool) -> Plan[None]:
    """Check the server of a pool that is not open yet. Raises InvalidInput.

    An open pool is not checked again: while a replica is missing, its orders are acknowledged later, not never.
    """
    profile = operation.profile
    if profile is None or not profile.waits:
        return
    try:
        yield from perform(op.ReadPool(operation.sku))
    except (PoolMissing, ShardVanished):
        yield from perform(op.CheckProfile(operation.sku, profile))
